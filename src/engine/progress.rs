//! What a running worker has done so far: the numbers of the contract, and whether the store works.

use crate::common::backoff::InARow;
use crate::common::sync::Locked;
use crate::engine::watchdog::Heartbeats;
use crate::telemetry::{Latencies, Metric};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// How deliveries ended. `received` is the sum of the others once everything is settled.
///
/// As JSON it is what `run` and `replay` end with: these names, these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    from_the_future: AtomicU64,
    settled_before: AtomicU64,
    unconfirmed: AtomicU64,
    commits: AtomicU64,
    witnesses: AtomicU64,
    store_fails: AtomicBool,
    quarantine_full: AtomicBool,
    unauthenticated: Mutex<InARow>,
    pulling: AtomicBool,
    works_again: Notify,
    fails_now: Notify,
    heartbeats: Heartbeats,
    /// What the watchdog found: the same words each time, and how it is told.
    findings: Mutex<Vec<(String, String)>>,
    /// What others found, by its name.
    named: Mutex<BTreeMap<&'static str, String>>,
    /// One attempt at a batch that was answered.
    pub commit_latency: Latencies,
    /// From the arrival of the oldest like of a batch to its settling.
    pub settle_latency: Latencies,
}

impl Counted {
    /// Deliveries that were settled: all that were received, once nothing is under way or left to redelivery.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.applied + self.folded + self.duplicates + self.stale + self.poison
    }
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

    /// Deliveries whose event says that it happened later than is possible.
    #[must_use]
    pub fn from_the_future(&self) -> u64 {
        self.from_the_future.load(Ordering::Relaxed)
    }

    /// Deliveries of a message that this worker had settled before.
    #[must_use]
    pub fn settled_before(&self) -> u64 {
        self.settled_before.load(Ordering::Relaxed)
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

    /// Commits that wrote a like, and probes: each shows that the store took a write just then.
    #[must_use]
    pub fn witnesses(&self) -> u64 {
        self.witnesses.load(Ordering::Acquire)
    }

    /// Whether the store fails as a whole: then nothing is pulled, and batches and their leases are kept.
    #[must_use]
    pub fn store_failing(&self) -> bool {
        self.store_fails.load(Ordering::Acquire)
    }

    /// Why the worker should be given no work now, one reason a line; empty when it is ready.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.store_failing() {
            reasons.push("the store fails as a whole; pulling has stopped".to_owned());
        }
        if !self.pulling.load(Ordering::Acquire) {
            reasons.push("no stream of the source is open".to_owned());
        } else if let Some(why) = self.heartbeats.all_streams_down() {
            reasons.push(format!("no stream of the source is open: {why}"));
        }
        let findings = self.findings.locked();
        reasons.extend(findings.iter().map(|(_, told)| told.clone()));
        drop(findings);
        let named = self.named.locked();
        reasons.extend(named.values().cloned());
        reasons
    }

    /// Something that its finder takes back itself: `told` while it lasts, `None` when it is over. What is new and what is
    /// over goes to the log.
    pub fn set_finding(&self, name: &'static str, told: Option<String>) {
        let mut named = self.named.locked();
        match told {
            Some(told) => {
                if !named.contains_key(name) {
                    tracing::error!(what = name, "not ready: {told}");
                }
                named.insert(name, told);
            }
            None if named.remove(name).is_some() => tracing::info!("over: {name}"),
            None => return,
        }
        let number = named.len();
        drop(named);
        let of_the_watchdog = self.findings.locked().len();
        Metric::Findings.set(of_the_watchdog + number);
    }

    /// What the tasks say they are doing.
    #[must_use]
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// The watchdog looked. What is new and what is over goes to the log.
    pub(crate) fn found(&self, now: Vec<(String, String)>) {
        let named = self.named.locked().len();
        Metric::Findings.set(now.len() + named);
        let mut before = self.findings.locked();
        for (what, told) in now.iter().filter(|(what, _)| before.iter().all(|(old, _)| old != what)) {
            tracing::error!(what, "not ready: {told}");
        }
        for (what, _) in before.iter().filter(|(what, _)| now.iter().all(|(new, _)| new != what)) {
            tracing::info!("over: {what}");
        }
        *before = now;
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

    /// Returns when the store fails as a whole.
    pub(crate) async fn store_fails(&self) {
        loop {
            // Registered before the look, as above.
            let fails = self.fails_now.notified();
            if self.store_failing() {
                return;
            }
            fails.await;
        }
    }

    /// Whether the quarantine takes nothing although the store works, and has all that may wait for it then.
    pub(crate) fn quarantine_full(&self) -> bool {
        self.quarantine_full.load(Ordering::Acquire)
    }

    pub(crate) fn set_quarantine_full(&self, full: bool) {
        self.quarantine_full.store(full, Ordering::Release);
    }

    pub(crate) fn set_pulling(&self, pulling: bool) {
        self.pulling.store(pulling, Ordering::Release);
    }

    pub(crate) fn receive(&self, deliveries: usize) {
        self.received.fetch_add(deliveries as u64, Ordering::Relaxed);
        Metric::Received.add(deliveries as u64);
    }

    /// Duplicates and stale likes that the recent likes knew.
    pub(crate) fn known(&self, duplicates: u64, stale: u64) {
        self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
        self.stale.fetch_add(stale, Ordering::Relaxed);
        Metric::Duplicates.add_labelled("layer", "recent", duplicates);
        Metric::Stale.add_labelled("layer", "recent", stale);
    }

    /// Deliveries that are fine now and then, and a finding when they are many.
    pub(crate) fn doubtful(&self, from_the_future: u64, settled_before: u64) {
        self.from_the_future.fetch_add(from_the_future, Ordering::Relaxed);
        self.settled_before.fetch_add(settled_before, Ordering::Relaxed);
        Metric::FromTheFuture.add(from_the_future);
        Metric::SettledBefore.add(settled_before);
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
        self.unauthenticated_row().worked();
        if applied.applied > 0 && !applied.replayed {
            self.commits.fetch_add(1, Ordering::AcqRel);
            self.witness();
        }
    }

    /// The store took a write. Whatever failed as a whole is over.
    pub(crate) fn witness(&self) {
        self.witnesses.fetch_add(1, Ordering::AcqRel);
        self.unauthenticated_row().worked();
        if self.store_fails.swap(false, Ordering::AcqRel) {
            Metric::Paused.set(0);
            tracing::info!("the store works again");
            self.works_again.notify_waiters();
        }
    }

    /// An attempt failed. That says nothing about the store yet.
    pub(crate) fn failure(&self, class: &'static str) {
        Metric::FailedAttempts.add_labelled("class", class, 1);
    }

    /// A probe failed: the store fails as a whole. Answers whether this is new.
    pub(crate) fn pause(&self) -> bool {
        let new = !self.store_fails.swap(true, Ordering::AcqRel);
        if new {
            Metric::Paused.set(1);
            self.fails_now.notify_waiters();
        }
        new
    }

    /// The credentials were not accepted. Answers how often in a row.
    pub(crate) fn unauthenticated(&self) -> u32 {
        self.unauthenticated_row().failed(tokio::time::Instant::now().into_std())
    }

    fn unauthenticated_row(&self) -> MutexGuard<'_, InARow> {
        // Each change under the lock is whole.
        self.unauthenticated.locked()
    }
}
