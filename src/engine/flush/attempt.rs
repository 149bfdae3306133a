//! One attempt at a part, and how a part ends: settled, quarantined, or left to redelivery.

use super::part::Part;
use super::{Shared, now};
use crate::engine::aggregate::Receipts;
use crate::engine::receipt::Receipt;
use crate::like::event::Poison;
use crate::source::ack::Settlement;
use crate::store::{Applied, StoreError};
use crate::telemetry::Metric;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An attempt under way, whoever waits for it; `None` when the part was left at its deadline.
pub(crate) type Flight = BoxFuture<'static, Option<Attempted>>;

/// An attempt that has ended.
pub(crate) struct Attempted {
    pub(super) part: Part,
    pub(super) answer: Result<Applied, StoreError>,
    pub(super) took: Duration,
    /// Writes that the store had taken when it began.
    pub(super) witnesses: u64,
}

impl Shared {
    /// When a part is given up, unless a drain's deadline comes first.
    pub(super) fn deadline_of(&self, part: &Part) -> Instant {
        part.sealed.oldest() + self.retry_deadline
    }

    /// Begins an attempt. It owns what it needs, so that a lane can hand it over.
    pub(super) fn attempt(self: &Arc<Self>, mut part: Part, shard: u16) -> Flight {
        let shared = Arc::clone(self);
        Box::pin(async move {
            let attempt = part.next_attempt(shard);
            let (began, witnesses) = (now(), shared.health.witnesses());
            let answer = tokio::select! {
                biased;
                () = shared.drain.expire(shared.deadline_of(&part)) => {
                    shared.leave(part);
                    return None;
                }
                answer = shared.store.apply(part.sealed.batch(), attempt) => answer,
            };
            let took = now().saturating_duration_since(began);
            Some(Attempted { part, answer, took, witnesses })
        })
    }

    /// The batch is durable: remember it, then acknowledge.
    pub(super) async fn settle(&self, part: Part, applied: &Applied, took: Duration) {
        let progress = &self.progress;
        let folded = part.sealed.deliveries() - part.sealed.likes();
        self.aggregator.remember(part.sealed.batch());
        progress.commit(applied, folded);
        Metric::CommitSeconds.observe(took);
        progress.commit_latency.record(took);
        let oldest = part.sealed.oldest();
        for receipt in part.sealed.into_receipts().into_iter().flatten() {
            if let Some(confirmation) = receipt.settle(&Settlement::Counted) {
                // Closed only when the worker is being torn down; then nobody waits for the broker's answer.
                let _ = self.confirmations.send(confirmation).await;
            }
        }
        let waited = now().saturating_duration_since(oldest);
        self.held.show();
        Metric::SettleSeconds.observe(waited);
        progress.settle_latency.record(waited);
    }

    /// Quarantines the likes of a part. The deliveries folded into them are dropped: they come back and are decided
    /// without them.
    pub(super) fn quarantine(&self, part: Part, why: &str) {
        let mut left = 0;
        for Receipts { own, folded } in part.sealed.into_receipts() {
            left += folded.len();
            drop(folded);
            if let Some(receipt) = own {
                left += usize::from(!self.send_poison(receipt, Poison::refused_by_store(why)));
            }
        }
        self.progress.leave(left);
    }

    /// Answers whether the quarantine takes it. It has room for all that the budget holds, so it says no only when it is
    /// being torn down; then the receipt is dropped, and dropped means delivered again.
    fn send_poison(&self, receipt: Receipt, poison: Poison) -> bool {
        self.poison.try_send((receipt, poison)).is_ok()
    }

    /// Drops what cannot be kept any longer.
    pub(super) fn leave(&self, part: Part) {
        if let ([like], Some(row)) = (part.sealed.batch().likes(), part.state.refusals()) {
            self.recent.refusals.remember(like, row, now());
        }
        let deliveries = part.sealed.deliveries();
        tracing::warn!(deliveries, "a batch could not be committed in time and is left to redelivery");
        drop(part);
        self.progress.leave(deliveries);
    }
}
