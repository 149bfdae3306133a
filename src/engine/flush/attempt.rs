//! One attempt at a piece, and how a piece ends: settled, quarantined, or left to redelivery.

use super::piece::Piece;
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

/// An attempt under way, whoever waits for it; `None` when the piece was left at its deadline.
pub(crate) type Flight = BoxFuture<'static, Option<Attempted>>;

/// An attempt that has ended.
pub(crate) struct Attempted {
    pub(super) piece: Piece,
    pub(super) answer: Result<Applied, StoreError>,
    pub(super) took: Duration,
    /// Writes that the store had taken when it began.
    pub(super) witnesses: u64,
}

impl Shared {
    /// When a piece is given up, unless a drain's deadline comes first.
    pub(super) fn deadline_of(&self, piece: &Piece) -> Instant {
        piece.sealed.oldest() + self.config.retry_deadline
    }

    /// Begins an attempt. It owns what it needs, so that a lane can hand it over.
    pub(super) fn attempt(self: &Arc<Self>, mut piece: Piece, shard: u16) -> Flight {
        let shared = Arc::clone(self);
        Box::pin(async move {
            let attempt = piece.next_attempt(shard);
            let (began, witnesses) = (now(), shared.health.witnesses());
            let answer = tokio::select! {
                biased;
                () = shared.drain.expire(shared.deadline_of(&piece)) => {
                    shared.leave(piece);
                    return None;
                }
                answer = shared.store.apply(piece.sealed.batch(), attempt) => answer,
            };
            let took = now().saturating_duration_since(began);
            Some(Attempted { piece, answer, took, witnesses })
        })
    }

    /// The batch is durable: remember it, then acknowledge.
    pub(super) async fn settle(&self, piece: Piece, applied: &Applied, took: Duration) {
        let progress = &self.progress;
        let folded = piece.sealed.deliveries() - piece.sealed.likes();
        self.aggregator.remember(piece.sealed.batch());
        progress.commit(applied, folded);
        Metric::CommitSeconds.observe(took);
        progress.commit_latency.record(took);
        let oldest = piece.sealed.oldest();
        for receipt in piece.sealed.into_receipts().into_iter().flatten() {
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

    /// Quarantines the likes of a piece. The deliveries folded into them are dropped: they come back and are decided
    /// without them.
    pub(super) fn quarantine(&self, piece: Piece, why: &str) {
        let mut left = 0;
        for Receipts { own, folded } in piece.sealed.into_receipts() {
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
    pub(super) fn leave(&self, piece: Piece) {
        if let ([like], Some(row)) = (piece.sealed.batch().likes(), piece.state.refusals()) {
            self.recent.refusals.remember(like, row, now());
        }
        let deliveries = piece.sealed.deliveries();
        tracing::warn!(deliveries, "a batch could not be committed in time and is left to redelivery");
        drop(piece);
        self.progress.leave(deliveries);
    }
}
