//! The tasks of one worker: which there are, in which order they end, and what becomes of what they hold.

use super::confirm::{MAX_CONFIRMATIONS, confirm};
use super::lanes::{Work, run_contended, run_lane};
use super::{Config, EngineError, pull, watch};
use crate::engine::aggregate::Aggregator;
use crate::engine::flush::{self, ASIDE_LANES, Drain, Health, Lane, now};
use crate::engine::progress::Progress;
use crate::engine::quarantine::Quarantine;
use crate::engine::receipt::Receipt;
use crate::engine::watchdog::Name;
use crate::like::event::Poison;
use crate::source::ack::Confirmation;
use crate::source::in_flight::{HeldBytes, InFlight};
use crate::source::{Source, SourceError};
use crate::store::{Limits, Store, StoreError};
use futures::FutureExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a worker that failed waits for its tasks to end. They end at their next await.
const ABORT_WITHIN: Duration = Duration::from_secs(10);

/// The part of a drain's time that is kept for what comes after the flush, a fifth, and its most: answers of the broker, the
/// source's end, the store's end.
const CLOSING: u32 = 5;
const CLOSING_MOST: Duration = Duration::from_secs(5);

/// What a worker works with.
pub(super) struct Parts {
    pub(super) source: Arc<dyn Source>,
    pub(super) store: Arc<dyn Store>,
    pub(super) health: Arc<Health>,
    pub(super) held: Arc<InFlight>,
    pub(super) progress: Arc<Progress>,
    pub(super) config: Config,
}

/// When a worker ends that somebody asks to stop: known from then on, one deadline for all of it.
#[derive(Clone)]
pub(super) struct End {
    drain: Arc<Drain>,
    timeout: Duration,
}

impl End {
    fn closing(&self) -> Duration {
        (self.timeout / CLOSING).min(CLOSING_MOST)
    }

    /// Somebody asks. Only the first time counts.
    pub(super) fn begin(&self) {
        if self.drain.deadline().is_some() {
            return;
        }
        self.drain.begin(now() + self.timeout - self.closing());
        tracing::info!(
            flush_within_s = (self.timeout - self.closing()).as_secs_f64(),
            end_within_s = self.timeout.as_secs_f64(),
            "stopping: what is held is committed and acknowledged, and what is left then comes back"
        );
    }

    fn at(&self) -> Option<Instant> {
        self.drain.deadline().map(|deadline| deadline + self.closing())
    }
}

pub(super) struct Engine {
    work: Arc<Work>,
    end: End,
    stop_pulling: CancellationToken,
    /// Nobody needs to know any longer whether the store works.
    stop_health: CancellationToken,
    poison: Option<mpsc::Sender<(Receipt, Poison)>>,
    confirmations: Option<mpsc::Sender<Confirmation>>,
    /// Nobody waits for the broker's answers any longer.
    no_more_answers: CancellationToken,
    pullers: JoinSet<Result<(), SourceError>>,
    lanes: JoinSet<()>,
    /// The lanes that serve what waits aside; they are idle while nothing does.
    contended: JoinSet<()>,
    quarantine: JoinSet<()>,
    health: JoinSet<Result<(), StoreError>>,
    confirmer: JoinSet<()>,
    watch: JoinSet<String>,
    /// What the recent likes take of the budget.
    _recent: Option<HeldBytes>,
}

impl Parts {
    /// What the lanes share.
    fn shared(
        &self,
        work: &Work,
        drain: &Arc<Drain>,
        poison: mpsc::Sender<(Receipt, Poison)>,
        confirmations: mpsc::Sender<Confirmation>,
    ) -> flush::Shared {
        flush::Shared {
            store: Arc::clone(&self.store),
            health: Arc::clone(&self.health),
            aggregator: Arc::clone(&work.aggregator),
            held: Arc::clone(&self.held),
            progress: Arc::clone(&self.progress),
            poison,
            confirmations,
            waiting: Arc::clone(&work.waiting),
            drain: Arc::clone(drain),
            max_leaving: self.config.a_share(),
            recent: flush::Recent::default(),
            config: self.config.flush,
            retry_deadline: self.config.flush.retry_deadline(self.source.max_lease()),
        }
    }
}

impl Engine {
    pub(super) fn start(parts: Parts) -> Self {
        let Parts { source, store, held, progress, config, .. } = &parts;
        let limits = store.limits();
        let mut aggregate = config.aggregate(&limits);
        // Nothing is held yet, so there is room.
        let recent = (aggregate.recent_likes > 0).then(|| held.take(aggregate.recent_bytes).now_or_never()).flatten();
        if recent.is_none() {
            aggregate.recent_likes = 0;
        }
        let drain = Arc::new(Drain::default());
        let (poison, poison_in) = mpsc::channel(config.max_poison_on_its_way());
        let (confirmations, confirmations_in) = mpsc::channel(MAX_CONFIRMATIONS);
        let work =
            Arc::new(Work::new(Arc::new(Aggregator::new(aggregate)), Arc::clone(held), source.max_outstanding()));
        let shared = Arc::new(parts.shared(&work, &drain, poison.clone(), confirmations.clone()));
        let mut engine = Self {
            work,
            end: End { drain, timeout: config.drain_timeout },
            stop_pulling: CancellationToken::new(),
            stop_health: CancellationToken::new(),
            poison: Some(poison),
            confirmations: Some(confirmations),
            no_more_answers: CancellationToken::new(),
            pullers: JoinSet::new(),
            lanes: JoinSet::new(),
            contended: JoinSet::new(),
            quarantine: JoinSet::new(),
            health: JoinSet::new(),
            confirmer: JoinSet::new(),
            watch: JoinSet::new(),
            _recent: recent,
        };
        engine.spawn_health(&parts);
        engine.spawn_lanes(&parts, &shared, &limits);
        engine.spawn_pullers(&parts, &shared);
        engine.spawn_quarantine(&parts, &shared, poison_in);
        engine.spawn_watch(&parts);
        engine.confirmer.spawn(confirm(confirmations_in, Arc::clone(progress), engine.no_more_answers.clone()));
        engine
    }

    fn spawn_health(&mut self, Parts { health, config, .. }: &Parts) {
        let (health, stop) = (Arc::clone(health), self.stop_health.clone());
        let (backoff, seed) = (config.flush.backoff, config.seed_of("health", 0));
        self.health.spawn(async move { health.watch(backoff, seed, stop).await });
    }

    fn spawn_lanes(&mut self, Parts { progress, config, .. }: &Parts, shared: &Arc<flush::Shared>, limits: &Limits) {
        let lanes = config.lanes.unwrap_or(limits.lanes);
        let lane = |number, name| {
            let heartbeat = progress.heartbeats().add(name);
            Lane::new(Arc::clone(shared), heartbeat, config.seed_of("lane", number), config.keys_of(number))
        };
        for number in 0..lanes {
            self.lanes.spawn(run_lane(lane(number, Name::Lane(number)), Arc::clone(&self.work)));
        }
        for number in 0..ASIDE_LANES {
            self.contended
                .spawn(run_contended(lane(lanes + number, Name::ContendedLane(number)), Arc::clone(&self.work)));
        }
    }

    fn spawn_pullers(&mut self, Parts { source, held, progress, config, .. }: &Parts, shared: &flush::Shared) {
        for number in 0..source.streams() {
            let puller = pull::Puller {
                source: Arc::clone(source),
                number,
                work: Arc::clone(&self.work),
                held: Arc::clone(held),
                progress: Arc::clone(progress),
                heartbeat: progress.heartbeats().add(Name::Stream(number)),
                poison: shared.poison.clone(),
                confirmations: shared.confirmations.clone(),
                order: config.order,
                backoff: config.flush.backoff,
                most: pull::deliveries_a_pull(config.max_held_deliveries, source.streams()),
                stop: self.stop_pulling.clone(),
            };
            self.pullers.spawn(puller.run(config.seed_of("puller", number)));
        }
    }

    fn spawn_quarantine(
        &mut self,
        Parts { source, store, health, progress, config, .. }: &Parts,
        shared: &flush::Shared,
        poison: mpsc::Receiver<(Receipt, Poison)>,
    ) {
        let quarantine = Quarantine {
            store: Arc::clone(store),
            health: Arc::clone(health),
            source: source.name(),
            progress: Arc::clone(progress),
            heartbeat: progress.heartbeats().add(Name::Quarantine),
            confirmations: shared.confirmations.clone(),
            backoff: config.flush.backoff,
            retry_deadline: shared.retry_deadline,
            drain: Arc::clone(&self.end.drain),
            share: config.a_share(),
        };
        self.quarantine.spawn(quarantine.run(poison, config.seed_of("quarantine", 0)));
    }

    fn spawn_watch(&mut self, Parts { source, progress, .. }: &Parts) {
        let (source, work, progress) = (Arc::clone(source), Arc::clone(&self.work), Arc::clone(progress));
        self.watch.spawn(watch::Watch { source, work, progress }.run());
    }

    /// Until every puller has ended, because the source did or because the shutdown stopped them.
    pub(super) async fn until_the_pullers_end(&mut self, shutdown: &CancellationToken) -> Result<(), EngineError> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !self.stop_pulling.is_cancelled() => {
                    self.end.begin();
                    self.stop_pulling.cancel();
                }
                Some(_) = self.lanes.join_next() => return Err(EngineError::EndedEarly("lane")),
                Some(_) = self.contended.join_next() => return Err(EngineError::EndedEarly("lane")),
                Some(_) = self.quarantine.join_next() => return Err(EngineError::EndedEarly("quarantine")),
                error = ended_badly(&mut self.watch, &mut self.health) => return Err(error),
                ended = self.pullers.join_next() => match ended {
                    None => return Ok(()),
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => return Err(EngineError::Source(error)),
                    Some(Err(_)) => return Err(EngineError::EndedEarly("puller")),
                },
            }
        }
    }

    /// The end of this worker, for whoever hears that it is asked to stop.
    pub(super) fn end(&self) -> End {
        self.end.clone()
    }

    /// Flushes what is held. Stages end in the order of the flow: each is closed when nothing before it can send.
    pub(super) async fn drain(&mut self) -> Result<(), EngineError> {
        self.work.no_more.cancel();
        // What waits aside comes from the other lanes, so its lanes end after them.
        tokio::select! {
            biased;
            error = ended_badly(&mut self.watch, &mut self.health) => return Err(error),
            joined = join_all(&mut self.lanes, "lane") => joined?,
        }
        self.work.no_more_contended.cancel();
        self.work.waiting.drain();
        tokio::select! {
            biased;
            error = ended_badly(&mut self.watch, &mut self.health) => return Err(error),
            joined = join_all(&mut self.contended, "lane") => joined?,
        }
        self.watch.shutdown().await;
        self.poison = None;
        tokio::select! {
            biased;
            error = ended_badly(&mut self.watch, &mut self.health) => return Err(error),
            joined = join_all(&mut self.quarantine, "quarantine") => joined?,
        }
        self.stop_health.cancel();
        while self.health.join_next().await.is_some() {}
        self.confirmations = None;
        let deadline = self.end.drain.deadline().unwrap_or_else(|| now() + self.end.timeout);
        let _ = tokio::time::timeout_at(deadline.into(), self.confirmer.join_next()).await;
        Ok(())
    }

    /// Closes the source, and waits for it no longer than whoever asked the worker to stop was told. Acks that the broker has
    /// not confirmed by then are its own to repeat: what they stand for is durable.
    pub(super) async fn close(&mut self, source: &dyn Source) {
        match self.ends_by() {
            None => source.close().await,
            Some(ends_by) => {
                if tokio::time::timeout_at(ends_by.into(), source.close()).await.is_err() {
                    tracing::warn!("the source was not closed in time; what it did not acknowledge comes back");
                }
            }
        }
        self.no_more_answers.cancel();
        while self.confirmer.join_next().await.is_some() {}
    }

    /// When all must have ended, where somebody asked for it.
    pub(super) fn ends_by(&self) -> Option<Instant> {
        self.end.at()
    }

    /// Ends every task and drops what is held, so that it is delivered again. A task that stands still in the middle of a
    /// step cannot be ended, and is not waited for.
    pub(super) async fn abort(&mut self) {
        self.stop_pulling.cancel();
        let all = self.abort_tasks();
        if tokio::time::timeout(ABORT_WITHIN, all).await.is_err() {
            tracing::error!(within_s = ABORT_WITHIN.as_secs(), "not every task could be ended");
        }
        self.work.waiting.clear();
        let nobody = crate::like::batch::BatchKey::from_random(0);
        while self.work.aggregator.seal(nobody).is_some() {}
        while self.work.aggregator.seal_contended(nobody).is_some() {}
    }

    async fn abort_tasks(&mut self) {
        self.watch.shutdown().await;
        self.pullers.shutdown().await;
        self.lanes.shutdown().await;
        self.contended.shutdown().await;
        self.quarantine.shutdown().await;
        self.health.shutdown().await;
        self.confirmer.shutdown().await;
    }
}

/// The watchdog or the watch of the store ends, which each does only for one reason.
async fn ended_badly(watch: &mut JoinSet<String>, health: &mut JoinSet<Result<(), StoreError>>) -> EngineError {
    tokio::select! {
        biased;
        Some(ended) = watch.join_next() => ended.map_or(EngineError::EndedEarly("watchdog"), EngineError::StandsStill),
        Some(ended) = health.join_next() => match ended {
            Ok(Err(error)) => EngineError::Store(error),
            Ok(Ok(())) | Err(_) => EngineError::EndedEarly("watch of the store"),
        },
        else => std::future::pending().await,
    }
}

/// Until all of them have ended.
async fn join_all(tasks: &mut JoinSet<()>, what: &'static str) -> Result<(), EngineError> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|_| EngineError::EndedEarly(what))?;
    }
    Ok(())
}
