//! A sealed batch on its way to being durable: apply it under its key, retry by class, then settle its receipts.
//!
//! Acknowledging comes last. A receipt that is dropped on any way out of here means redelivery, never loss.
//!
//! A lane keeps its batch while the store fails as a whole. While the store takes other writes, what fails moves aside: the
//! batch is divided there until the like that fails is alone, and waits for its own deadline without holding anybody.

mod attempt;
mod deferred;
mod drain;
mod health;
mod keys;
mod lane;
mod part;
mod refusals;
mod waiting;

pub use deferred::Recent;
pub use drain::Drain;
pub use health::Health;
pub use keys::{BatchKeys, LaneKeys, any_seed};
pub use lane::Lane;
pub use waiting::{ASIDE_LANES, Waiting};

pub(crate) use health::ANSWERED_WITHIN;
pub(crate) use waiting::Errand;

use crate::common::backoff::Backoff;
use crate::engine::aggregate::Aggregator;
use crate::engine::progress::Progress;
use crate::engine::receipt::Receipt;
use crate::like::event::Poison;
use crate::source::ack::Confirmation;
use crate::source::in_flight::InFlight;
use crate::store::{ErrorClass, Store};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The longest retry deadline that is taken without being asked for: a little less than the 60 minutes for which Google's
/// client extends a lease.
pub const LONGEST_RETRY_DEADLINE: Duration = Duration::from_secs(55 * 60);

/// How batches are retried and spread.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many shards the lanes choose from. 64: a commit a second on each is far below what one document takes.
    pub shards: NonZeroU16,
    /// The wait between attempts.
    pub backoff: Backoff,
    /// How long a batch is kept and tried again, from the arrival of its oldest like. `None` takes nine tenths of the
    /// source's lease, at most [`LONGEST_RETRY_DEADLINE`].
    pub retry_deadline: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self { shards: NonZeroU16::MIN.saturating_add(63), backoff: Backoff::default(), retry_deadline: None }
    }
}

impl Config {
    /// How long a batch from a source with this lease is kept and tried again.
    #[must_use]
    pub fn retry_deadline(&self, max_lease: Option<Duration>) -> Duration {
        let of_the_lease = || max_lease.map_or(LONGEST_RETRY_DEADLINE, |lease| lease.mul_f64(0.9));
        self.retry_deadline.unwrap_or_else(|| LONGEST_RETRY_DEADLINE.min(of_the_lease()))
    }
}

/// What the lanes of one worker share.
pub struct Shared {
    /// Where batches go.
    pub store: Arc<dyn Store>,
    /// Whether it works as a whole.
    pub health: Arc<Health>,
    /// Told which likes are durable.
    pub aggregator: Arc<Aggregator<Receipt>>,
    /// What the worker holds.
    pub held: Arc<InFlight>,
    /// The numbers.
    pub progress: Arc<Progress>,
    /// Where a like goes that can never be counted. It has room for all that the budget holds.
    pub poison: mpsc::Sender<(Receipt, Poison)>,
    /// Where acknowledgements wait for the broker's answer.
    pub confirmations: mpsc::Sender<Confirmation>,
    /// What waits aside.
    pub waiting: Arc<Waiting>,
    /// When everything must be given up, once a shutdown has begun.
    pub drain: Arc<Drain>,
    /// Deliveries that may wait, some seconds each, to be left to a newer worker; more are left soon.
    pub max_leaving: usize,
    /// What of the last minutes must be known.
    pub recent: Recent,
    /// The policy.
    pub config: Config,
    /// How long a batch is kept and tried again, from the arrival of its oldest like.
    pub retry_deadline: Duration,
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
        ErrorClass::Fatal => "fatal",
        ErrorClass::Rejected => "rejected",
        ErrorClass::Contended(_) => "contended",
        ErrorClass::Undecidable(_) => "undecidable",
    }
}
