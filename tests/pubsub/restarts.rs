//! What rolling restarts cost. Every delivery that a worker takes and leaves is a delivery attempt, and a subscription that
//! gives up after few of them makes dead letters of healthy likes. How many attempts the emulator counts is printed and not
//! held: it goes on for a while giving messages to streams that have ended, a lease and an attempt at a time.

use crate::faults::{Fault, Faulty};
use crate::support::publish::{Topic, with_attempts};
use async_trait::async_trait;
use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::Progress;
use hotcount::like::event::OrderPolicy;
use hotcount::source::pubsub::PubSub;
use hotcount::source::{Delivery, Source, SourceError, Stream};
use hotcount::store::memory::Memory;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const RESTARTS: usize = 3;

/// Likes that come before each restart: fewer than the worker may hold, for the emulator has no limit of what is out.
const LIKES: usize = 400;

/// Of them so many are counted when the worker is told to stop.
const BEFORE_THE_STOP: u64 = 100;

/// Only a hang reaches it.
const WITHIN: Duration = Duration::from_secs(240);

/// The highest attempt of each message.
type Attempts = Arc<Mutex<BTreeMap<String, u32>>>;

/// A source that notes attempts.
struct Noting {
    source: PubSub,
    attempts: Attempts,
}

struct NotingStream {
    stream: Box<dyn Stream>,
    attempts: Attempts,
}

#[async_trait]
impl Source for Noting {
    fn name(&self) -> String {
        self.source.name()
    }

    fn streams(&self) -> usize {
        self.source.streams()
    }

    fn max_lease(&self) -> Option<Duration> {
        self.source.max_lease()
    }

    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError> {
        let (stream, attempts) = (self.source.open(number).await?, Arc::clone(&self.attempts));
        Ok(Box::new(NotingStream { stream, attempts }))
    }

    async fn close(&self) {
        self.source.close().await;
    }
}

impl NotingStream {
    fn note(&self, deliveries: &[Delivery]) {
        let mut attempts = self.attempts.lock().unwrap();
        for meta in deliveries.iter().filter_map(|delivery| delivery.meta.as_ref()) {
            let highest = attempts.entry(meta.message_id.clone().unwrap_or_default()).or_default();
            *highest = (*highest).max(meta.attempt.unwrap_or_default());
        }
    }
}

#[async_trait]
impl Stream for NotingStream {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let deliveries = self.stream.pull(max).await?;
        self.note(&deliveries);
        Ok(deliveries)
    }

    fn received(&mut self, max: usize) -> Vec<Delivery> {
        let deliveries = self.stream.received(max);
        self.note(&deliveries);
        deliveries
    }
}

fn like(n: usize) -> String {
    format!(r#"{{"eventId":"e{n}","type":"like.added","postId":"p","userId":"u{n}","version":1}}"#)
}

/// Commits of 50 likes, 20 ms each, as a service takes them.
fn config() -> Config {
    Config { order: OrderPolicy::Version, batch_writes: Some(52), max_held_deliveries: 1_000, ..Config::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_leave_nothing_that_was_taken_to_redelivery() {
    let Some(topic) = Topic::new(with_attempts).await else { return };
    let (memory, attempts) = (Arc::new(Memory::default()), Attempts::default());
    let mut applied = 0;
    for restart in 0..RESTARTS {
        topic.publish_all((restart * LIKES..(restart + 1) * LIKES).map(like)).await;
        // The emulator gives messages to streams that are gone, a lease at a time: many live ones make that rare.
        let source = PubSub::connect(&topic.url("streams=16&extension_s=10&idle_s=20")).await.unwrap();
        let source = Arc::new(Noting { source, attempts: Arc::clone(&attempts) });
        let store = Faulty::new(Arc::clone(&memory), |_, _| Fault::slow(Duration::from_millis(20)));
        let (shutdown, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
        let engine = tokio::spawn(pipeline::run(
            source,
            store,
            config(),
            shutdown.clone().cancelled_owned(),
            Arc::clone(&progress),
        ));
        let counted = async {
            while progress.counted().applied < BEFORE_THE_STOP {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(WITHIN, counted).await.expect("likes are counted");
        shutdown.cancel();
        let report = engine.await.unwrap().unwrap();
        assert_eq!(report.counted.left, 0, "the drain leaves nothing that was taken");
        applied += report.counted.applied;
    }
    let attempts = attempts.lock().unwrap();
    let highest = attempts.values().max().copied().unwrap_or_default();
    let spent: u64 = attempts.values().map(|attempt| u64::from(attempt.saturating_sub(1))).sum();
    let likes = RESTARTS * LIKES;
    println!(
        "{RESTARTS} restarts, {likes} likes, {applied} counted: {spent} attempts spent, at most {highest} on one like"
    );
    assert_eq!(attempts.len() as u64, applied, "what was taken is what was counted");
}
