//! A lane takes a batch and sees it committed, or puts it aside when it is the batch that fails and not the store.

use super::attempt::{Attempted, Flight};
use super::deferred::UnderWay;
use super::part::{Failure, Follows, MAX_CONTENDED_WAITS, Part, Place, Purpose, REFUSED_FOR};
use super::waiting::Errand;
use super::{LaneKeys, Shared, class_name, now};
use crate::engine::aggregate::Sealed;
use crate::engine::receipt::Receipt;
use crate::engine::shard::LaneShard;
use crate::engine::watchdog::Heartbeat;
use crate::like::batch::BatchKey;
use crate::like::event::Like;
use crate::like::membership::decide;
use crate::store::{Applied, ErrorClass, StoreError, Undecidable};
use crate::telemetry::Metric;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use std::time::Duration;

/// Parts of a batch that fails while the store works. Three rounds of eight part one like from 500.
const PARTS: usize = 8;

/// An attempt that takes so long, and so many times what is usual, may be held up by one document: when the store takes other
/// writes meanwhile, the lane does not wait for it.
const LONG: Duration = Duration::from_secs(1);
const TIMES_THE_USUAL: u32 = 4;

/// One of the worker's concurrent commits.
pub struct Lane {
    pub(crate) shared: Arc<Shared>,
    /// What the watchdog sees of it.
    heartbeat: Arc<Heartbeat>,
    rng: SmallRng,
    keys: LaneKeys,
    shard: LaneShard,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.waiting.lane_ends();
    }
}

impl Lane {
    /// A lane with its own seeded randomness for shard choice and jitter, and with its batch keys.
    #[must_use]
    pub fn new(shared: Arc<Shared>, heartbeat: Arc<Heartbeat>, seed: u64, keys: LaneKeys) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let shard = LaneShard::new(shared.config.shards, &mut rng);
        shared.waiting.lane_begins();
        Self { shared, heartbeat, rng, keys, shard }
    }

    /// A key for a batch of this lane.
    pub fn new_key(&mut self) -> BatchKey {
        self.keys.next()
    }

    /// Flushes one batch: returns when each of its receipts is settled or dropped, or waits aside.
    pub async fn flush(&mut self, sealed: Sealed<Receipt>) {
        let mut next = Some(Part::new(sealed));
        while let Some(part) = next {
            let Some(attempted) = self.attempt_or_hand_over(part).await else { break };
            next = self.conclude(Place::Lane, attempted).await;
        }
        self.heartbeat.idle();
    }

    /// Does what has come up aside.
    pub(crate) async fn serve(&mut self, errand: Errand) {
        self.heartbeat.working("waits for the store to answer");
        let (mut attempted, _seat) = match errand {
            Errand::Try(part, _) if part.state.purpose == Purpose::Leave => {
                self.shared.give_to_newer(part);
                (None, None)
            }
            Errand::Try(part, seat) => (self.shared.attempt(part, self.shard.current()).await, seat),
            Errand::See(flight, seat) => (flight.await, Some(seat)),
        };
        while let Some(ended) = attempted {
            let next = self.conclude(Place::Contended, ended).await;
            self.heartbeat.working("waits for the store to answer");
            attempted = match next {
                Some(part) => self.shared.attempt(part, self.shard.current()).await,
                None => None,
            };
        }
        self.heartbeat.idle();
    }

    /// One attempt; `None` when the part was left, or when the attempt takes long although the store works, and goes on
    /// without this lane.
    async fn attempt_or_hand_over(&mut self, part: Part) -> Option<Attempted> {
        self.heartbeat.working("waits for the store to answer");
        let shared = Arc::clone(&self.shared);
        let witnesses = shared.health.witnesses();
        let likes = part.sealed.batch().likes().to_vec();
        let mut flight = shared.attempt(part, self.shard.current());
        let others_commit = async {
            tokio::time::sleep(LONG).await;
            let usual = shared.progress.commit_latency.quantile(0.5);
            tokio::time::sleep((usual * TIMES_THE_USUAL).saturating_sub(LONG)).await;
            while !shared.health.works_since(witnesses).await {
                tokio::time::sleep(LONG).await;
            }
        };
        tokio::select! {
            biased;
            attempted = &mut flight => return attempted,
            () = others_commit => {}
        }
        // One of them may be locked: until it is known which, further likes of all of them wait aside.
        let under_way = UnderWay::begin(&shared, likes);
        let flight: Flight = Box::pin(async move {
            let attempted = flight.await?;
            let part = Part { under_way: Some(under_way), ..attempted.part };
            Some(Attempted { part, ..attempted })
        });
        match shared.waiting.hand_over(flight) {
            Ok(()) => {
                // Who holds it up may hold the shard.
                self.shard.pick_again(&mut self.rng);
                None
            }
            Err(flight) => flight.await,
        }
    }

    /// What becomes of a part after an attempt. Answers with the part that goes on here.
    async fn conclude(&mut self, place: Place, attempted: Attempted) -> Option<Part> {
        let Attempted { mut part, answer, took, witnesses } = attempted;
        let error = match answer {
            Ok(applied) => {
                self.heartbeat.working("waits for acknowledgements to be taken");
                // Only a commit that wrote says how busy the shard is; an answer from the batch key is a read.
                if !applied.replayed && applied.applied > 0 {
                    self.shard.committed(applied.applied, took, &mut self.rng);
                }
                self.shared.settle(part, &applied, took).await;
                return None;
            }
            Err(error) => self.shared.health.judged(error),
        };
        self.heartbeat.working("waits to try again");
        let name = class_name(&error.class);
        self.shared.progress.failure(name);
        tracing::debug!(batch = %part.sealed.batch().key(), class = name, "an attempt failed: {error}");
        let failure = match &error.class {
            ErrorClass::Contended(places) => return self.part_contended(place, part, places),
            ErrorClass::Undecidable(stored) if stored.iter().any(|one| one.place < part.likes()) => {
                return self.part_undecidable(part, stored.clone());
            }
            ErrorClass::DidNotCommit => {
                self.shard.pick_again(&mut self.rng);
                Failure::Passes
            }
            ErrorClass::Unknown => {
                part.state.resuming = true;
                Failure::Passes
            }
            ErrorClass::Unauthenticated => Failure::Passes,
            ErrorClass::Fatal => Failure::Never,
            ErrorClass::Rejected | ErrorClass::Undecidable(_) => Failure::Refused,
        };
        part.state.failed(failure, took);
        self.after(place, part, failure, witnesses, &error).await
    }

    /// What follows a failure that names no like.
    async fn after(
        &mut self,
        place: Place,
        mut part: Part,
        failure: Failure,
        witnesses: u64,
        error: &StoreError,
    ) -> Option<Part> {
        let (shared, likes) = (Arc::clone(&self.shared), part.likes());
        let works = part.state.asks(place, likes, failure)
            && tokio::select! {
                biased;
                () = shared.drain.expire(shared.deadline_of(&part)) => {
                    shared.leave(part);
                    return None;
                }
                works = shared.health.works_since(witnesses) => works,
            };
        if let [like] = part.sealed.batch().likes() {
            match failure {
                Failure::Refused => part.state.goes_on(shared.recent.refusals.of(like, now())),
                Failure::Passes | Failure::Never => shared.recent.refusals.forget(like),
            }
        }
        match part.state.follows(place, likes, failure, works, now()) {
            Follows::Again if place == Place::Lane => return self.wait_here(part).await,
            Follows::Again | Follows::Contended => {
                let mut wait = self.wait_of(&part);
                if failure == Failure::Refused && likes == 1 {
                    wait = wait.min(REFUSED_FOR / 3);
                }
                shared.defer(part, now() + wait);
            }
            Follows::Divided => {
                let why = if failure == Failure::Refused { "refused" } else { "failing" };
                Metric::Splits.add_labelled("why", why, 1);
                let state = part.state.of_a_part();
                for sealed in part.sealed.divide(PARTS, || self.keys.next()) {
                    shared.defer(Part { state, ..Part::new(sealed) }, now());
                }
            }
            Follows::Quarantined => self.refuse(part, error).await,
        }
        None
    }

    fn wait_of(&mut self, part: &Part) -> Duration {
        self.shared.config.backoff.wait(part.state.failures.max(1), &mut self.rng)
    }

    /// Keeps the lane with the part until it is time to try again, or the store works again.
    async fn wait_here(&mut self, part: Part) -> Option<Part> {
        let wait = self.wait_of(&part);
        let shared = &self.shared;
        tokio::select! {
            biased;
            () = shared.drain.expire(shared.deadline_of(&part)) => {
                shared.leave(part);
                None
            }
            () = shared.progress.store_works(), if shared.progress.store_failing() => Some(part),
            () = tokio::time::sleep(wait) => Some(part),
        }
    }

    /// The likes that others keep writing wait aside, in a batch of their own, and the rest goes on here. This is a race, not
    /// a failure of the store, so nothing pauses.
    fn part_contended(&mut self, place: Place, part: Part, places: &[usize]) -> Option<Part> {
        let keys = [self.new_key(), self.new_key()];
        let Part { sealed, state, under_way } = part;
        let [contended, rest] = sealed.split(places, keys);
        let rest = Part { state: state.of_the_rest(), ..Part::new(rest) };
        if rest.likes() > 0 {
            Metric::Splits.add_labelled("why", "contended", 1);
        }
        let mut contended = Part { state, ..Part::new(contended) };
        contended.state.resuming = true;
        contended.state.contended = true;
        contended.state.end_of_refusals();
        contended.sealed.batch().likes().iter().for_each(|like| self.shared.recent.refusals.forget(like));
        contended.state.failures = match place {
            Place::Lane => 0,
            Place::Contended => (state.failures + 1).min(MAX_CONTENDED_WAITS),
        };
        let wait = if place == Place::Lane { Duration::ZERO } else { self.wait_of(&contended) };
        self.shared.defer(contended, now() + wait);
        drop(under_way);
        (rest.likes() > 0).then_some(rest)
    }

    /// What is stored for some likes cannot be read. That concerns each of them alone; the rest goes on at once.
    fn part_undecidable(&mut self, part: Part, mut stored: Vec<Undecidable>) -> Option<Part> {
        stored.retain(|one| one.place < part.likes());
        stored.sort_by_key(|one| one.place);
        stored.dedup_by_key(|one| one.place);
        let places: Vec<usize> = stored.iter().map(|one| one.place).collect();
        let keys = [self.new_key(), self.new_key()];
        let Part { sealed, state, under_way } = part;
        let [undecidable, rest] = sealed.split(&places, keys);
        for (sealed, stored) in undecidable.divide(places.len(), || self.keys.next()).into_iter().zip(&stored) {
            self.shared.part_with(Part { state: state.of_the_rest(), ..Part::new(sealed) }, stored);
        }
        drop(under_way);
        if rest.likes() == 0 {
            return None;
        }
        Metric::Splits.add_labelled("why", "undecidable", 1);
        Some(Part { state: state.of_the_rest(), ..Part::new(rest) })
    }

    /// A like that is refused for good. Its effect may be durable through another batch; then it only has to be settled.
    async fn refuse(&mut self, part: Part, error: &StoreError) {
        let shared = Arc::clone(&self.shared);
        let like = part.sealed.batch().likes()[0].clone();
        let stored = tokio::select! {
            biased;
            () = shared.drain.expire(shared.deadline_of(&part)) => {
                shared.leave(part);
                return;
            }
            stored = shared.store.membership(like.post(), like.user()) => stored,
        };
        match stored {
            Ok(stored) => {
                let decision = decide(stored.as_ref().map(Like::membership), &like);
                if let Some(applied) = Applied::without_a_write(decision) {
                    shared.settle(part, &applied, Duration::ZERO).await;
                    return;
                }
                if let Some(row) = part.state.refusals() {
                    shared.recent.refusals.remember(&like, row, now());
                }
                shared.quarantine(part, &error.message);
            }
            Err(StoreError { class: ErrorClass::Undecidable(stored), .. }) if !stored.is_empty() => {
                shared.part_with(part, &stored[0]);
            }
            Err(_) => {
                let wait = self.wait_of(&part).min(REFUSED_FOR / 3);
                shared.defer(part, now() + wait);
            }
        }
    }
}
