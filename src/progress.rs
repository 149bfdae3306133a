//! What a running worker has done so far: the numbers of the contract, and whether the store works.

use crate::telemetry::{Latencies, Metric};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tokio::sync::Notify;

/// So many failed attempts in a row, with no commit of any lane between, mean that the store fails as a whole.
const FAILING_AFTER: u32 = 3;

/// How deliveries ended. `received` is the sum of the others once everything is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Deliveries pulled.
    pub received: u64,
    /// Likes written.
    pub applied: u64,
    /// Folded into a newer like of the same member in their batch.
    pub folded: u64,
    /// Not newer than what is stored, of the same state.
    pub duplicates: u64,
    /// Not newer than what is stored, of the other state.
    pub stale: u64,
    /// Quarantined.
    pub poison: u64,
    /// Dropped: left to redelivery.
    pub left: u64,
}

/// Shared by all tasks of one worker, and by whoever watches it.
#[derive(Debug, Default)]
pub struct Progress {
    received: AtomicU64,
    applied: AtomicU64,
    folded: AtomicU64,
    duplicates: AtomicU64,
    stale: AtomicU64,
    poison: AtomicU64,
    left: AtomicU64,
    unconfirmed: AtomicU64,
    commits: AtomicU64,
    failures_in_a_row: AtomicU32,
    unauthenticated_in_a_row: AtomicU32,
    pulling: AtomicBool,
    works_again: Notify,
    /// One attempt at a batch that was answered.
    pub commit_latency: Latencies,
    /// From the arrival of the oldest like of a batch to its settling.
    pub settle_latency: Latencies,
}

impl Progress {
    /// The numbers now.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Counted {
            received: read(&self.received),
            applied: read(&self.applied),
            folded: read(&self.folded),
            duplicates: read(&self.duplicates),
            stale: read(&self.stale),
            poison: read(&self.poison),
            left: read(&self.left),
        }
    }

    /// Acknowledgements that the broker did not confirm.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Commits that wrote a like. Neither a batch that changed nothing nor one whose key was found shows that the store
    /// takes writes now.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Whether the store fails as a whole: then nothing is pulled, and batches and their leases are kept.
    #[must_use]
    pub fn store_failing(&self) -> bool {
        self.failures_in_a_row.load(Ordering::Acquire) >= FAILING_AFTER
    }

    /// Whether at least one stream of the source is open.
    #[must_use]
    pub fn pulling(&self) -> bool {
        self.pulling.load(Ordering::Acquire)
    }

    /// Returns when the store does not fail as a whole.
    pub async fn store_works(&self) {
        loop {
            // Registered before the look, so that a commit in between is not missed.
            let again = self.works_again.notified();
            if !self.store_failing() {
                return;
            }
            again.await;
        }
    }

    pub(crate) fn set_pulling(&self, pulling: bool) {
        self.pulling.store(pulling, Ordering::Release);
    }

    pub(crate) fn receive(&self, deliveries: usize) {
        self.received.fetch_add(deliveries as u64, Ordering::Relaxed);
        Metric::Received.add(deliveries as u64);
    }

    /// Duplicates and stale likes that the window knew.
    pub(crate) fn known(&self, duplicates: u64, stale: u64) {
        self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
        self.stale.fetch_add(stale, Ordering::Relaxed);
        Metric::Duplicates.add_labelled("layer", "window", duplicates);
        Metric::Stale.add_labelled("layer", "window", stale);
    }

    pub(crate) fn quarantine(&self, field: &'static str) {
        self.poison.fetch_add(1, Ordering::Relaxed);
        Metric::Poison.add_labelled("field", field, 1);
    }

    pub(crate) fn leave(&self, deliveries: usize) {
        self.left.fetch_add(deliveries as u64, Ordering::Relaxed);
        Metric::Redelivered.add(deliveries as u64);
    }

    pub(crate) fn unconfirmed_acks(&self, acks: usize) {
        self.unconfirmed.fetch_add(acks as u64, Ordering::Relaxed);
        Metric::UnconfirmedAcks.add(acks as u64);
    }

    /// A batch was answered: the store works.
    pub(crate) fn commit(&self, applied: &crate::store::Applied, folded: usize) {
        self.applied.fetch_add(applied.applied, Ordering::Relaxed);
        self.duplicates.fetch_add(applied.duplicates, Ordering::Relaxed);
        self.stale.fetch_add(applied.stale, Ordering::Relaxed);
        self.folded.fetch_add(folded as u64, Ordering::Relaxed);
        Metric::Applied.add(applied.applied);
        Metric::Duplicates.add_labelled("layer", "membership", applied.duplicates);
        Metric::Stale.add_labelled("layer", "membership", applied.stale);
        Metric::Folded.add(folded as u64);
        Metric::Batches.add_labelled("replayed", if applied.replayed { "true" } else { "false" }, 1);
        if applied.applied > 0 && !applied.replayed {
            self.commits.fetch_add(1, Ordering::AcqRel);
        }
        self.unauthenticated_in_a_row.store(0, Ordering::Release);
        self.works();
    }

    fn works(&self) {
        if self.failures_in_a_row.swap(0, Ordering::AcqRel) >= FAILING_AFTER {
            Metric::Paused.set(0);
            self.works_again.notify_waiters();
        }
    }

    /// What failed was given up, so nothing may be left that tries the store: pulling goes on until it fails again.
    pub(crate) fn give_up(&self) {
        self.works();
    }

    /// An attempt failed. Answers whether from now on the store fails as a whole.
    pub(crate) fn failure(&self, class: &'static str) -> bool {
        Metric::FailedAttempts.add_labelled("class", class, 1);
        let failing = self.failures_in_a_row.fetch_add(1, Ordering::AcqRel) + 1 == FAILING_AFTER;
        if failing {
            Metric::Paused.set(1);
        }
        failing
    }

    /// The credentials were not accepted. Answers how often in a row.
    pub(crate) fn unauthenticated(&self) -> u32 {
        self.unauthenticated_in_a_row.fetch_add(1, Ordering::AcqRel) + 1
    }
}
