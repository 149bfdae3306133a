//! The engine: pullers, lanes, the quarantine and the shutdown order. The only place that spawns tasks; every one of
//! them is joined, and one that ends early ends the worker.
//!
//! Shutdown: stop pulling → seal → flush under a deadline of its own → settle and confirm acks → report what was left
//! to redelivery.

mod check;
mod config;
mod confirm;
mod lanes;
mod pull;
mod watch;

pub use config::{Config, Conflict};
use confirm::{MAX_CONFIRMATIONS, confirm};
use lanes::{Work, run_aside, run_lane};

use crate::ack::Confirmation;
use crate::aggregate::Aggregator;
use crate::flush::{self, Drain, Lane, now};
use crate::held::Held;
use crate::progress::{Counted, Progress};
use crate::quarantine::Quarantine;
use crate::receipt::Receipt;
use crate::source::{Source, SourceError};
use crate::store::{Store, StoreError};
use crate::watchdog::Name;
use std::sync::Arc;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a worker that failed waits for its tasks to end. They end at their next await.
const ABORT_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// Why a worker stopped before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Settings that cannot work together.
    #[error(transparent)]
    Conflict(#[from] Conflict),
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
}

/// Runs a worker until the source ends or `shutdown` is cancelled, and drains it.
///
/// It reads no clock but the runtime's. With [`BatchKeys::Seeded`](flush::BatchKeys) it uses no randomness but what grows
/// from its settings, so that a test can hold both in its hand.
///
/// # Errors
/// When the settings conflict, or the store or the source cannot work. Nothing is acknowledged that is not durable.
pub async fn run(
    source: Arc<dyn Source>,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: CancellationToken,
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
    held: Arc<Held>,
    source: Arc<dyn Source>,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: CancellationToken,
    progress: Arc<Progress>,
) -> Result<Report, EngineError> {
    config.check(&store.limits(), source.max_lease(), source.streams())?;
    let mut engine = Engine::start(held, Arc::clone(&source), store, config, Arc::clone(&progress));
    let ended = engine.until_the_pullers_end(&shutdown).await;
    progress.set_pulling(false);
    let drained = match ended {
        Ok(()) => {
            // What an input that has ended leaves has no deadline until somebody asks to stop, also while it is flushed.
            let (drain, timeout) = (Arc::clone(&engine.drain), engine.drain_timeout);
            let deadline = async {
                shutdown.cancelled().await;
                drain.begin(now() + timeout);
                std::future::pending::<std::convert::Infallible>().await
            };
            tokio::select! {
                biased;
                never = deadline => match never {},
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
    source.close().await;
    engine.give_up_confirming().await;
    outcome?;
    Ok(Report { counted: with_left(progress.counted()), unconfirmed: progress.unconfirmed() })
}

/// At the end every delivery is settled or dropped, so what is not settled was dropped.
fn with_left(counted: Counted) -> Counted {
    let settled = counted.applied + counted.folded + counted.duplicates + counted.stale + counted.poison;
    Counted { left: counted.received.saturating_sub(settled), ..counted }
}

struct Engine {
    work: Arc<Work>,
    stop_pulling: CancellationToken,
    drain: Arc<Drain>,
    drain_timeout: std::time::Duration,
    poison: Option<mpsc::Sender<(Receipt, crate::event::Poison)>>,
    confirmations: Option<mpsc::Sender<Confirmation>>,
    /// Nobody waits for the broker's answers any longer.
    no_more_answers: CancellationToken,
    pullers: JoinSet<Result<(), SourceError>>,
    lanes: JoinSet<Result<(), StoreError>>,
    /// The one lane that takes what waits aside; it is idle while nobody is contended.
    aside: JoinSet<Result<(), StoreError>>,
    quarantine: JoinSet<Result<(), StoreError>>,
    confirmer: JoinSet<()>,
    watch: JoinSet<String>,
}

impl Engine {
    fn start(
        held: Arc<Held>,
        source: Arc<dyn Source>,
        store: Arc<dyn Store>,
        config: Config,
        progress: Arc<Progress>,
    ) -> Self {
        let limits = store.limits();
        let aggregator = Arc::new(Aggregator::new(config.aggregate(&limits)));
        let drain = Arc::new(Drain::default());
        let (poison, poison_in) = mpsc::channel(config.max_held_poison());
        let (confirmations, confirmations_in) = mpsc::channel(MAX_CONFIRMATIONS);
        let work = Arc::new(Work {
            aggregator: Arc::clone(&aggregator),
            ready: Notify::new(),
            no_more: CancellationToken::new(),
            aside: Arc::default(),
            no_more_aside: CancellationToken::new(),
            turn: Mutex::new(()),
        });
        let stop_pulling = CancellationToken::new();
        let quarantine = Quarantine {
            store: Arc::clone(&store),
            source: source.name(),
            progress: Arc::clone(&progress),
            sign: progress.signs().add(Name::Quarantine),
            confirmations: confirmations.clone(),
            backoff: config.flush.backoff,
            retry_deadline: config.flush.retry_deadline,
            drain: Arc::clone(&drain),
        };
        let shared = Arc::new(flush::Shared {
            store,
            aggregator,
            held: Arc::clone(&held),
            progress: Arc::clone(&progress),
            poison: poison.clone(),
            confirmations: confirmations.clone(),
            aside: Arc::clone(&work.aside),
            drain: Arc::clone(&drain),
            config: config.flush,
        });
        let mut engine = Self {
            work,
            stop_pulling,
            drain,
            drain_timeout: config.drain_timeout,
            poison: Some(poison.clone()),
            confirmations: Some(confirmations),
            no_more_answers: CancellationToken::new(),
            pullers: JoinSet::new(),
            lanes: JoinSet::new(),
            aside: JoinSet::new(),
            quarantine: JoinSet::new(),
            confirmer: JoinSet::new(),
            watch: JoinSet::new(),
        };
        let lanes = config.lanes.unwrap_or(limits.lanes);
        let lane = |number, name| {
            let sign = progress.signs().add(name);
            Lane::new(Arc::clone(&shared), sign, config.seed_of("lane", number), config.keys_of(number))
        };
        for number in 0..lanes {
            engine.lanes.spawn(run_lane(lane(number, Name::Lane(number)), Arc::clone(&engine.work)));
        }
        engine.aside.spawn(run_aside(lane(lanes, Name::AsideLane).aside(), Arc::clone(&engine.work)));
        for number in 0..source.streams() {
            let puller = pull::Puller {
                source: Arc::clone(&source),
                number,
                work: Arc::clone(&engine.work),
                held: Arc::clone(&held),
                progress: Arc::clone(&progress),
                sign: progress.signs().add(Name::Stream(number)),
                poison: poison.clone(),
                confirmations: shared.confirmations.clone(),
                order: config.order,
                backoff: config.flush.backoff,
                most: pull::deliveries_a_pull(config.max_held_deliveries, source.streams()),
                stop: engine.stop_pulling.clone(),
            };
            engine.pullers.spawn(puller.run(config.seed_of("puller", number)));
        }
        engine.quarantine.spawn(quarantine.run(poison_in, config.seed_of("quarantine", 0)));
        let watch = watch::Watch { source, work: Arc::clone(&engine.work), progress: Arc::clone(&progress) };
        engine.watch.spawn(watch.run());
        engine.confirmer.spawn(confirm(confirmations_in, progress, engine.no_more_answers.clone()));
        engine
    }

    /// Until every puller has ended, because the source did or because the shutdown stopped them.
    async fn until_the_pullers_end(&mut self, shutdown: &CancellationToken) -> Result<(), EngineError> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !self.stop_pulling.is_cancelled() => self.stop_pulling.cancel(),
                Some(ended) = self.lanes.join_next() => return Err(early(ended, "lane")),
                Some(ended) = self.aside.join_next() => return Err(early(ended, "lane")),
                Some(ended) = self.quarantine.join_next() => return Err(early(ended, "quarantine")),
                Some(ended) = self.watch.join_next() => return Err(standstill(ended)),
                ended = self.pullers.join_next() => match ended {
                    None => return Ok(()),
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => return Err(EngineError::Source(error)),
                    Some(Err(_)) => return Err(EngineError::EndedEarly("puller")),
                },
            }
        }
    }

    /// Flushes what is held. Stages end in the order of the flow: each is closed when nothing before it can send.
    async fn drain(&mut self) -> Result<(), EngineError> {
        self.work.no_more.cancel();
        // What waits aside comes from the other lanes, so its lane ends after them.
        tokio::select! {
            biased;
            Some(ended) = self.watch.join_next() => return Err(standstill(ended)),
            joined = join_lanes(&mut self.lanes) => joined?,
        }
        self.work.no_more_aside.cancel();
        tokio::select! {
            biased;
            Some(ended) = self.watch.join_next() => return Err(standstill(ended)),
            joined = join_lanes(&mut self.aside) => joined?,
        }
        self.watch.shutdown().await;
        self.poison = None;
        match self.quarantine.join_next().await {
            Some(Ok(Err(error))) => return Err(EngineError::Store(error)),
            Some(Err(_)) => return Err(EngineError::EndedEarly("quarantine")),
            Some(Ok(Ok(()))) | None => {}
        }
        self.confirmations = None;
        // One deadline for the flush and for the answers: whoever asked to stop waits no longer than they said. What is
        // settled at the last moment has the time that closing the source takes.
        let deadline = self.drain.deadline().unwrap_or_else(|| now() + self.drain_timeout);
        let _ = tokio::time::timeout_at(deadline.into(), self.confirmer.join_next()).await;
        Ok(())
    }

    /// Acks that the broker has not confirmed by now are its own to repeat: what they stand for is durable.
    async fn give_up_confirming(&mut self) {
        self.no_more_answers.cancel();
        while self.confirmer.join_next().await.is_some() {}
    }

    /// Ends every task and drops what is held, so that it is delivered again. A task that stands still in the middle of a
    /// step cannot be ended, and is not waited for.
    async fn abort(&mut self) {
        self.stop_pulling.cancel();
        let all = self.abort_tasks();
        if tokio::time::timeout(ABORT_WITHIN, all).await.is_err() {
            tracing::error!(within_s = ABORT_WITHIN.as_secs(), "not every task could be ended");
        }
        let nobody = crate::batch::BatchKey::from_random(0);
        while self.work.aggregator.seal(nobody).is_some() {}
        while self.work.aggregator.seal_aside(nobody).is_some() {}
    }

    async fn abort_tasks(&mut self) {
        self.watch.shutdown().await;
        self.pullers.shutdown().await;
        self.lanes.shutdown().await;
        self.aside.shutdown().await;
        self.quarantine.shutdown().await;
        self.confirmer.shutdown().await;
    }
}

/// The watchdog ended, which it does only for one reason.
fn standstill(ended: Result<String, tokio::task::JoinError>) -> EngineError {
    ended.map_or(EngineError::EndedEarly("watchdog"), EngineError::StandsStill)
}

/// Until all of them have ended.
async fn join_lanes(lanes: &mut JoinSet<Result<(), StoreError>>) -> Result<(), EngineError> {
    while let Some(ended) = lanes.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(EngineError::Store(error)),
            Err(_) => return Err(EngineError::EndedEarly("lane")),
        }
    }
    Ok(())
}

/// A task that ended while it should run.
fn early(ended: Result<Result<(), StoreError>, tokio::task::JoinError>, what: &'static str) -> EngineError {
    match ended {
        Ok(Err(error)) => EngineError::Store(error),
        Ok(Ok(())) | Err(_) => EngineError::EndedEarly(what),
    }
}
