//! Sends a plan to a target: at a fixed rate whatever the target does, or as fast as it acknowledges.
//!
//! All sends are futures of the one task that calls [`drive`]. Messages are written when there is room to send them, so
//! memory is bounded by the sends in flight, also while a target stalls.
//!
//! At a fixed rate a latency counts from the moment at which the message was to be sent, not from the moment at which
//! it could be. A target that stalls for a second then shows a second's worth of slow messages, as its users would see
//! it, and not one (the "coordinated omission" of Gil Tene).

use super::target::{Batch, Part, SendError, Target};
use super::{Generator, Plan, Schedule};
use crate::common::backoff::Backoff;
use crate::common::sync::Locked;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// A batch of so many bytes takes no more messages. The last one may be oversized, and then it still fits in the 16 MiB
/// that a worker takes in one request.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Longest latency that is kept apart: an hour.
const MAX_MICROS: u64 = 3_600_000_000;

/// What of the driver is not the plan's.
#[derive(Clone, Debug)]
pub struct Config {
    /// When each message is to be sent; `None` for as fast as the target acknowledges.
    pub schedule: Option<Schedule>,
    /// Sends at once. 8 keeps a worker's lanes busy, and memory under 8 × 13 MiB.
    pub sends_in_flight: NonZeroUsize,
    /// Messages of one send; `None` for what suits the target.
    pub batch_messages: Option<NonZeroUsize>,
    /// How long a send is tried again before the load gives up. 30 s: longer than a worker takes to start again.
    pub give_up_after: Duration,
    /// How long a stopped load waits for the answers to what is in flight.
    pub drain_timeout: Duration,
    /// Between two attempts. At most 2 s, so that a target that came back is noticed.
    pub backoff: Backoff,
}

impl Default for Config {
    fn default() -> Self {
        const EIGHT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);
        Self {
            schedule: None,
            sends_in_flight: EIGHT,
            batch_messages: None,
            give_up_after: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
            backoff: Backoff { base: Duration::from_millis(50), cap: Duration::from_secs(2) },
        }
    }
}

/// What has happened so far. The driver moves it, anybody may watch.
#[derive(Debug)]
pub struct Watch {
    accepted: AtomicU64,
    poison: AtomicU64,
    retries: AtomicU64,
    latency: Mutex<Histogram<u64>>,
    trouble: Mutex<Option<String>>,
}

impl Default for Watch {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the histogram accepts")]
    fn default() -> Self {
        Self {
            accepted: AtomicU64::new(0),
            poison: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            latency: Mutex::new(Histogram::new_with_bounds(1, MAX_MICROS, 3).expect("1 to an hour at three digits")),
            trouble: Mutex::default(),
        }
    }
}

impl Watch {
    /// Messages that the target is known to have accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Messages that the target called poison.
    #[must_use]
    pub fn poison(&self) -> u64 {
        self.poison.load(Ordering::Relaxed)
    }

    /// Sends that were made again.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Latencies in microseconds: at a fixed rate from the intended time, else from the sending.
    #[must_use]
    pub fn latency(&self) -> Histogram<u64> {
        self.latency.locked().clone()
    }

    /// What the last send failed of, until one succeeds.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.locked().clone()
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.locked() = trouble;
    }

    fn accept(&self, parts: &[Part], sent: &Sent) {
        self.accepted.fetch_add(parts.len() as u64, Ordering::Relaxed);
        let micros = |latency: Duration| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let mut histogram = self.latency.locked();
        match &sent.schedule {
            Some(schedule) => {
                let since_start = sent.start.elapsed();
                for part in parts {
                    histogram.saturating_record(micros(since_start.saturating_sub(schedule.due(part.position))));
                }
            }
            None => histogram.saturating_record_n(micros(sent.sent_at.elapsed()), parts.len() as u64),
        }
    }
}

/// What a latency is counted from.
struct Sent {
    schedule: Option<Schedule>,
    start: Instant,
    sent_at: Instant,
}

/// How a load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every message was accepted.
    Complete,
    /// It was stopped. Sending the whole plan again completes it: events are counted once.
    Stopped,
    /// The target refused, or did not answer for too long. The sentence says what to do.
    GaveUp(String),
}

/// Sends all of `plan` to `target`, until everything is accepted, `stop` is cancelled, or the target is given up.
///
/// What was accepted is in `watch`, whatever the end.
pub async fn drive(
    plan: &Plan,
    target: &dyn Target,
    config: &Config,
    stop: &CancellationToken,
    watch: &Watch,
) -> Ended {
    let ended = send_all(plan, target, config, stop, watch).await;
    match target.close().await {
        Err(error) if ended == Ended::Complete => Ended::GaveUp(error.message),
        _ => ended,
    }
}

async fn send_all(plan: &Plan, target: &dyn Target, config: &Config, stop: &CancellationToken, watch: &Watch) -> Ended {
    let start = Instant::now();
    let mut feed = Feed {
        generator: plan.generate(),
        schedule: config.schedule,
        most: config.batch_messages.map_or_else(|| target.batch_messages(), NonZeroUsize::get),
        left: plan.messages(),
        bytes_a_message: 256,
    };
    let most_in_flight = config.sends_in_flight.get().min(target.max_sends());
    let mut in_flight = FuturesUnordered::new();
    let ended = loop {
        while in_flight.len() < most_in_flight {
            let Some(batch) = feed.due(start.elapsed()) else { break };
            let sent = Sent { schedule: config.schedule, start, sent_at: Instant::now() };
            let seed = batch.parts.first().map_or(0, |part| part.position);
            in_flight.push(send_until_accepted(batch, sent, target, config, watch, SmallRng::seed_from_u64(seed)));
        }
        if feed.left == 0 && in_flight.is_empty() {
            return Ended::Complete;
        }
        let wake = feed.next_due().filter(|_| in_flight.len() < most_in_flight);
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ended::Stopped,
            Some(done) = in_flight.next(), if !in_flight.is_empty() => if let Err(error) = done {
                break Ended::GaveUp(error);
            },
            () = sleep_until(start + wake.unwrap_or_default()), if wake.is_some() => {}
        }
    };
    // What is in flight may still be answered. Dropping the rest is safe, it only is not known.
    let deadline = Instant::now() + config.drain_timeout;
    while let Ok(Some(done)) = timeout_at(deadline, in_flight.next()).await {
        if done.is_err() {
            break;
        }
    }
    if watch.accepted() == plan.messages() { Ended::Complete } else { ended }
}

/// Makes batches of what is due.
struct Feed<'a> {
    generator: Generator<'a>,
    schedule: Option<Schedule>,
    most: usize,
    left: u64,
    /// Of the last batch, to make room for the next.
    bytes_a_message: usize,
}

impl Feed<'_> {
    /// When the next message is due, after the start.
    fn next_due(&self) -> Option<Duration> {
        let schedule = self.schedule.as_ref()?;
        (self.left > 0).then(|| schedule.due(self.generator.sent()))
    }

    /// The messages that are due by now, as many as fit.
    fn due(&mut self, since_start: Duration) -> Option<Batch> {
        let mut jsonl = Vec::new();
        let mut parts = Vec::new();
        while parts.len() < self.most && jsonl.len() < MAX_BATCH_BYTES {
            let position = self.generator.sent();
            if self.left == 0 || self.schedule.as_ref().is_some_and(|schedule| schedule.due(position) > since_start) {
                break;
            }
            if self.schedule.is_none() && parts.is_empty() {
                jsonl.reserve((self.most * self.bytes_a_message).min(MAX_BATCH_BYTES));
                parts.reserve(self.most.min(65_536));
            }
            if self.generator.write_next(&mut jsonl).is_none() {
                self.left = 0;
                break;
            }
            parts.push(Part { end: jsonl.len(), position });
            jsonl.push(b'\n');
            self.left -= 1;
        }
        self.bytes_a_message = jsonl.len().checked_div(parts.len()).unwrap_or(self.bytes_a_message) + 8;
        (!parts.is_empty()).then(|| Batch { jsonl: Bytes::from(jsonl), parts })
    }
}

/// Sends one batch until the target has accepted all of it, or is given up. Dropping this loses no knowledge: what was
/// accepted was told to `watch` at once.
async fn send_until_accepted(
    mut batch: Batch,
    sent: Sent,
    target: &dyn Target,
    config: &Config,
    watch: &Watch,
    mut rng: SmallRng,
) -> Result<(), String> {
    let mut give_up_at = None;
    let mut failures = 0;
    loop {
        let SendError { transient, message, left } = match target.send(&batch).await {
            Ok(accepted) => {
                watch.poison.fetch_add(accepted.poison, Ordering::Relaxed);
                watch.accept(&batch.parts, &sent);
                watch.set_trouble(None);
                return Ok(());
            }
            Err(error) => error,
        };
        if let Some(places) = left.filter(|places| places.len() < batch.parts.len()) {
            let rest = batch.only(&places);
            let mut refused = places.into_iter().peekable();
            let of_all = batch.parts.into_iter().enumerate();
            let accepted: Vec<_> =
                of_all.filter(|(place, _)| refused.next_if_eq(place).is_none()).map(|(_, part)| part).collect();
            watch.accept(&accepted, &sent);
            batch = rest;
            // Some of it went through, so the target is there.
            give_up_at = None;
            failures = 0;
        }
        watch.set_trouble(Some(message.clone()));
        let give_up_at = *give_up_at.get_or_insert_with(|| Instant::now() + config.give_up_after);
        failures += 1;
        let wait = config.backoff.wait(failures, &mut rng);
        if !transient || Instant::now() + wait > give_up_at {
            return Err(message);
        }
        sleep(wait).await;
        watch.retries.fetch_add(1, Ordering::Relaxed);
    }
}
