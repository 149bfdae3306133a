//! A place, what is sent to it, and the audit: what it must count, against what it counts.

use crate::events::Events;
use crate::place::Place;
use crate::process::{Worker, until};
use crate::sender::Sender;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A lease, and some: whatever a killed worker held was delivered again by then, if streams that are gone do not get it.
const QUIET: Duration = Duration::from_secs(12);

/// Two leases: messages that did not come by then may be kept for streams that are gone, until streams are opened anew.
const REOPEN_AFTER: Duration = Duration::from_secs(25);

/// Only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(240);

/// Everything that the outcome follows from.
pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) events: Events,
    pub(crate) sender: Sender,
    /// How long a worker may go without a message, while something is missing, before another one takes its place.
    pub(crate) reopen_after: Duration,
    /// When everything must be counted.
    pub(crate) deadline: Duration,
}

impl Scene {
    pub(crate) fn new(place: Place, events: Events) -> Self {
        Self { place, events, sender: Sender::default(), reopen_after: REOPEN_AFTER, deadline: DEADLINE }
    }

    /// One more chunk of events.
    pub(crate) async fn publish(&mut self) {
        let chunk = self.events.chunk();
        self.sender.publish(&self.place, chunk).await;
    }

    pub(crate) fn arguments(&self, streams: usize, more: &[&str]) -> Vec<String> {
        let (source, store) = (self.place.source(streams), self.place.store());
        let all = ["--source", &source, "--store", &store, "--drain-deadline-s", "120"];
        all.iter().chain(more).map(|&argument| argument.to_owned()).collect()
    }

    pub(crate) fn worker(&self, streams: usize, more: &[&str]) -> Worker {
        Worker::start(&self.arguments(streams, more).iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Lets one worker after the other work, until everything is counted; panics when a count stays wrong.
    pub(crate) async fn finished_by(&mut self, mut worker: impl FnMut(&Self) -> Worker) {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < self.deadline, "never finished: {}", self.difference());
            let worker = worker(self);
            let sending = self.sender.send(&worker.address);
            let answered = self.sender.answered(sending).await;
            if self.place.way.pulls_pubsub() {
                self.counted_by(&worker).await;
            } else {
                // It heeds signals from the moment on at which it pulls.
                until("it pulls", true, || metric(&worker, "hotcount_deliveries_received_total") > 0.0);
            }
            let (status, printed) = worker.terminate();
            assert_eq!(status.code(), Some(0), "it drains: {status}, {printed}");
            if answered && self.difference().is_empty() {
                return;
            }
        }
    }

    /// Until the worker shows what is expected and nothing more comes to it, or until something is missing for two leases.
    async fn counted_by(&self, worker: &Worker) {
        let (expected, mut received) = (self.events.wishes.counts(), -1.0);
        let (mut last_came, begun) = (Instant::now(), Instant::now());
        loop {
            let now = metric(worker, "hotcount_deliveries_received_total");
            if now != received {
                (received, last_came) = (now, Instant::now());
            }
            let mut right = true;
            for (post, expected) in &expected {
                right = right && count(worker, post).await == Some(*expected);
            }
            if last_came.elapsed() > if right { QUIET } else { self.reopen_after } || begun.elapsed() > self.deadline {
                return;
            }
            sleep(Duration::from_millis(250)).await;
        }
    }

    /// How the store differs from what the events say; nothing where it does not.
    pub(crate) fn difference(&self) -> String {
        let (counted, expected) = (self.place.counts(), self.events.wishes.counts());
        let (kept, entries) = self.place.quarantine();
        let poison = self.sender.poison(&self.place, &self.events);
        let mut all = counted.drifting.clone();
        for post in expected.keys().chain(counted.counts.keys()) {
            let of = |counts: &BTreeMap<String, i64>| counts.get(post).copied().unwrap_or_default();
            let (counted, expected) = (of(&counted.counts), of(&expected));
            if counted != expected {
                all.push(format!("{post} counts {counted}, not {expected}"));
            }
        }
        if kept != poison || entries != poison.len() {
            all.push(format!("{entries} entries in the quarantine {kept:?}, not {poison:?}"));
        }
        all.join("; ")
    }
}

async fn count(worker: &Worker, post: &str) -> Option<i64> {
    let answer = reqwest::get(format!("{}/v1/counts/{post}", worker.address)).await.ok()?;
    let row: serde_json::Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
    row["count"].as_i64()
}

/// The sum of a metric over its labels.
pub(crate) fn metric(worker: &Worker, name: &str) -> f64 {
    let address = worker.address.trim_start_matches("http://");
    let ask = || -> std::io::Result<String> {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = ask().unwrap_or_default();
    let values = text.lines().filter(|line| line.starts_with(name));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
