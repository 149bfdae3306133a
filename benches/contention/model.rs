//! The strategies in the model, each run on a runtime of its own whose clock is paused: seconds there cost what the
//! processor needs for them, and no more.

use crate::feed::{self, Feed};
use crate::row::{Measured, Row, Strategy};
use crate::workers::{self, Workers};
use hotcount::engine::flush::BatchKeys;
use hotcount::lab::firestore_model::guarded::{self, Load as Guarded};
use hotcount::lab::firestore_model::{Assumptions, Contended, Contention, ShardChoice};
use hotcount::lab::load::Shape;
use hotcount::store::memory::Memory;
use hotcount::store::{Counts, Depth, Listing, Store};
use std::sync::Arc;
use std::time::Duration;

/// One run.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) strategy: Strategy,
    pub(crate) writers: usize,
    pub(crate) shards: u16,
    pub(crate) batch_writes: usize,
    pub(crate) assumptions: Assumptions,
    pub(crate) shape: Shape,
    pub(crate) posts: u64,
    /// Whether every post of a batch gets a random shard, instead of the lane's.
    pub(crate) fresh_shards: bool,
    pub(crate) events_per_s: Option<f64>,
    pub(crate) linger: Option<Duration>,
    /// Not measured.
    pub(crate) warm_up: Duration,
    /// Measured.
    pub(crate) lasts: Duration,
    pub(crate) seed: u64,
}

impl Case {
    /// One hot post, everything as the engine does it by default.
    pub(crate) fn hot_post(strategy: Strategy, writers: usize, shards: u16, seed: u64) -> Self {
        let one_document = strategy == Strategy::Aggregated;
        Self {
            strategy,
            writers,
            shards: if matches!(strategy, Strategy::Sharded | Strategy::Hotcount) { shards } else { 1 },
            batch_writes: if strategy.is_guarded() { 2 } else { 500 },
            assumptions: Assumptions::default(),
            shape: Shape::Viral { share: 1.0 },
            posts: 1,
            fresh_shards: false,
            events_per_s: None,
            linger: None,
            // A lane tries a few shards at first, and pairs part within a few commits more. On one document, waits grow
            // until they reach the lock deadline.
            warm_up: Duration::from_secs(if one_document { 60 } else { 2 }),
            // Commits enough that the last one counts for little, however few the writers.
            lasts: Duration::from_secs(if one_document { 60 } else { (40 / writers as u64).max(2) }),
            seed,
        }
    }

    /// Runs it.
    pub(crate) fn run(self) -> Row {
        let measured = on_a_paused_clock(async {
            match self.strategy.is_guarded() {
                true => self.guarded().await,
                false => self.engine(&mut Vec::new()).await,
            }
        });
        Row::new("model", self.strategy, (self.writers, self.shards, self.batch_writes), &measured)
    }

    /// Runs it and measures every part of `parts` on its own.
    pub(crate) fn run_in_parts(self, parts: u32) -> Vec<f64> {
        let mut rates = vec![0.0; parts as usize];
        on_a_paused_clock(async { self.engine(&mut rates).await });
        rates
    }

    async fn guarded(self) -> Measured {
        let contention = Contention::new(self.assumptions, self.seed);
        let load = Guarded {
            writers: u32::try_from(self.writers).expect("so many"),
            shards: self.shards.try_into().expect("a shard or more"),
            events_per_s: self.events_per_s,
            // Six times the lock deadline.
            lasts: Duration::from_secs(120),
        };
        let outcome = guarded::run(&contention, load, self.seed).await;
        let usage = contention.usage();
        Measured {
            seconds: load.lasts.as_secs_f64(),
            counted: outcome.counted,
            p50: outcome.latency(0.5),
            p99: outcome.latency(0.99),
            tried: usage.tried,
            aborted: usage.aborted,
            writes: usage.writes,
            reads: usage.reads,
        }
    }

    async fn engine(self, rates: &mut [f64]) -> Measured {
        let contention = Contention::new(self.assumptions, self.seed);
        let memory = Arc::new(Memory::default());
        let load = feed::load(self.shape, self.posts, self.seed);
        let feed = Feed::new(load, self.events_per_s);
        let choice = if self.fresh_shards { ShardChoice::FreshPerPost(self.shards) } else { ShardChoice::OfTheLane };
        let workers = Workers::start(self.writers, &feed, |number| {
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(number);
            let store = Contended::new(Arc::clone(&memory), Arc::clone(&contention), choice, seed);
            let mut config = workers::config(self.batch_writes, self.shards, seed);
            // Every worker has a seed of its own, so no two share a key, and the run replays.
            config.batch_keys = BatchKeys::Seeded(seed);
            config.linger = self.linger.unwrap_or(config.linger);
            (Arc::new(store) as Arc<dyn Store>, config)
        });
        tokio::time::sleep(self.warm_up).await;
        let (began, before) = (workers.applied(), contention.usage());
        let mut so_far = began;
        let part = self.lasts / u32::try_from(rates.len().max(1)).expect("a few");
        for rate in rates.iter_mut() {
            tokio::time::sleep(part).await;
            let now = workers.applied();
            *rate = (now - so_far) as f64 / part.as_secs_f64();
            so_far = now;
        }
        if rates.is_empty() {
            tokio::time::sleep(self.lasts).await;
        }
        let (counted, usage) = (workers.applied() - began, contention.usage().since(&before));
        let (settle, _) = workers.latencies();
        // What is left has not committed here: a commit that is broken off in the model writes nothing.
        check(&*memory, workers.stop().await.applied).await;
        Measured {
            seconds: self.lasts.as_secs_f64(),
            counted,
            p50: settle.quantile(0.5),
            p99: settle.quantile(0.99),
            tried: usage.tried,
            aborted: usage.aborted,
            writes: usage.writes,
            reads: usage.reads,
        }
    }
}

/// A number that is not right is worth nothing, however large: nothing drifts, and everything is counted.
async fn check(store: &dyn Counts, applied: u64) {
    let posts = store.posts(Listing::Members, None, usize::MAX).await.expect("memory can be read");
    let mut counted = 0;
    for post in &posts {
        let tally = store.tally(post, Depth::ShardsAndMembers).await.expect("memory can be read");
        assert_eq!(tally.drift(), Some(0), "{post}");
        counted += tally.count;
    }
    assert_eq!(counted, i64::try_from(applied).expect("that many"), "every like that was applied is counted");
}

fn on_a_paused_clock<T>(run: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(run)
}
