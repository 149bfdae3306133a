//! The lanes' side of the engine: what pullers and lanes share beside the buffer, and when a lane takes the next batch.

use crate::aggregate::{Aggregator, Sealed};
use crate::flush::{Lane, now};
use crate::receipt::Receipt;
use crate::store::StoreError;
use crate::telemetry::Metric;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

/// What pullers and lanes share beside the buffer.
pub(super) struct Work {
    pub(super) aggregator: Arc<Aggregator<Receipt>>,
    /// Something may be ready to be sealed.
    pub(super) ready: Notify,
    /// No more likes will come: what waits is sealed at once.
    pub(super) no_more: CancellationToken,
    /// Something waits aside.
    pub(super) aside: Arc<Notify>,
    /// Nothing more will be put aside.
    pub(super) no_more_aside: CancellationToken,
    /// One idle lane at a time waits for the next batch; the others wait for their turn.
    pub(super) turn: Mutex<()>,
}

pub(super) async fn run_lane(mut lane: Lane, work: Arc<Work>) -> Result<(), StoreError> {
    loop {
        let sealed = {
            let _turn = work.turn.lock().await;
            work.next_batch(&mut lane).await
        };
        match sealed {
            Some(sealed) => lane.flush(sealed).await?,
            None => return Ok(()),
        }
    }
}

pub(super) async fn run_aside(mut lane: Lane, work: Arc<Work>) -> Result<(), StoreError> {
    while let Some(sealed) = work.next_aside(&mut lane).await {
        lane.flush(sealed).await?;
    }
    Ok(())
}

impl Work {
    /// What waits aside, at once: while its lane is busy, more of it folds. `None` when nothing more will come.
    async fn next_aside(&self, lane: &mut Lane) -> Option<Sealed<Receipt>> {
        loop {
            // Registered before the look, so that what is put aside in between is not missed.
            let more = self.aside.notified();
            if let Some(sealed) = self.aggregator.seal_aside(lane.new_key()) {
                return Some(sealed);
            }
            if self.no_more_aside.is_cancelled() {
                return None;
            }
            tokio::select! {
                biased;
                () = more => {}
                () = self.no_more_aside.cancelled() => {}
            }
        }
    }

    /// The oldest likes that nobody else keeps writing.
    fn seal(&self, lane: &mut Lane) -> Option<Sealed<Receipt>> {
        self.aggregator.forget_contended(now());
        let sealed = self.aggregator.seal(lane.new_key());
        if self.aggregator.waits_aside() {
            self.aside.notify_one();
        }
        sealed
    }

    /// The next batch, when it is full or due; at the end whatever waits, then `None`.
    async fn next_batch(&self, lane: &mut Lane) -> Option<Sealed<Receipt>> {
        loop {
            // Registered before the look, so that a like that arrives in between is not missed.
            let ready = self.ready.notified();
            if self.no_more.is_cancelled() {
                return self.seal(lane);
            }
            let due_at = self.aggregator.due_at();
            let wanted = self.aggregator.is_full() || due_at.is_some_and(|due| due <= now());
            if wanted && let Some(sealed) = self.seal(lane) {
                Metric::Buffered.set(self.aggregator.len());
                return Some(sealed);
            }
            tokio::select! {
                biased;
                () = ready => {}
                () = self.no_more.cancelled() => {}
                () = until(due_at) => {}
            }
        }
    }
}

async fn until(due_at: Option<Instant>) {
    match due_at {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
