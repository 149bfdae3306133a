//! What one seed decides before anything happens: how large the world is, and how often each fault strikes.

use crate::mutants::Mutant;
use crate::seen::Kind;
use gcloud_sdk::tonic::Code;
use hotcount::like::event::OrderPolicy;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// Where the workers of a run keep their counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// `store::memory`, behind faults of every class.
    Memory,
    /// The Firestore adapter over documents in memory, behind faults of every code.
    Firestore,
}

/// The plan of a run.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) store: StoreKind,
    pub(crate) order: OrderPolicy,
    pub(crate) workers: usize,
    pub(crate) events: usize,
    pub(crate) posts: u64,
    pub(crate) users: u64,
    /// How long events are published and faults strike.
    pub(crate) span: Duration,
    pub(crate) streams: usize,
    /// Whether the broker answers acks.
    pub(crate) confirms: bool,
    /// How long the broker's client extends a lease.
    pub(crate) max_lease: Duration,
    /// When a dropped message is delivered again.
    pub(crate) redelivery_delay: Duration,
    /// How long an ordinary call takes at most.
    pub(crate) latency: Duration,
    /// More writes than so many are refused, with this code.
    pub(crate) largest_commit: Option<(usize, Code)>,
    /// A planted bug, which the auditor must find.
    pub(crate) double: Option<Mutant>,
    /// The chance of each fault whenever it could strike.
    odds: [f64; Kind::ALL.len()],
}

/// How often a fault strikes where nothing says otherwise, and where. Calls of the store are the most frequent; what
/// happens to a worker is thrown for once in a while of some seconds to minutes.
const ODDS: &[(Kind, f64)] = &[
    (Kind::SameEventAgain, 0.08),
    (Kind::SameIdOtherWish, 0.05),
    (Kind::Undecodable, 0.04),
    (Kind::RefusedLike, 0.02),
    (Kind::TwinDelivery, 0.04),
    (Kind::OutOfOrder, 0.4),
    (Kind::ShortLease, 0.06),
    (Kind::LostAck, 0.05),
    (Kind::UnconfirmedAck, 0.05),
    (Kind::StreamCut, 0.03),
    (Kind::OpenRefused, 0.1),
    (Kind::Replayed, 0.08),
    (Kind::SourceGone, 0.01),
    (Kind::NamelessRefusal, 0.3),
    (Kind::Contended, 0.03),
    (Kind::FailedBefore, 0.08),
    (Kind::FailedAfter, 0.08),
    (Kind::LandedLate, 0.05),
    (Kind::Slow, 0.05),
    (Kind::Hung, 0.001),
    (Kind::FailedRead, 0.05),
    (Kind::ShortAnswer, 0.04),
    (Kind::Outage, 0.1),
    (Kind::Never, 0.1),
    (Kind::Unreadable, 0.01),
    (Kind::Newer, 0.01),
    (Kind::Locked, 0.02),
    (Kind::KeysExpired, 0.1),
    (Kind::Crash, 0.12),
    (Kind::CrashAtCall, 0.15),
    (Kind::CrashInDrain, 0.15),
    (Kind::Pause, 0.12),
    (Kind::Restart, 0.12),
];

impl Plan {
    /// The plan of `seed`. Each fault is absent in a third of all runs and three times as frequent in another third, so
    /// that none hides what another would show.
    pub(crate) fn of(seed: u64, double: Option<Mutant>) -> Self {
        let mut dice = SmallRng::seed_from_u64(seed ^ 0x706c_616e);
        let mut odds = [0.0; Kind::ALL.len()];
        for (kind, chance) in ODDS {
            odds[*kind as usize] = chance * [0.0, 1.0, 3.0][dice.random_range(0..3)];
        }
        let store = if dice.random_bool(0.7) { StoreKind::Firestore } else { StoreKind::Memory };
        let too_large = [Code::ResourceExhausted, Code::Unknown, Code::InvalidArgument][dice.random_range(0..3)];
        let largest = dice.random_range(3..12);
        let largest_commit = dice.random_bool(0.2).then_some((largest, too_large));
        // To halve a batch until it fits takes some minutes where "too large" looks like an outage, so a lease is longer.
        let leases: &[u64] = if largest_commit.is_some() { &[1_200] } else { &[60, 300, 1_200] };
        let max_lease = Duration::from_secs(leases[dice.random_range(0..leases.len())]);
        let plan = Self {
            seed,
            store,
            order: [OrderPolicy::Version, OrderPolicy::OccurredAt, OrderPolicy::None][dice.random_range(0..5) % 3],
            workers: dice.random_range(2..=5),
            events: {
                let most = [20, 20, 60, 120][dice.random_range(0..4)];
                dice.random_range(5..=most)
            },
            posts: dice.random_range(1..=4),
            users: [2, 5, 20, 60][dice.random_range(0..4)],
            span: Duration::from_secs(dice.random_range(20..=1_200)),
            streams: dice.random_range(1..=3),
            confirms: dice.random_bool(0.5),
            max_lease,
            redelivery_delay: Duration::from_millis([300, 1_000, 10_000][dice.random_range(0..3)]),
            latency: Duration::from_millis([1, 50, 400][dice.random_range(0..3)]),
            largest_commit,
            double,
            odds,
        };
        match double {
            Some(double) => double.fit(plan),
            None => plan,
        }
    }

    /// The chance of a fault whenever it could strike.
    pub(crate) fn odds(&self, kind: Kind) -> f64 {
        self.odds[kind as usize].min(0.9)
    }

    /// How long a batch is tried again: a little less than its lease.
    pub(crate) fn retry_deadline(&self) -> Duration {
        self.max_lease.mul_f64(0.9)
    }

    /// How long after the last fault everything must be settled: the leases that crashed workers left, a batch that was
    /// taken up just before them, and the waits of both.
    pub(crate) fn patience(&self) -> Duration {
        self.max_lease * 3 + Duration::from_secs(600)
    }
}
