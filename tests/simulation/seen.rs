//! What happened in a run, counted, so that a reader sees that the faults were really there.

use gcloud_sdk::tonic::Code;
use std::ops::AddAssign;

macro_rules! kinds {
    ($($name:ident = $text:literal,)*) => {
        /// Something that happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind { $(#[doc = $text] $name),* }

        impl Kind {
            /// Each with its words for the summary.
            pub(crate) const ALL: &[(Self, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

kinds! {
    // What the queue does.
    Published = "messages published",
    Delivered = "deliveries",
    Acked = "acks that arrived",
    Dropped = "tokens dropped by a living worker",
    SameEventAgain = "events published again in a new message",
    SameIdOtherWish = "events with the id and the order of another that wishes the opposite",
    Undecodable = "messages that nobody can decode",
    RefusedLike = "likes that the store refuses for good",
    TwinDelivery = "messages delivered twice at once",
    OutOfOrder = "deliveries out of order",
    ShortLease = "leases that were not extended",
    LeaseRanOut = "leases that ran out while held",
    LeaseOfTheDead = "leases that ran out after a crash",
    LostAck = "acks lost",
    LateAck = "acks after the lease",
    UnconfirmedAck = "acks not confirmed",
    StreamCut = "streams cut",
    OpenRefused = "streams that did not open",
    SourceGone = "times a worker was told that there is no such subscription",
    Replayed = "replays of everything from the beginning",
    // What the store does.
    Commit = "commits that were applied",
    Refused = "commits refused by a precondition",
    NamelessRefusal = "refusals that name no document",
    Contended = "batches told that others keep writing",
    FailedBefore = "commits failed before they were applied",
    FailedAfter = "commits applied whose answer was lost",
    LandedLate = "commits applied after they had been called failed",
    Slow = "calls that took long",
    Hung = "calls that were never answered",
    FailedRead = "reads failed",
    ShortAnswer = "reads answered in part",
    TooLarge = "commits refused for their size",
    Outage = "outages of the store",
    Never = "times the store said never for some seconds",
    Unreadable = "documents spoiled",
    Newer = "documents written by a newer hotcount",
    Locked = "documents locked by somebody",
    Probe = "probes that committed",
    KeysExpired = "times all batch keys were deleted",
    Quarantined = "messages quarantined",
    Tally = "tallies compared during the faults",
    // What happens to workers.
    Born = "workers started",
    Crash = "workers crashed at some moment",
    CrashAtCall = "workers crashed at a call or between two acks",
    CrashInDrain = "workers crashed while draining",
    Pause = "workers that stood still",
    Restart = "workers asked to stop",
    Stopped = "workers stopped by the store",
    StoodStill = "workers that ended because they stood still",
    TwoShardCounts = "workers started beside one of another shard count",
    // At the end.
    Calm = "runs that settled after the faults",
}

/// Every code that a failed call can have.
pub(crate) const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// The counts of one run, or of many.
#[derive(Clone)]
pub(crate) struct Seen {
    kinds: [u64; Kind::ALL.len()],
    /// Codes of failed commits: before, after they were applied.
    codes: [[u64; 17]; 2],
}

impl Default for Seen {
    fn default() -> Self {
        Self { kinds: [0; Kind::ALL.len()], codes: [[0; 17]; 2] }
    }
}

impl Seen {
    pub(crate) fn note(&mut self, kind: Kind) {
        self.kinds[kind as usize] += 1;
    }

    pub(crate) fn note_code(&mut self, code: Code, applied: bool) {
        self.codes[usize::from(applied)][code as usize] += 1;
    }

    pub(crate) fn of(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize]
    }

    /// What never happened.
    pub(crate) fn missing(&self) -> Vec<String> {
        let kinds = Kind::ALL.iter().filter(|(kind, _)| self.of(*kind) == 0).map(|(_, text)| (*text).to_owned());
        let codes = CODES.iter().flat_map(|code| {
            let never = |applied: usize, when: &str| {
                (self.codes[applied][*code as usize] == 0).then(|| format!("commits failed with {code:?} {when}"))
            };
            [never(0, "before they were applied"), never(1, "after they were applied")]
        });
        kinds.chain(codes.flatten()).collect()
    }

    /// A line for each kind, and one for each code.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        for (kind, text) in Kind::ALL {
            table += &format!("{:>12}  {text}\n", self.of(*kind));
        }
        for code in CODES {
            let [before, after] = [0, 1].map(|applied| self.codes[applied][code as usize]);
            table += &format!("{before:>12}  commits failed with {code:?}, and {after} applied and then failed so\n");
        }
        table
    }

    /// The same for scripts.
    pub(crate) fn json(&self) -> serde_json::Value {
        let kinds = Kind::ALL.iter().map(|(kind, _)| (format!("{kind:?}"), self.of(*kind).into()));
        let codes = CODES.iter().map(|code| {
            let of = |applied: usize| self.codes[applied][*code as usize];
            (format!("{code:?}"), serde_json::json!({ "before": of(0), "after": of(1) }))
        });
        serde_json::json!({
            "seen": kinds.collect::<serde_json::Map<_, _>>(),
            "codes": codes.collect::<serde_json::Map<_, _>>(),
        })
    }
}

impl AddAssign<&Self> for Seen {
    fn add_assign(&mut self, other: &Self) {
        self.kinds.iter_mut().zip(other.kinds).for_each(|(a, b)| *a += b);
        for (mine, theirs) in self.codes.iter_mut().zip(other.codes) {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        }
    }
}
