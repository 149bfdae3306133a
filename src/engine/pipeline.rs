//! The engine: pullers, lanes, the quarantine and the shutdown order. The only place that spawns tasks; every one of
//! them is joined, and one that ends early ends the worker.
//!
//! Shutdown: stop pulling → seal → flush under a deadline of its own → settle and confirm acks → report what was left
//! to redelivery.

mod agree;
mod check;
mod config;
mod config_error;
mod confirm;
mod engine;
mod lanes;
mod pull;
mod watch;

pub use config::Config;
pub use config_error::{ConfigError, Setting};
use engine::{Engine, Parts};
use lanes::Work;

use crate::engine::flush::Health;
use crate::engine::progress::{Counted, Progress};
use crate::source::in_flight::InFlight;
use crate::source::{Source, SourceError};
use crate::store::{Store, StoreError};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Why a worker stopped before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Settings that cannot work together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What must agree in the whole fleet does not; the text names both values.
    #[error("{0}")]
    Settings(ConfigError),
    /// The store cannot work.
    #[error("the store cannot work: {0}")]
    Store(#[source] StoreError),
    /// The source cannot work.
    #[error("the source cannot work: {0}")]
    Source(#[source] SourceError),
    /// Something has not moved for so long that it never will. What is held is left to redelivery.
    #[error("the worker stands still: {0}; it ends, so that whoever supervises it starts another")]
    StandsStill(String),
    /// A bug: a task of the worker ended early.
    #[error("the worker's {0} ended early; this is a bug")]
    EndedEarly(&'static str),
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How the deliveries ended; `left` is what is left to redelivery.
    pub counted: Counted,
    /// Acknowledgements that the broker did not confirm. Their deliveries may come back and change nothing.
    pub unconfirmed: u64,
    /// When whoever asked the worker to stop was told that all of it ends, the store's close included; `None` where nobody
    /// asked.
    pub ends_by: Option<Instant>,
}

/// Runs a worker until the source ends or `shutdown` completes, and drains it. Dropping the future ends it without a drain:
/// what was not settled is delivered again.
///
/// It reads no clock but the runtime's. With [`BatchKeys::Seeded`](crate::engine::flush::BatchKeys) it uses no randomness but what grows
/// from its settings, so that a test can hold both in its hand.
///
/// # Errors
/// When the settings conflict, or the store or the source cannot work. Nothing is acknowledged that is not durable.
pub async fn run(
    source: Arc<dyn Source>,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: impl Future<Output = ()>,
    progress: Arc<Progress>,
) -> Result<Report, EngineError> {
    let held = config.held();
    run_beside(held, source, store, config, shutdown, progress).await
}

/// As [`run`], with a budget that others share: a source that is fed over HTTP, and whoever reads pages of the store.
///
/// # Errors
/// As [`run`].
pub async fn run_beside(
    held: Arc<InFlight>,
    source: Arc<dyn Source>,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: impl Future<Output = ()>,
    progress: Arc<Progress>,
) -> Result<Report, EngineError> {
    let asked = CancellationToken::new();
    let mut worker = pin!(run_until(held, source, store, config, asked.clone(), progress));
    tokio::select! {
        // First, so that a shutdown that was asked for before the start pulls nothing.
        biased;
        () = shutdown => asked.cancel(),
        report = &mut worker => return report,
    }
    worker.await
}

async fn run_until(
    held: Arc<InFlight>,
    source: Arc<dyn Source>,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: CancellationToken,
    progress: Arc<Progress>,
) -> Result<Report, EngineError> {
    config.check(&store.limits(), source.max_lease(), source.streams())?;
    let health = Arc::new(Health::new(Arc::clone(&store), Arc::clone(&progress), config.keys_of_probes()));
    let ours = agree::settings(config.order);
    let asking = (config.flush.backoff, config.seed_of("settings", 0));
    if !agree::agree(&*store, (&health, &progress), &ours, asking, &shutdown).await? {
        source.close().await;
        return Ok(Report { counted: progress.counted(), unconfirmed: 0, ends_by: None });
    }
    let parts = Parts { source: Arc::clone(&source), store, health, held, progress: Arc::clone(&progress), config };
    let mut engine = Engine::start(parts);
    let ended = engine.until_the_pullers_end(&shutdown).await;
    progress.set_pulling(false);
    let drained = match ended {
        Ok(()) => {
            // What an input that has ended leaves has no deadline until somebody asks to stop, also while it is flushed.
            let end = engine.end();
            let asked = async {
                shutdown.cancelled().await;
                end.begin();
                std::future::pending::<std::convert::Infallible>().await
            };
            tokio::select! {
                biased;
                never = asked => match never {},
                drained = engine.drain() => drained,
            }
        }
        Err(error) => Err(error),
    };
    let outcome = match drained {
        Ok(()) => Ok(()),
        Err(error) => {
            engine.abort().await;
            Err(error)
        }
    };
    engine.close(&*source).await;
    outcome?;
    let (counted, unconfirmed) = (with_left(progress.counted()), progress.unconfirmed());
    Ok(Report { counted, unconfirmed, ends_by: engine.ends_by() })
}

/// At the end every delivery is settled or dropped, so what is not settled was dropped.
fn with_left(counted: Counted) -> Counted {
    Counted { left: counted.received.saturating_sub(counted.settled()), ..counted }
}
