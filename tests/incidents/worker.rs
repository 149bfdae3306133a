//! A worker in this process, and what may be asked about it.

use super::*;
use hotcount::engine::pipeline::{self, EngineError, Report};
use hotcount::engine::progress::Progress;
use hotcount::read::reader;
use tokio_util::sync::CancellationToken;

/// How often something is looked at. On a paused clock it costs nothing.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long something may take to become so on a paused clock.
const WITHIN: Duration = Duration::from_secs(3_600);

/// The same on the clock of this machine: several leases, and more than a busy machine needs.
const SOON: Duration = Duration::from_secs(180);

pub(crate) struct Worker {
    pub(crate) progress: Arc<Progress>,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<Result<Report, EngineError>>,
}

impl Worker {
    pub(crate) fn start(source: impl Source + 'static, store: Arc<dyn Store>, config: Config) -> Self {
        let (shutdown, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
        let engine =
            pipeline::run(Arc::new(source), store, config, shutdown.clone().cancelled_owned(), Arc::clone(&progress));
        Self { progress, shutdown, running: tokio::spawn(engine) }
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> Report {
        self.running.await.expect("no panic").expect("the engine works")
    }

    /// Drains it.
    pub(crate) async fn stop(self) -> Report {
        self.shutdown.cancel();
        self.ended().await
    }
}

/// Waits until something is so, on a paused clock.
pub(crate) async fn until(what: &str, is_so: impl FnMut() -> bool) {
    wait(what, WITHIN, is_so).await;
}

/// Waits until something is so, on the clock of this machine.
pub(crate) async fn soon(what: &str, is_so: impl FnMut() -> bool) {
    wait(what, SOON, is_so).await;
}

async fn wait(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < within, "never: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The count of a post, from its shards and from its members.
pub(crate) async fn count(store: &dyn Counts, post: &str) -> (i64, u64) {
    let tally = reader::tally(store, post, Depth::ShardsAndMembers).await.expect("it can be read");
    (tally.count, tally.members.expect("asked for"))
}
