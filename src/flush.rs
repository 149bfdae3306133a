//! A sealed batch on its way to being durable: apply it under its key, retry by class, then settle its receipts.
//!
//! Acknowledging comes last. A receipt that is dropped on any way out of here means redelivery, never loss.

mod drain;
mod keys;
mod piece;

pub use drain::Drain;
pub use keys::{BatchKeys, LaneKeys};

use crate::ack::{Confirmation, Settlement};
use crate::aggregate::{Aggregator, Receipts, Sealed};
use crate::backoff::Backoff;
use crate::batch::BatchKey;
use crate::event::Poison;
use crate::held::Held;
use crate::progress::Progress;
use crate::receipt::Receipt;
use crate::shard::LaneShard;
use crate::store::{Applied, ErrorClass, Store, StoreError};
use crate::telemetry::Metric;
use crate::watchdog::Sign;
use piece::{Piece, State};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// A batch that failed so often in a row is halved, whatever the class: "too large" hides behind several codes.
const HALVE_AFTER: u32 = 3;

/// Refused credentials so often in a row are no token that is being refreshed.
const UNAUTHENTICATED_LIMIT: u32 = 5;

/// A like that is refused alone so often, while no other like commits, means that everything is refused.
const LONE_REFUSALS: u32 = 5;

/// Refusals that lengthen the wait of contended likes. They are a race and no failure of the store: someone wins each round,
/// so waiting for long only lets more likes pile up.
const MAX_CONTENDED_WAITS: u32 = 4;

/// How batches are retried and spread.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many shards the lanes choose from. 64: a commit a second on each is far below what one document takes.
    pub shards: NonZeroU16,
    /// The wait between attempts.
    pub backoff: Backoff,
    /// How long a batch is kept and tried again, from the arrival of its oldest like. 55 minutes: a little less than
    /// the 60 for which Google's client extends a lease.
    pub retry_deadline: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shards: NonZeroU16::MIN.saturating_add(63),
            backoff: Backoff::default(),
            retry_deadline: Duration::from_secs(55 * 60),
        }
    }
}

/// What the lanes of one worker share.
pub struct Shared {
    /// Where batches go.
    pub store: Arc<dyn Store>,
    /// Told which likes are durable.
    pub aggregator: Arc<Aggregator<Receipt>>,
    /// What the worker holds.
    pub held: Arc<Held>,
    /// The numbers.
    pub progress: Arc<Progress>,
    /// Where a like goes that the store refuses for good.
    pub poison: mpsc::Sender<(Receipt, Poison)>,
    /// Where acknowledgements wait for the broker's answer.
    pub confirmations: mpsc::Sender<Confirmation>,
    /// Told when something waits aside.
    pub aside: Arc<Notify>,
    /// When everything must be given up, once a shutdown has begun.
    pub drain: Arc<Drain>,
    /// The policy.
    pub config: Config,
}

/// One of the worker's concurrent commits.
pub struct Lane {
    shared: Arc<Shared>,
    /// What the watchdog sees of it.
    sign: Arc<Sign>,
    rng: SmallRng,
    keys: LaneKeys,
    shard: LaneShard,
    /// Whether it takes what waits aside.
    aside: bool,
}

/// What to do with a piece after an attempt.
enum Next {
    Done,
    Retry(Piece),
    Split(Vec<Piece>),
}

impl Lane {
    /// A lane with its own seeded randomness for shard choice and jitter, and with its batch keys.
    #[must_use]
    pub fn new(shared: Arc<Shared>, sign: Arc<Sign>, seed: u64, keys: LaneKeys) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let shard = LaneShard::new(shared.config.shards, &mut rng);
        Self { shared, sign, rng, keys, shard, aside: false }
    }

    /// The same for the one lane that takes what waits aside.
    #[must_use]
    pub fn aside(self) -> Self {
        Self { aside: true, ..self }
    }

    /// A key for a batch of this lane.
    pub fn new_key(&mut self) -> BatchKey {
        self.keys.next()
    }

    /// Flushes one batch: returns when each of its receipts is settled, or dropped at a deadline.
    ///
    /// # Errors
    /// The store cannot work: the worker must stop. Nothing more of the batch was acknowledged.
    pub async fn flush(&mut self, sealed: Sealed<Receipt>) -> Result<(), StoreError> {
        let flushed = self.flush_pieces(sealed).await;
        self.sign.rests();
        flushed
    }

    async fn flush_pieces(&mut self, sealed: Sealed<Receipt>) -> Result<(), StoreError> {
        // A stack: the part that is tried next is at the end. While a part fails, the others wait; so an outage halves
        // one part again and again, never all of them.
        let mut pieces = vec![Piece::new(sealed)];
        // Of what waits aside something is stored, or nobody could have contended it.
        pieces[0].state.resuming = self.aside;
        while let Some(mut piece) = pieces.pop() {
            let deadline = self.deadline_of(&piece);
            let attempt = piece.next_attempt(self.shard.current());
            let started = now();
            self.sign.steps("waits for the store to answer");
            let answer = tokio::select! {
                biased;
                () = self.shared.drain.expire(deadline) => {
                    self.leave(piece);
                    continue;
                }
                answer = self.shared.store.apply(piece.sealed.batch(), attempt) => answer,
            };
            let took = now().saturating_duration_since(started);
            let next = match answer {
                Ok(applied) => {
                    self.sign.steps("waits for acknowledgements to be taken");
                    // Only a commit that wrote says how busy the shard is; an answer from the batch key is a read.
                    if !applied.replayed && applied.applied > 0 {
                        self.shard.committed(applied.applied, took, &mut self.rng);
                    }
                    self.settle(piece, &applied, took).await;
                    Next::Done
                }
                Err(error) => {
                    self.sign.steps("waits to try again");
                    let others_wait = pieces.iter().any(|other| other.state.lone_refusals == 0);
                    self.after(error, piece, others_wait).await?
                }
            };
            match next {
                Next::Done => {}
                Next::Retry(piece) => {
                    let wait = self.shared.config.backoff.wait(piece.state.failures.max(1), &mut self.rng);
                    tokio::select! {
                        biased;
                        () = self.shared.drain.expire(deadline) => self.leave(piece),
                        () = tokio::time::sleep(wait) => pieces.push(piece),
                    }
                }
                Next::Split(parts) => {
                    // What is refused alone goes to the bottom: a like of another part that commits first is the
                    // proof that the store works and this like does not.
                    let (alone, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|p| p.state.lone_refusals > 0);
                    pieces.splice(0..0, alone);
                    pieces.extend(others.into_iter().rev());
                    let failures = pieces.last().map_or(0, |next| next.state.failures);
                    if failures > 0 {
                        let wait = self.shared.config.backoff.wait(failures, &mut self.rng);
                        // At the deadline the next turn drops what is left.
                        tokio::select! {
                            biased;
                            () = self.shared.drain.expire(deadline) => {}
                            () = tokio::time::sleep(wait) => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// When a piece is given up, unless a drain's deadline comes first.
    fn deadline_of(&self, piece: &Piece) -> Instant {
        piece.sealed.oldest() + self.shared.config.retry_deadline
    }

    /// Decides by class what follows a failed attempt.
    async fn after(&mut self, error: StoreError, mut piece: Piece, others_wait: bool) -> Result<Next, StoreError> {
        let class = error.class.clone();
        let name = class_name(&class);
        tracing::debug!(batch = %piece.sealed.batch().key(), class = name, "an attempt failed: {error}");
        match class {
            ErrorClass::CannotWork => return Err(error),
            ErrorClass::Contended(places) => {
                return Ok(self.part_contended(piece, &places));
            }
            ErrorClass::BatchCannotWork | ErrorClass::Undecidable(_) => {
                Metric::FailedAttempts.add_labelled("class", name, 1);
                return self.isolate(piece, error, others_wait).await;
            }
            ErrorClass::Unauthenticated => {
                if self.shared.progress.unauthenticated() >= UNAUTHENTICATED_LIMIT {
                    return Err(StoreError { class: ErrorClass::CannotWork, ..error });
                }
            }
            ErrorClass::DidNotCommit => self.shard.pick_again(&mut self.rng),
            ErrorClass::Unknown => piece.state.resuming = true,
        }
        if self.shared.progress.failure(name) {
            tracing::warn!("the store fails as a whole; pulling stops, batches and their leases are kept: {error}");
        }
        piece.state.failures += 1;
        if piece.state.failures.is_multiple_of(HALVE_AFTER) && piece.sealed.likes() > 1 {
            Metric::Splits.add_labelled("why", "failing", 1);
            return Ok(Next::Split(self.halve(piece)));
        }
        Ok(Next::Retry(piece))
    }

    /// The likes that others keep writing wait aside, in a batch of their own, and this lane goes on with the rest. This is
    /// a race, not a failure of the store, so it does not pause the worker.
    fn part_contended(&mut self, piece: Piece, places: &[usize]) -> Next {
        Metric::FailedAttempts.add_labelled("class", "contended", 1);
        let keys = [self.new_key(), self.new_key()];
        let state = piece.state;
        let [contended, rest] = piece.sealed.split(places, keys);
        let rest = Piece { sealed: rest, state: State { resuming: state.resuming, ..State::default() } };
        if rest.sealed.likes() > 0 {
            Metric::Splits.add_labelled("why", "contended", 1);
        }
        let aggregator = &self.shared.aggregator;
        if !self.aside {
            aggregator.set_aside(contended, now());
            self.shared.aside.notify_one();
            return if rest.sealed.likes() > 0 { Next::Split(vec![rest]) } else { Next::Done };
        }
        aggregator.keep_aside(contended.batch(), now());
        let failures = (state.failures + 1).min(MAX_CONTENDED_WAITS);
        let contended = Piece { sealed: contended, state: State { failures, resuming: true, ..state } };
        match rest.sealed.likes() {
            0 => Next::Retry(contended),
            _ => Next::Split(vec![rest, contended]),
        }
    }

    fn halve(&mut self, piece: Piece) -> Vec<Piece> {
        let keys = [self.new_key(), self.new_key()];
        piece.sealed.halve(keys).into_iter().map(|sealed| Piece { sealed, state: piece.state }).collect()
    }

    /// A batch that the store refuses for what is in it: halved until the offender is alone. Alone, it is quarantined
    /// once another like has committed since, for until then everything may be refused.
    async fn isolate(&mut self, mut piece: Piece, error: StoreError, others_wait: bool) -> Result<Next, StoreError> {
        piece.state.refused_at_commits.get_or_insert(self.shared.progress.commits());
        if piece.sealed.likes() > 1 {
            Metric::Splits.add_labelled("why", "refused", 1);
            return Ok(Next::Split(self.halve(piece)));
        }
        piece.state.lone_refusals += 1;
        piece.state.failures += 1;
        let like = piece.sealed.batch().likes()[0].clone();
        let another_committed =
            piece.state.refused_at_commits.is_some_and(|then| self.shared.progress.commits() > then);
        if !another_committed {
            if others_wait {
                return Ok(Next::Split(vec![piece]));
            }
            if piece.state.lone_refusals >= LONE_REFUSALS {
                let message =
                    format!("the store refuses every like, so nothing is quarantined; are its settings right? {error}");
                return Err(StoreError { class: ErrorClass::CannotWork, message, source: error.source });
            }
            return Ok(Next::Retry(piece));
        }
        // Its effect may be durable through another batch; then it only has to be settled.
        let stored = tokio::select! {
            biased;
            () = self.shared.drain.expire(self.deadline_of(&piece)) => {
                self.leave(piece);
                return Ok(Next::Done);
            }
            stored = self.shared.store.membership(like.post(), like.user()) => stored,
        };
        match stored {
            Ok(Some(stored)) if like.membership().cmp_newness(&stored.membership()).is_le() => {
                let same = stored.liked() == like.liked();
                let applied = Applied { duplicates: u64::from(same), stale: u64::from(!same), ..Applied::default() };
                self.settle(piece, &applied, Duration::ZERO).await;
            }
            Ok(_) => self.quarantine(piece, &error).await,
            Err(read) if read.class == ErrorClass::CannotWork => return Err(read),
            Err(_) => return Ok(Next::Retry(piece)),
        }
        Ok(Next::Done)
    }

    /// Quarantines the like of a piece of one. The deliveries folded into it are dropped: they come back and are
    /// decided without it.
    async fn quarantine(&self, piece: Piece, error: &StoreError) {
        let mut left = 0;
        for Receipts { own, folded } in piece.sealed.into_receipts() {
            left += folded.len();
            drop(folded);
            if let Some(receipt) = own {
                // A closed channel drops the receipt, and dropped means delivered again.
                let _ = self.shared.poison.send((receipt, Poison::refused_by_store(error.message.clone()))).await;
            }
        }
        self.shared.progress.leave(left);
    }

    /// The batch is durable: remember it, then acknowledge.
    async fn settle(&self, piece: Piece, applied: &Applied, took: Duration) {
        let progress = &self.shared.progress;
        let folded = piece.sealed.deliveries() - piece.sealed.likes();
        self.shared.aggregator.remember(piece.sealed.batch());
        progress.commit(applied, folded);
        Metric::CommitSeconds.observe(took);
        progress.commit_latency.record(took);
        let oldest = piece.sealed.oldest();
        for receipt in piece.sealed.into_receipts().into_iter().flatten() {
            if let Some(confirmation) = receipt.settle(&Settlement::Counted) {
                // Closed only when the worker is being torn down; then nobody waits for the broker's answer.
                let _ = self.shared.confirmations.send(confirmation).await;
            }
        }
        let waited = now().saturating_duration_since(oldest);
        self.shared.held.show();
        Metric::SettleSeconds.observe(waited);
        progress.settle_latency.record(waited);
    }

    /// Drops what cannot be kept any longer.
    fn leave(&self, piece: Piece) {
        let deliveries = piece.sealed.deliveries();
        tracing::warn!(deliveries, "a batch could not be committed in time and is left to redelivery");
        drop(piece);
        self.shared.progress.leave(deliveries);
        self.shared.progress.give_up();
    }
}

/// The time of the runtime's clock, which tests pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn class_name(class: &ErrorClass) -> &'static str {
    match class {
        ErrorClass::DidNotCommit => "did_not_commit",
        ErrorClass::Unknown => "unknown",
        ErrorClass::Unauthenticated => "unauthenticated",
        ErrorClass::CannotWork => "cannot_work",
        ErrorClass::BatchCannotWork => "batch_cannot_work",
        ErrorClass::Contended(_) => "contended",
        ErrorClass::Undecidable(_) => "undecidable",
    }
}
