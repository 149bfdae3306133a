//! The lanes' side of the engine: what pullers and lanes share beside the buffer, and when a lane takes the next batch.

use crate::engine::aggregate::{Aggregator, Sealed};
use crate::engine::flush::{Errand, Lane, Waiting, now};
use crate::engine::receipt::Receipt;
use crate::source::in_flight::InFlight;
use crate::telemetry::Metric;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// What waits aside.
    pub(super) waiting: Arc<Waiting>,
    /// Nothing more will be put aside by the lanes.
    pub(super) no_more_contended: CancellationToken,
    held: Arc<InFlight>,
    /// Deliveries that the source hands out at once.
    max_outstanding: Option<usize>,
    /// Streams that would pull, and there is no room.
    waits_for_room: AtomicUsize,
    /// One idle lane at a time waits for the next batch; the others wait for their turn.
    turn: Mutex<()>,
    contended_turn: Mutex<()>,
}

pub(super) async fn run_lane(mut lane: Lane, work: Arc<Work>) {
    loop {
        let sealed = {
            let _turn = work.turn.lock().await;
            work.next_batch(&mut lane).await
        };
        match sealed {
            Some(sealed) => lane.flush(sealed).await,
            None => return,
        }
    }
}

pub(super) async fn run_contended(mut lane: Lane, work: Arc<Work>) {
    loop {
        let errand = {
            let _turn = work.contended_turn.lock().await;
            work.next_errand(&mut lane).await
        };
        match errand {
            Some(errand) => lane.serve(errand).await,
            None => return,
        }
    }
}

/// While it is there, a stream waits for room.
pub(super) struct WaitsForRoom<'a>(&'a Work);

impl Drop for WaitsForRoom<'_> {
    fn drop(&mut self) {
        self.0.waits_for_room.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Work {
    pub(super) fn new(
        aggregator: Arc<Aggregator<Receipt>>,
        held: Arc<InFlight>,
        max_outstanding: Option<usize>,
    ) -> Self {
        Self {
            aggregator,
            ready: Notify::new(),
            no_more: CancellationToken::new(),
            waiting: Arc::default(),
            no_more_contended: CancellationToken::new(),
            held,
            max_outstanding,
            waits_for_room: AtomicUsize::new(0),
            turn: Mutex::new(()),
            contended_turn: Mutex::new(()),
        }
    }

    /// A stream waits for room from now on: what is held must be committed, for company cannot come.
    pub(super) fn wait_for_room(&self) -> WaitsForRoom<'_> {
        self.waits_for_room.fetch_add(1, Ordering::AcqRel);
        self.ready.notify_one();
        WaitsForRoom(self)
    }

    /// Whether nothing can come that is worth waiting for: a stream waits until something is committed, or all that the
    /// source hands out at once is held.
    fn no_company_can_come(&self) -> bool {
        self.waits_for_room.load(Ordering::Acquire) > 0
            || self.max_outstanding.is_some_and(|most| self.held.budget().deliveries() >= most)
    }

    /// What has come up aside: a part whose time has come, or likes that wait there; more of their members fold while they
    /// are under way. `None` when nothing more will come.
    async fn next_errand(&self, lane: &mut Lane) -> Option<Errand> {
        let shared = Arc::clone(&lane.shared);
        loop {
            // Registered before the look, so that what is put aside in between is not missed.
            let changed = self.waiting.changed().notified();
            let give_up = shared.drain.deadline();
            if let Some(errand) = self.waiting.take(now(), give_up) {
                return Some(errand);
            }
            if let Some(sealed) = self.aggregator.seal_contended(lane.new_key()) {
                return Some(shared.errand_of_contended(sealed));
            }
            let ends = self.no_more_contended.is_cancelled();
            if ends && self.waiting.is_empty() {
                return None;
            }
            let finding_ends = shared.look_at_findings(now()).filter(|_| give_up.is_none());
            let look_at = self.waiting.next_due().into_iter().chain(finding_ends).min();
            tokio::select! {
                biased;
                () = changed => {}
                () = self.no_more_contended.cancelled(), if !ends => {}
                () = async {
                    match look_at {
                        Some(at) => shared.drain.expire(at).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    /// The oldest likes of members that make no trouble.
    fn seal(&self, lane: &mut Lane) -> Option<Sealed<Receipt>> {
        self.aggregator.forget_contended(now());
        let sealed = self.aggregator.seal(lane.new_key());
        if self.aggregator.contended_waiting() {
            self.waiting.changed().notify_waiters();
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
            let wanted =
                self.aggregator.is_full() || due_at.is_some_and(|due| due <= now() || self.no_company_can_come());
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
