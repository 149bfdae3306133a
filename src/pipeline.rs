//! The engine: pullers, lanes, the quarantine and the shutdown order. The only place that spawns tasks; every one of
//! them is joined, and one that ends early ends the worker.
//!
//! Shutdown: stop pulling → seal → flush under a deadline of its own → settle and confirm acks → report what was left
//! to redelivery.

mod config;
mod pull;

pub use config::{Config, Conflict};

use crate::ack::Confirmation;
use crate::aggregate::{Aggregator, Budget, Sealed};
use crate::flush::{self, Drain, Lane, now};
use crate::progress::{Counted, Progress};
use crate::quarantine::Quarantine;
use crate::receipt::{Held, Receipt};
use crate::source::{Source, SourceError};
use crate::store::{Store, StoreError};
use crate::telemetry::Metric;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Acknowledgements that may wait for the broker's answer at once; then settling waits too.
const MAX_CONFIRMATIONS: usize = 100_000;

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
    config.check(&store.limits(), source.max_lease(), source.streams())?;
    let mut engine = Engine::start(Arc::clone(&source), store, config, Arc::clone(&progress));
    let ended = engine.until_the_pullers_end(&shutdown).await;
    progress.set_pulling(false);
    let drained = match ended {
        Ok(()) => engine.drain(shutdown.is_cancelled()).await,
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

/// What pullers and lanes share beside the buffer.
struct Work {
    aggregator: Arc<Aggregator<Receipt>>,
    /// Something may be ready to be sealed.
    ready: Notify,
    /// No more likes will come: what waits is sealed at once.
    no_more: CancellationToken,
    /// Something waits aside.
    aside: Arc<Notify>,
    /// Nothing more will be put aside.
    no_more_aside: CancellationToken,
    /// One idle lane at a time waits for the next batch; the others wait for their turn.
    turn: Mutex<()>,
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
}

impl Engine {
    fn start(source: Arc<dyn Source>, store: Arc<dyn Store>, config: Config, progress: Arc<Progress>) -> Self {
        let limits = store.limits();
        let aggregator = Arc::new(Aggregator::new(config.aggregate(&limits)));
        let held = Held::new(Budget::new(config.max_held_deliveries, config.max_held_bytes));
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
        };
        let lanes = config.lanes.unwrap_or(limits.lanes);
        let lane = |number| Lane::new(Arc::clone(&shared), config.seed_of("lane", number), config.keys_of(number));
        for number in 0..lanes {
            engine.lanes.spawn(run_lane(lane(number), Arc::clone(&engine.work)));
        }
        engine.aside.spawn(run_aside(lane(lanes).aside(), Arc::clone(&engine.work)));
        for number in 0..source.streams() {
            let puller = pull::Puller {
                source: Arc::clone(&source),
                number,
                work: Arc::clone(&engine.work),
                held: Arc::clone(&held),
                progress: Arc::clone(&progress),
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
    async fn drain(&mut self, asked_to_stop: bool) -> Result<(), EngineError> {
        if asked_to_stop {
            self.drain.begin(now() + self.drain_timeout);
        }
        self.work.no_more.cancel();
        // What waits aside comes from the other lanes, so its lane ends after them.
        join_lanes(&mut self.lanes).await?;
        self.work.no_more_aside.cancel();
        join_lanes(&mut self.aside).await?;
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

    /// Ends every task and drops what is held, so that it is delivered again.
    async fn abort(&mut self) {
        self.stop_pulling.cancel();
        self.pullers.shutdown().await;
        self.lanes.shutdown().await;
        self.aside.shutdown().await;
        self.quarantine.shutdown().await;
        self.confirmer.shutdown().await;
        let nobody = crate::batch::BatchKey::from_random(0);
        while self.work.aggregator.seal(nobody).is_some() {}
        while self.work.aggregator.seal_aside(nobody).is_some() {}
    }
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

async fn run_lane(mut lane: Lane, work: Arc<Work>) -> Result<(), StoreError> {
    loop {
        let sealed = {
            let _turn = work.turn.lock().await;
            work.next_batch(&mut lane).await
        };
        match sealed {
            Some(sealed) => lane.flush(sealed).await?,
            None => return Ok(()),
        }
    }
}

async fn run_aside(mut lane: Lane, work: Arc<Work>) -> Result<(), StoreError> {
    while let Some(sealed) = work.next_aside(&mut lane).await {
        lane.flush(sealed).await?;
    }
    Ok(())
}

impl Work {
    /// What waits aside, at once: while its lane is busy, more of it folds. `None` when nothing more will come.
    async fn next_aside(&self, lane: &mut Lane) -> Option<Sealed<Receipt>> {
        loop {
            // Registered before the look, so that what is put aside in between is not missed.
            let more = self.aside.notified();
            if let Some(sealed) = self.aggregator.seal_aside(lane.new_key()) {
                return Some(sealed);
            }
            if self.no_more_aside.is_cancelled() {
                return None;
            }
            tokio::select! {
                biased;
                () = more => {}
                () = self.no_more_aside.cancelled() => {}
            }
        }
    }

    /// The oldest likes that nobody else keeps writing.
    fn seal(&self, lane: &mut Lane) -> Option<Sealed<Receipt>> {
        self.aggregator.forget_contended(now());
        let sealed = self.aggregator.seal(lane.new_key());
        if self.aggregator.waits_aside() {
            self.aside.notify_one();
        }
        sealed
    }

    /// The next batch, when it is full or due; at the end whatever waits, then `None`.
    async fn next_batch(&self, lane: &mut Lane) -> Option<Sealed<Receipt>> {
        loop {
            // Registered before the look, so that a like that arrives in between is not missed.
            let ready = self.ready.notified();
            if self.no_more.is_cancelled() {
                return self.seal(lane);
            }
            let due_at = self.aggregator.due_at();
            let wanted = self.aggregator.is_full() || due_at.is_some_and(|due| due <= now());
            if wanted && let Some(sealed) = self.seal(lane) {
                Metric::Buffered.set(self.aggregator.len());
                return Some(sealed);
            }
            tokio::select! {
                biased;
                () = ready => {}
                () = self.no_more.cancelled() => {}
                () = until(due_at) => {}
            }
        }
    }
}

async fn until(due_at: Option<Instant>) {
    match due_at {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Awaits the broker's answers, many at a time. A failure changes no count: the effect is durable. What is not answered
/// when nobody waits any longer was not confirmed.
async fn confirm(mut incoming: mpsc::Receiver<Confirmation>, progress: Arc<Progress>, no_more: CancellationToken) {
    let mut waiting = FuturesUnordered::new();
    let mut open = true;
    while open || !waiting.is_empty() {
        tokio::select! {
            biased;
            Some(answer) = waiting.next() => if let Err(error) = answer {
                progress.unconfirmed_acks(1);
                tracing::debug!("{error}");
            },
            confirmation = incoming.recv(), if open && waiting.len() < MAX_CONFIRMATIONS => match confirmation {
                Some(confirmation) => waiting.push(confirmation),
                None => open = false,
            },
            () = no_more.cancelled() => {
                progress.unconfirmed_acks(waiting.len() + incoming.len());
                return;
            }
        }
    }
}
