//! A lane takes a batch and sees it committed, or puts it aside when it is the batch that fails and not the store.

use super::aside::UnderWay;
use super::attempt::{Attempted, Flight};
use super::piece::{Failure, Follows, MAX_CONTENDED_WAITS, Piece, Place, Purpose, REFUSED_FOR};
use super::waiting::Errand;
use super::{LaneKeys, Shared, class_name, now};
use crate::engine::aggregate::Sealed;
use crate::engine::receipt::Receipt;
use crate::engine::shard::LaneShard;
use crate::engine::watchdog::Sign;
use crate::like::batch::BatchKey;
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
    sign: Arc<Sign>,
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
    pub fn new(shared: Arc<Shared>, sign: Arc<Sign>, seed: u64, keys: LaneKeys) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let shard = LaneShard::new(shared.config.shards, &mut rng);
        shared.waiting.lane_begins();
        Self { shared, sign, rng, keys, shard }
    }

    /// A key for a batch of this lane.
    pub fn new_key(&mut self) -> BatchKey {
        self.keys.next()
    }

    /// Flushes one batch: returns when each of its receipts is settled or dropped, or waits aside.
    pub async fn flush(&mut self, sealed: Sealed<Receipt>) {
        let mut next = Some(Piece::new(sealed));
        while let Some(piece) = next {
            let Some(attempted) = self.attempt_or_hand_over(piece).await else { break };
            next = self.conclude(Place::Lane, attempted).await;
        }
        self.sign.rests();
    }

    /// Does what has come up aside.
    pub(crate) async fn serve(&mut self, errand: Errand) {
        self.sign.steps("waits for the store to answer");
        let (mut attempted, _seat) = match errand {
            Errand::Try(piece, _) if piece.state.purpose == Purpose::Leave => {
                self.shared.give_to_newer(piece);
                (None, None)
            }
            Errand::Try(piece, seat) => (self.shared.attempt(piece, self.shard.current()).await, seat),
            Errand::See(flight, seat) => (flight.await, Some(seat)),
        };
        while let Some(ended) = attempted {
            let next = self.conclude(Place::Aside, ended).await;
            self.sign.steps("waits for the store to answer");
            attempted = match next {
                Some(piece) => self.shared.attempt(piece, self.shard.current()).await,
                None => None,
            };
        }
        self.sign.rests();
    }

    /// One attempt; `None` when the piece was left, or when the attempt takes long although the store works, and goes on
    /// without this lane.
    async fn attempt_or_hand_over(&mut self, piece: Piece) -> Option<Attempted> {
        self.sign.steps("waits for the store to answer");
        let shared = Arc::clone(&self.shared);
        let witnesses = shared.health.witnesses();
        let likes = piece.sealed.batch().likes().to_vec();
        let mut flight = shared.attempt(piece, self.shard.current());
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
            let piece = Piece { under_way: Some(under_way), ..attempted.piece };
            Some(Attempted { piece, ..attempted })
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

    /// What becomes of a piece after an attempt. Answers with the piece that goes on here.
    async fn conclude(&mut self, place: Place, attempted: Attempted) -> Option<Piece> {
        let Attempted { mut piece, answer, took, witnesses } = attempted;
        let error = match answer {
            Ok(applied) => {
                self.sign.steps("waits for acknowledgements to be taken");
                // Only a commit that wrote says how busy the shard is; an answer from the batch key is a read.
                if !applied.replayed && applied.applied > 0 {
                    self.shard.committed(applied.applied, took, &mut self.rng);
                }
                self.shared.settle(piece, &applied, took).await;
                return None;
            }
            Err(error) => self.shared.health.judged(error),
        };
        self.sign.steps("waits to try again");
        let name = class_name(&error.class);
        self.shared.progress.failure(name);
        tracing::debug!(batch = %piece.sealed.batch().key(), class = name, "an attempt failed: {error}");
        let failure = match &error.class {
            ErrorClass::Contended(places) => return self.part_contended(place, piece, places),
            ErrorClass::Undecidable(stored) if stored.iter().any(|one| one.place < piece.likes()) => {
                return self.part_undecidable(piece, stored.clone());
            }
            ErrorClass::DidNotCommit => {
                self.shard.pick_again(&mut self.rng);
                Failure::Passes
            }
            ErrorClass::Unknown => {
                piece.state.resuming = true;
                Failure::Passes
            }
            ErrorClass::Unauthenticated => Failure::Passes,
            ErrorClass::CannotWork => Failure::Never,
            ErrorClass::BatchCannotWork | ErrorClass::Undecidable(_) => Failure::Refused,
        };
        piece.state.failed(failure, took);
        self.after(place, piece, failure, witnesses, &error).await
    }

    /// What follows a failure that names no like.
    async fn after(
        &mut self,
        place: Place,
        mut piece: Piece,
        failure: Failure,
        witnesses: u64,
        error: &StoreError,
    ) -> Option<Piece> {
        let (shared, likes) = (Arc::clone(&self.shared), piece.likes());
        let works = piece.state.asks(place, likes, failure)
            && tokio::select! {
                biased;
                () = shared.drain.expire(shared.deadline_of(&piece)) => {
                    shared.leave(piece);
                    return None;
                }
                works = shared.health.works_since(witnesses) => works,
            };
        if let [like] = piece.sealed.batch().likes() {
            match failure {
                Failure::Refused => piece.state.goes_on(shared.recent.refusals.of(like, now())),
                Failure::Passes | Failure::Never => shared.recent.refusals.forget(like),
            }
        }
        match piece.state.follows(place, likes, failure, works, now()) {
            Follows::Again if place == Place::Lane => return self.wait_here(piece).await,
            Follows::Again | Follows::Aside => {
                let mut wait = self.wait_of(&piece);
                if failure == Failure::Refused && likes == 1 {
                    wait = wait.min(REFUSED_FOR / 3);
                }
                shared.put_aside(piece, now() + wait);
            }
            Follows::Divided => {
                let why = if failure == Failure::Refused { "refused" } else { "failing" };
                Metric::Splits.add_labelled("why", why, 1);
                let state = piece.state.of_a_part();
                for sealed in piece.sealed.divide(PARTS, || self.keys.next()) {
                    shared.put_aside(Piece { state, ..Piece::new(sealed) }, now());
                }
            }
            Follows::Quarantined => self.refuse(piece, error).await,
        }
        None
    }

    fn wait_of(&mut self, piece: &Piece) -> Duration {
        self.shared.config.backoff.wait(piece.state.failures.max(1), &mut self.rng)
    }

    /// Keeps the lane with the piece until it is time to try again, or the store works again.
    async fn wait_here(&mut self, piece: Piece) -> Option<Piece> {
        let wait = self.wait_of(&piece);
        let shared = &self.shared;
        tokio::select! {
            biased;
            () = shared.drain.expire(shared.deadline_of(&piece)) => {
                shared.leave(piece);
                None
            }
            () = shared.progress.store_works(), if shared.progress.store_failing() => Some(piece),
            () = tokio::time::sleep(wait) => Some(piece),
        }
    }

    /// The likes that others keep writing wait aside, in a batch of their own, and the rest goes on here. This is a race, not
    /// a failure of the store, so nothing pauses.
    fn part_contended(&mut self, place: Place, piece: Piece, places: &[usize]) -> Option<Piece> {
        let keys = [self.new_key(), self.new_key()];
        let Piece { sealed, state, under_way } = piece;
        let [contended, rest] = sealed.split(places, keys);
        let rest = Piece { state: state.of_the_rest(), ..Piece::new(rest) };
        if rest.likes() > 0 {
            Metric::Splits.add_labelled("why", "contended", 1);
        }
        let mut contended = Piece { state, ..Piece::new(contended) };
        contended.state.resuming = true;
        contended.state.contended = true;
        contended.state.end_of_refusals();
        contended.sealed.batch().likes().iter().for_each(|like| self.shared.recent.refusals.forget(like));
        contended.state.failures = match place {
            Place::Lane => 0,
            Place::Aside => (state.failures + 1).min(MAX_CONTENDED_WAITS),
        };
        let wait = if place == Place::Lane { Duration::ZERO } else { self.wait_of(&contended) };
        self.shared.put_aside(contended, now() + wait);
        drop(under_way);
        (rest.likes() > 0).then_some(rest)
    }

    /// What is stored for some likes cannot be read. That concerns each of them alone; the rest goes on at once.
    fn part_undecidable(&mut self, piece: Piece, mut stored: Vec<Undecidable>) -> Option<Piece> {
        stored.retain(|one| one.place < piece.likes());
        stored.sort_by_key(|one| one.place);
        stored.dedup_by_key(|one| one.place);
        let places: Vec<usize> = stored.iter().map(|one| one.place).collect();
        let keys = [self.new_key(), self.new_key()];
        let Piece { sealed, state, under_way } = piece;
        let [undecidable, rest] = sealed.split(&places, keys);
        for (sealed, stored) in undecidable.divide(places.len(), || self.keys.next()).into_iter().zip(&stored) {
            self.shared.part_with(Piece { state: state.of_the_rest(), ..Piece::new(sealed) }, stored);
        }
        drop(under_way);
        if rest.likes() == 0 {
            return None;
        }
        Metric::Splits.add_labelled("why", "undecidable", 1);
        Some(Piece { state: state.of_the_rest(), ..Piece::new(rest) })
    }

    /// A like that is refused for good. Its effect may be durable through another batch; then it only has to be settled.
    async fn refuse(&mut self, piece: Piece, error: &StoreError) {
        let shared = Arc::clone(&self.shared);
        let like = piece.sealed.batch().likes()[0].clone();
        let stored = tokio::select! {
            biased;
            () = shared.drain.expire(shared.deadline_of(&piece)) => {
                shared.leave(piece);
                return;
            }
            stored = shared.store.membership(like.post(), like.user()) => stored,
        };
        match stored {
            Ok(Some(stored)) if like.membership().cmp_newness(&stored.membership()).is_le() => {
                let same = stored.liked() == like.liked();
                let applied = Applied { duplicates: u64::from(same), stale: u64::from(!same), ..Applied::default() };
                shared.settle(piece, &applied, Duration::ZERO).await;
            }
            Ok(_) => {
                if let Some(row) = piece.state.refusals() {
                    shared.recent.refusals.remember(&like, row, now());
                }
                shared.quarantine(piece, &error.message);
            }
            Err(StoreError { class: ErrorClass::Undecidable(stored), .. }) if !stored.is_empty() => {
                shared.part_with(piece, &stored[0]);
            }
            Err(_) => {
                let wait = self.wait_of(&piece).min(REFUSED_FOR / 3);
                shared.put_aside(piece, now() + wait);
            }
        }
    }
}
