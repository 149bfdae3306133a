//! Real engines on one feed, each with a store of its own on the same database.

use crate::feed::{Feed, Worker};
use hotcount::engine::pipeline::{self, Config, EngineError, Report};
use hotcount::engine::progress::{Counted, Progress};
use hotcount::store::Store;
use hotcount::telemetry::Latencies;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The running engines.
pub(crate) struct Workers {
    running: JoinSet<Result<Report, EngineError>>,
    progress: Vec<Arc<Progress>>,
    stop: CancellationToken,
}

/// An engine with one lane that keeps its next batch ready and no more. Nothing is sent twice here, so no likes are
/// remembered.
pub(crate) fn config(batch_writes: usize, shards: u16, seed: u64) -> Config {
    let mut config = Config {
        batch_writes: Some(batch_writes),
        max_held_deliveries: 2 * batch_writes,
        lanes: Some(1),
        recent_likes: Some(0),
        seed,
        ..Config::default()
    };
    config.flush.shards = shards.try_into().expect("a shard or more");
    config
}

impl Workers {
    /// `amount` engines; `make` gives each its store and its settings.
    pub(crate) fn start(amount: usize, feed: &Arc<Feed>, make: impl Fn(u64) -> (Arc<dyn Store>, Config)) -> Self {
        let (mut running, stop) = (JoinSet::new(), CancellationToken::new());
        let progress: Vec<_> = (0..amount).map(|_| Arc::new(Progress::default())).collect();
        for (number, progress) in progress.iter().enumerate() {
            let (store, config) = make(number as u64);
            let source = Arc::new(Worker(Arc::clone(feed)));
            running.spawn(pipeline::run(source, store, config, stop.clone().cancelled_owned(), Arc::clone(progress)));
        }
        Self { running, progress, stop }
    }

    /// Likes that are durable.
    pub(crate) fn applied(&self) -> u64 {
        self.progress.iter().map(|p| p.counted().applied).sum()
    }

    /// From the arrival of a batch's oldest like to its settling, and an answered commit alone.
    pub(crate) fn latencies(&self) -> (Latencies, Latencies) {
        let (settle, commit) = (Latencies::default(), Latencies::default());
        for progress in &self.progress {
            settle.absorb(&progress.settle_latency);
            commit.absorb(&progress.commit_latency);
        }
        (settle, commit)
    }

    /// Drains them all; how their deliveries ended, together.
    pub(crate) async fn stop(mut self) -> Counted {
        self.stop.cancel();
        let mut all = Counted::default();
        while let Some(ended) = self.running.join_next().await {
            let counted = ended.expect("no panic").expect("the engine works").counted;
            all.applied += counted.applied;
            all.left += counted.left;
        }
        all
    }
}
