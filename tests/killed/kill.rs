//! When a worker is killed.

use crate::place::Way;
use crate::trap::{BATCHES, Catch, QUARANTINE};

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kill {
    /// Some time after it was started, often before it listens.
    Starting,
    /// Some time after the first events came.
    Working,
    /// A commit has left, and the store never sees it.
    BeforeCommit,
    /// A commit is durable, and the worker does not know.
    AfterCommit,
    /// A commit was answered, and the broker never sees the acknowledgement.
    BeforeAck,
    /// Poison is on its way into the quarantine, and does not arrive.
    BeforeQuarantine,
    /// Poison is in the quarantine, and the worker does not know.
    AfterQuarantine,
    /// Some time after SIGTERM.
    Draining,
    /// As `BeforeCommit`, after SIGTERM.
    DrainingBeforeCommit,
    /// As `AfterCommit`, after SIGTERM.
    DrainingAfterCommit,
    /// After SIGTERM, everything is committed, and the broker sees none of the acknowledgements.
    DrainingBeforeAck,
}

impl Kill {
    const ALL: [Self; 11] = [
        Self::BeforeCommit,
        Self::Working,
        Self::DrainingAfterCommit,
        Self::AfterCommit,
        Self::BeforeQuarantine,
        Self::DrainingBeforeCommit,
        Self::Starting,
        Self::Draining,
        Self::AfterQuarantine,
        Self::BeforeAck,
        Self::DrainingBeforeAck,
    ];

    /// Those that there are on a way. Over HTTP the answer is the acknowledgement: it cannot be held alone.
    pub(crate) fn all(way: Way) -> Vec<Self> {
        let acks = |kill: &Self| matches!(kill, Self::BeforeAck | Self::DrainingBeforeAck);
        Self::ALL.into_iter().filter(|kill| way.pulls_pubsub() || !acks(kill)).collect()
    }

    pub(crate) fn in_drain(self) -> bool {
        use Kill::{Draining, DrainingAfterCommit, DrainingBeforeAck, DrainingBeforeCommit};
        matches!(self, Draining | DrainingBeforeCommit | DrainingAfterCommit | DrainingBeforeAck)
    }

    /// The call at which the moment has come; `None` where chance says when.
    pub(crate) fn catch(self, skip: usize) -> Option<Catch> {
        let (method, holds, done) = match self {
            Self::Starting | Self::Working | Self::Draining => return None,
            Self::BeforeCommit | Self::DrainingBeforeCommit => ("Commit", BATCHES, false),
            Self::AfterCommit | Self::DrainingAfterCommit => ("Commit", BATCHES, true),
            Self::BeforeAck | Self::DrainingBeforeAck => ("Acknowledge", "", false),
            Self::BeforeQuarantine => ("Commit", QUARANTINE, false),
            Self::AfterQuarantine => ("Commit", QUARANTINE, true),
        };
        // Poison is rare, and the commits and acknowledgements of a drain are few.
        let skip = if matches!(self, Self::BeforeCommit | Self::AfterCommit | Self::BeforeAck) { skip } else { 0 };
        Some(Catch { method, holds, skip, in_drain: self.in_drain(), done })
    }
}
