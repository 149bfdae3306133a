//! What the service bills for: documents read and documents written.

use crate::telemetry::Metric;
use std::sync::atomic::{AtomicU64, Ordering};

/// The service bills one read for so many index entries counted.
const COUNTED_FOR_ONE_READ: u64 = 1_000;

/// What one adapter has been billed since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Billed {
    /// Documents read: each one asked for by name, also when it is missing, each result of a query, and one for every
    /// 1,000 index entries that were counted; at least one a request.
    pub reads: u64,
    /// Documents written.
    pub writes: u64,
    /// Commits refused; they cost a round trip and no write.
    pub refused_commits: u64,
}

/// The counters of one adapter, which also feed the process's metrics.
#[derive(Default)]
pub(super) struct Bill {
    reads: AtomicU64,
    writes: AtomicU64,
    refused_commits: AtomicU64,
}

impl Bill {
    /// Documents asked for by name, or returned by a query.
    pub(super) fn read(&self, documents: usize) {
        let documents = documents.max(1) as u64;
        self.reads.fetch_add(documents, Ordering::Relaxed);
        Metric::StoreReads.add(documents);
    }

    /// Index entries counted.
    pub(super) fn counted(&self, entries: u64) {
        self.read(usize::try_from(entries.div_ceil(COUNTED_FOR_ONE_READ)).unwrap_or(usize::MAX));
    }

    /// Documents written.
    pub(super) fn wrote(&self, documents: usize) {
        self.writes.fetch_add(documents as u64, Ordering::Relaxed);
        Metric::StoreWrites.add(documents as u64);
    }

    /// A commit was refused.
    pub(super) fn refused(&self) {
        self.refused_commits.fetch_add(1, Ordering::Relaxed);
        Metric::RefusedCommits.add(1);
    }

    /// The sums so far.
    pub(super) fn sum(&self) -> Billed {
        Billed {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            refused_commits: self.refused_commits.load(Ordering::Relaxed),
        }
    }
}
