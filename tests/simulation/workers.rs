//! The workers of a run: each slot starts one after the other, as an orchestrator does, and something happens to them.

use crate::auditor::Auditor;
use crate::broker::Broker;
use crate::life::Life;
use crate::seen::Kind;
use crate::stores::Backend;
use crate::subscription::Subscription;
use crate::world::{World, locked};
use hotcount::common::backoff::Backoff;
use hotcount::engine::flush::BatchKeys;
use hotcount::engine::pipeline::{self, Config, EngineError, Report};
use hotcount::engine::progress::{Counted, Progress};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

/// The workers that live now, and what they work with.
pub(crate) struct Crew {
    pub(crate) world: Arc<World>,
    pub(crate) broker: Arc<Broker>,
    pub(crate) auditor: Arc<Auditor>,
    pub(crate) backend: Backend,
    lives: Mutex<Vec<Option<Arc<Life>>>>,
    closing: AtomicBool,
    gone: AtomicUsize,
}

type Ended = Result<Result<Report, EngineError>, JoinError>;

impl Crew {
    pub(crate) fn new(world: &Arc<World>, broker: &Arc<Broker>, auditor: &Arc<Auditor>, backend: Backend) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            broker: Arc::clone(broker),
            auditor: Arc::clone(auditor),
            backend,
            lives: Mutex::new(vec![None; world.plan.workers]),
            closing: AtomicBool::new(false),
            gone: AtomicUsize::new(0),
        })
    }

    pub(crate) fn lives(&self) -> Vec<Arc<Life>> {
        locked(&self.lives).iter().flatten().cloned().collect()
    }

    /// Asks every worker to stop, for good.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.lives().iter().for_each(|life| life.ask_to_stop());
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed) == self.world.plan.workers
    }

    /// Lets a worker that stands still go on.
    pub(crate) fn go_on(&self, life: &Life) {
        for sent in life.go_on() {
            self.broker.receive(sent);
        }
    }

    /// One worker after the other.
    pub(crate) async fn fill_slot(self: Arc<Self>, slot: usize) {
        let mut number = 0;
        while !self.closing.load(Ordering::Relaxed) {
            number += 1;
            let config = self.draw_config();
            let shards = config.flush.shards;
            if self.lives().iter().any(|other| other.slot != slot && other.config.flush.shards != shards) {
                self.world.note(Kind::TwoShardCounts);
            }
            let life = Life::new(&self.world, slot, number, config);
            locked(&self.lives)[slot] = Some(Arc::clone(&life));
            self.world.note(Kind::Born);
            self.world.say(format_args!("{life} starts, with {shards} shards"));
            self.live(&life).await;
            locked(&self.lives)[slot] = None;
            if !self.closing.load(Ordering::Relaxed) {
                tokio::time::sleep(self.world.millis(0..=10_000)).await;
            }
        }
        self.gone.fetch_add(1, Ordering::Relaxed);
    }

    /// Settings as different as two deployments can have them.
    fn draw_config(&self) -> Config {
        let world = &self.world;
        let batch_writes = world.between(3..=20) as usize;
        let mut config = Config {
            order: world.plan.order,
            max_held_deliveries: batch_writes + world.below(50),
            max_held_bytes: world.one_of(&[3_000, 20_000, 1 << 20]),
            batch_writes: Some(batch_writes),
            linger: world.millis(1..=world.one_of(&[5, 200, 3_000])),
            recent_likes: Some(world.one_of(&[0, 6, 200])),
            lanes: Some(world.between(1..=4) as usize),
            drain_timeout: world.millis(100..=25_000),
            seed: world.between(0..=u64::MAX),
            batch_keys: BatchKeys::Seeded(world.between(0..=u64::MAX)),
            ..Config::default()
        };
        // A longer linger than a drain is refused.
        config.drain_timeout = config.drain_timeout.max(config.linger);
        config.flush.shards = NonZeroU16::new(world.one_of(&[64, 16])).expect("neither is 0");
        config.flush.backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(30) };
        config.flush.retry_deadline = Some(world.plan.retry_deadline());
        config
    }

    async fn live(&self, life: &Arc<Life>) {
        let (shutdown, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
        let source = Arc::new(Subscription { broker: Arc::clone(&self.broker), life: Arc::clone(life) });
        let store = self.backend.store(life, &self.auditor);
        let engine = pipeline::run(
            source,
            store,
            life.config.clone(),
            shutdown.clone().cancelled_owned(),
            Arc::clone(&progress),
        );
        let mut running = tokio::spawn(engine);
        tokio::select! {
            biased;
            () = life.death() => {
                // From outside it is gone already; now its future is dropped.
                running.abort();
                let _ = running.await;
                return;
            }
            ended = &mut running => return self.ended(life, ended, &progress),
            () = life.request_to_stop() => {}
        }
        self.world.say(format_args!("{life} is asked to stop, holding {}", life.numbers().held));
        shutdown.cancel();
        let asked_at = self.world.now();
        tokio::select! {
            biased;
            () = life.death() => {
                running.abort();
                let _ = running.await;
            }
            ended = &mut running => {
                let took = self.world.now() - asked_at;
                if !life.stood_still() && took > life.config.drain_timeout + Duration::from_millis(10) {
                    self.world.violated(format_args!("{life} took {took:?} to stop: {:?}", life.config.drain_timeout));
                }
                self.ended(life, ended, &progress);
            }
        }
    }

    /// A worker that ended by itself: its numbers add up, and it holds nothing.
    fn ended(&self, life: &Life, ended: Ended, progress: &Progress) {
        let numbers = life.numbers();
        let says = |what: std::fmt::Arguments<'_>| self.world.violated(format_args!("{life} {what}: {numbers:?}"));
        if numbers.held > 0 {
            says(format_args!("has ended and holds deliveries"));
        }
        match ended {
            Err(panic) => says(format_args!("panicked: {panic}")),
            Ok(Ok(report)) => {
                self.world.say(format_args!("{life} has stopped: {:?}", report.counted));
                if !life.is_asked_to_stop() {
                    says(format_args!("stopped by itself"));
                }
                let Counted { received, applied, folded, duplicates, stale, poison, left } = report.counted;
                let counted = applied + folded + duplicates + stale;
                let sums = (received, counted, poison, left);
                if sums != (numbers.handed, numbers.counted, numbers.quarantined, numbers.dropped) {
                    says(format_args!("reports {:?}", report.counted));
                }
            }
            Ok(Err(EngineError::Store(error))) => {
                self.world.note(Kind::Stopped);
                self.world.say(format_args!("{life} stops, because the store cannot work: {error}"));
                if self.world.is_calm_for(Duration::from_secs(90)) || numbers.commits > 0 {
                    says(format_args!("stopped although the store works: {error}"));
                }
                let Counted { received, applied, folded, duplicates, stale, .. } = progress.counted();
                if received != numbers.handed || applied + folded + duplicates + stale < numbers.counted {
                    says(format_args!("counted {:?}", progress.counted()));
                }
            }
            Ok(Err(EngineError::Source(error))) if !self.world.is_calm_for(Duration::from_secs(90)) => {
                self.world.say(format_args!("{life} stops, because the source cannot work: {error}"));
            }
            Ok(Err(EngineError::StandsStill(what))) if !self.world.is_calm_for(Duration::from_secs(720)) => {
                self.world.note(Kind::StoodStill);
                self.world.say(format_args!("{life} ends, because it stands still: {what}"));
            }
            Ok(Err(error)) => says(format_args!("ended: {error}")),
        }
    }

    /// Something happens to the worker of a slot, again and again.
    pub(crate) async fn trouble(self: Arc<Self>, slot: usize) {
        let longest = (self.world.plan.span.as_millis() as u64 / 4).max(2);
        loop {
            tokio::time::sleep(self.world.millis(1..=longest)).await;
            let Some(life) = locked(&self.lives)[slot].clone() else { continue };
            if self.world.is_calm() {
                return;
            }
            if self.world.strikes(Kind::Crash) {
                life.die();
            }
            if self.world.plan.odds(Kind::CrashAtCall) > 0.0 && self.world.flip(self.world.plan.odds(Kind::CrashAtCall))
            {
                life.light_fuse(self.world.between(1..=40));
            }
            if self.world.strikes(Kind::Pause) {
                life.stand_still();
                let longest = self.world.one_of(&[1_000, 60_000, 600_000]);
                tokio::time::sleep(self.world.millis(1..=longest)).await;
                self.go_on(&life);
            }
            if self.world.strikes(Kind::Restart) {
                life.ask_to_stop();
                if self.world.strikes(Kind::CrashInDrain) {
                    tokio::time::sleep(self.world.millis(0..=2_000)).await;
                    life.die();
                }
            }
        }
    }

    /// Something happens to the queue or to the store as a whole.
    pub(crate) async fn weather(self: Arc<Self>) {
        let longest = (self.world.plan.span.as_millis() as u64 / 4).max(2);
        loop {
            tokio::time::sleep(self.world.millis(1..=longest)).await;
            if self.world.is_calm() {
                return;
            }
            if self.world.strikes(Kind::Replayed) {
                self.broker.replay();
            }
            if self.world.strikes(Kind::StreamCut) {
                self.broker.cut_all_streams();
            }
            if self.world.strikes(Kind::Outage) {
                let longest = self.world.one_of(&[2_000, 60_000, 1_500_000]);
                self.world.begin_outage(self.world.millis(1..=longest));
            }
            if self.world.strikes(Kind::Never) {
                self.world.begin_never();
            }
            self.backend.expire_keys(&self.world);
        }
    }
}
