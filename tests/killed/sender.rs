//! Sends events: to the topic, or to a worker until it has answered.

use crate::events::Events;
use crate::place::Place;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;

/// Lines in one body.
const LINES: usize = 25;

/// Longer than the worker lets a request wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Who publishes. What was answered is never sent again: that it counts is the worker's promise.
#[derive(Default)]
pub(crate) struct Sender {
    /// What no worker has answered, where the source is http.
    unanswered: Vec<String>,
    /// The message ids of poison, where the broker gives some.
    poison_ids: BTreeSet<String>,
}

/// Events on their way to a worker. Dropping it leaves them on their way.
pub(crate) struct Sending(Option<tokio::task::JoinHandle<Vec<String>>>);

impl Sender {
    /// Takes events in. A topic has them when this returns.
    pub(crate) async fn publish(&mut self, place: &Place, payloads: Vec<String>) {
        if place.way.pulls_pubsub() {
            let ids = place.publish(&payloads).await;
            let poison = payloads.iter().zip(ids).filter(|(payload, _)| !payload.starts_with('{'));
            self.poison_ids.extend(poison.map(|(_, id)| id));
        } else {
            self.unanswered.extend(payloads);
        }
    }

    /// Begins to send what no worker has answered to this one.
    pub(crate) fn send(&mut self, address: &str) -> Sending {
        if self.unanswered.is_empty() {
            return Sending(None);
        }
        let (all, url) = (std::mem::take(&mut self.unanswered), format!("{address}/v1/events"));
        Sending(Some(tokio::spawn(async move {
            let client = reqwest::Client::builder().timeout(ANSWER_WITHIN).build().unwrap();
            let bodies = all.chunks(LINES).map(|lines| post(&client, &url, lines));
            join_all(bodies).await.concat()
        })))
    }

    /// Waits until each is answered or its connection has broken, and says whether all are answered.
    pub(crate) async fn answered(&mut self, sending: Sending) -> bool {
        if let Some(task) = sending.0 {
            self.unanswered.extend(task.await.unwrap());
        }
        self.unanswered.is_empty()
    }

    /// What the quarantine must have.
    pub(crate) fn poison(&self, place: &Place, events: &Events) -> BTreeSet<String> {
        if place.way.pulls_pubsub() { self.poison_ids.clone() } else { events.poison.iter().cloned().collect() }
    }
}

/// What has to be sent again.
async fn post(client: &reqwest::Client, url: &str, lines: &[String]) -> Vec<String> {
    let request = client.post(url).header("content-type", "application/x-ndjson").body(lines.join("\n"));
    let answered = match request.send().await {
        // An answer that breaks off says nothing.
        Ok(answer) => answer.status() == 200 && answer.bytes().await.is_ok(),
        Err(_) => false,
    };
    if answered { Vec::new() } else { lines.to_vec() }
}
