//! What hotcount is compared with: one transaction an event, which reads a marker and the counter, creates the marker
//! and increments the counter. It is exact too. Its client tries again as Google's Node client does; after that the
//! event comes again.

use super::store::name;
use super::{Aborted, Contention, Name};
use crate::common::backoff::Backoff;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::cell::{Cell, RefCell};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often the client tries one transaction.
pub const ATTEMPTS: u32 = 5;

/// The wait after `failures` failures in a row, at the longest: 1 s, and 1.5 times as long each time.
#[must_use]
pub fn longest_wait(failures: u32) -> Duration {
    Duration::from_secs(1).mul_f64(1.5_f64.powi(i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX)))
}

/// Full jitter over [`longest_wait`].
pub fn wait(failures: u32, rng: &mut impl rand::Rng) -> Duration {
    let base = longest_wait(failures);
    Backoff { base, cap: base }.wait(1, rng)
}

/// Who writes, where and how fast events come.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Transactions at once.
    pub writers: u32,
    /// Counter documents of the post; each transaction takes a random one. 1 is the one guarded document.
    pub shards: NonZeroU16,
    /// Events a second; `None` for as many as the writers can take.
    pub events_per_s: Option<f64>,
    /// How long.
    pub lasts: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Events that came.
    pub arrived: u64,
    /// Events that were counted in time.
    pub counted: u64,
    /// How often a transaction failed for good, so that its event had to come again.
    pub came_again: u64,
    /// From the arrival of each counted event to its commit, sorted.
    latencies: Vec<Duration>,
}

impl Outcome {
    /// The latency of counted events at `quantile`, from 0 to 1.
    #[must_use]
    pub fn latency(&self, quantile: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        // A quantile of a length is no larger than the length.
        self.latencies.get((last as f64 * quantile).round() as usize).copied().unwrap_or_default()
    }

    /// Counted events a second.
    #[must_use]
    pub fn rate(&self, load: &Load) -> f64 {
        self.counted as f64 / load.lasts.as_secs_f64()
    }
}

/// Writers on one post of a database.
struct Run<'a> {
    contention: &'a Contention,
    load: Load,
    began: Instant,
    next: Cell<u64>,
    outcome: RefCell<Outcome>,
}

/// Runs guarded transactions on one post for as long as the load lasts.
pub async fn run(contention: &Arc<Contention>, load: Load, seed: u64) -> Outcome {
    let run =
        Run { contention, load, began: Instant::now(), next: Cell::new(0), outcome: RefCell::new(Outcome::default()) };
    let ends = run.began + load.lasts;
    let mut writers: FuturesUnordered<_> =
        (0..load.writers).map(|n| run.write(SmallRng::seed_from_u64(seed ^ u64::from(n) << 32))).collect();
    // Writers go on until they are dropped.
    let _ = tokio::time::timeout_at(ends, async { while writers.next().await.is_some() {} }).await;
    drop(writers);
    let mut outcome = run.outcome.into_inner();
    outcome.arrived = load.events_per_s.map_or(run.next.get(), |rate| (rate * load.lasts.as_secs_f64()) as u64);
    outcome.latencies.sort_unstable();
    outcome
}

impl Run<'_> {
    /// One event after the other. A transaction that fails for good gives its event back, and the same writer takes it
    /// up again: somebody has to.
    async fn write(&self, mut rng: SmallRng) {
        loop {
            let event = self.next.replace(self.next.get() + 1);
            let arrives = match self.load.events_per_s {
                Some(rate) => self.began + Duration::from_secs_f64(event as f64 / rate),
                None => Instant::now(),
            };
            tokio::time::sleep_until(arrives).await;
            while !self.count(event, &mut rng).await {
                self.outcome.borrow_mut().came_again += 1;
            }
            let mut outcome = self.outcome.borrow_mut();
            outcome.counted += 1;
            outcome.latencies.push(arrives.elapsed());
        }
    }

    /// All attempts of one transaction; whether one of them committed.
    async fn count(&self, event: u64, rng: &mut SmallRng) -> bool {
        for failures in 1..=ATTEMPTS {
            let shard = rng.random_range(0..self.load.shards.get());
            match self.transaction(event, shard).await {
                Ok(()) => return true,
                Err(_) if failures == ATTEMPTS => {}
                Err(_) => tokio::time::sleep(wait(failures, rng)).await,
            }
        }
        false
    }

    async fn transaction(&self, event: u64, shard: u16) -> Result<(), Aborted> {
        let marker = name("marker", &event.to_be_bytes(), b"");
        let documents: Vec<Name> = vec![marker, name("counter", &shard.to_be_bytes(), b"")];
        let ranges = [(name("markers", b"", b""), 1), (name("counters", b"", b""), 1)];
        let held = self.contention.begin(documents, &ranges).await?;
        self.contention.read(2).await;
        self.contention.commit(2).await;
        drop(held);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Assumptions, Contention};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn outcome(writers: u32, shards: u16, events_per_s: Option<f64>) -> (Outcome, Load) {
        let contention = Contention::new(Assumptions::default(), 1);
        let shards = NonZeroU16::new(shards).expect("some");
        let load = Load { writers, shards, events_per_s, lasts: MINUTE };
        (run(&contention, load, 1).await, load)
    }

    #[tokio::test(start_paused = true)]
    async fn one_document_counts_no_more_with_eight_writers_than_with_one() {
        let (one, load) = outcome(1, 1, None).await;
        let (eight, _) = outcome(8, 1, None).await;
        assert!((14.0..=18.0).contains(&one.rate(&load)), "{}", one.rate(&load));
        assert!(eight.counted <= one.counted + 10, "{} {}", eight.counted, one.counted);
        let (sharded, _) = outcome(8, 1_000, None).await;
        assert!(sharded.counted > one.counted * 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_viral_post_leaves_nearly_everything_uncounted_and_aborts_more_than_it_counts() {
        let contention = Contention::new(Assumptions::default(), 1);
        let load = Load { writers: 1_000, shards: NonZeroU16::MIN, events_per_s: Some(10_000.0), lasts: MINUTE };
        let viral = run(&contention, load, 1).await;
        assert_eq!(viral.arrived, 600_000);
        assert!(viral.rate(&load) < 20.0);
        assert!(viral.latency(0.99) > Duration::from_secs(10), "{:?}", viral.latency(0.99));
        assert!(contention.usage().aborted > viral.counted, "{:?}", contention.usage());
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_run() {
        let (one, _) = outcome(50, 4, Some(100.0)).await;
        let (two, _) = outcome(50, 4, Some(100.0)).await;
        assert_eq!((one.counted, one.came_again, one.latencies), (two.counted, two.came_again, two.latencies));
    }

    #[test]
    fn waits_grow_by_half_from_one_second() {
        assert_eq!(longest_wait(1), Duration::from_secs(1));
        assert_eq!(longest_wait(3), Duration::from_millis(2_250));
    }
}
