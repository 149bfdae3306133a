//! One stream of the source: pull while there is room, decode, add.

use super::Work;
use crate::common::backoff::{Backoff, InARow};
use crate::engine::aggregate::Added;
use crate::engine::flush::now;
use crate::engine::progress::Progress;
use crate::engine::receipt::Receipt;
use crate::engine::watchdog::Heartbeat;
use crate::like::event::{OrderPolicy, Poison, decode_with};
use crate::source::ack::{Confirmation, Settlement};
use crate::source::in_flight::{InFlight, Reserved};
use crate::source::{Delivery, RoomTaken, Source, SourceError, Stream};
use crate::telemetry::Metric;
use futures::FutureExt;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Deliveries taken at once. About a third of a millisecond of decoding, so that one task does not keep a thread long.
const MAX_PULL: usize = 1_000;

/// What one stream asks for at once. A stream that waits for messages keeps its room reserved, so all of them together
/// ask for no more than half of the window: a single busy one still has the other half.
pub(super) fn deliveries_a_pull(max_held: usize, streams: usize) -> usize {
    (max_held / (2 * streams.max(1))).clamp(1, MAX_PULL)
}

/// The pause after poison was dropped, because the quarantine takes none: a broker that delivers it again at once is not to be asked at
/// the speed of the CPU.
const PAUSE_AFTER_DROPPED_POISON: Duration = Duration::from_millis(50);

/// The task of one stream.
pub(super) struct Puller {
    pub(super) source: Arc<dyn Source>,
    pub(super) number: usize,
    pub(super) work: Arc<Work>,
    pub(super) held: Arc<InFlight>,
    pub(super) progress: Arc<Progress>,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) poison: mpsc::Sender<(Receipt, Poison)>,
    pub(super) confirmations: mpsc::Sender<Confirmation>,
    pub(super) order: OrderPolicy,
    pub(super) backoff: Backoff,
    /// See [`deliveries_a_pull`].
    pub(super) most: usize,
    pub(super) stop: CancellationToken,
}

impl Puller {
    /// Pulls until the source ends or the worker stops pulling. A transient error opens the stream again, later each
    /// time that it comes soon after another one; any other ends the worker.
    pub(super) async fn run(self, seed: u64) -> Result<(), SourceError> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut in_a_row = InARow::default();
        loop {
            let Err(error) = self.serve(&mut in_a_row).await else { return Ok(()) };
            if !error.transient {
                return Err(error);
            }
            let failures = in_a_row.failed(now());
            Metric::StreamRestarts.add(1);
            tracing::warn!(stream = self.number, failures, "the stream is opened again: {error}");
            self.heartbeat.is_down(error.message);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(self.backoff.wait(failures, &mut rng)) => {}
            }
        }
    }

    /// Serves one opening of the stream, until it ends or the worker stops pulling.
    async fn serve(&self, in_a_row: &mut InARow) -> Result<(), SourceError> {
        let mut stream = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            opened = self.source.open(self.number) => opened?,
        };
        self.heartbeat.is_open();
        self.progress.set_pulling(true);
        // Cancelling it between deliveries loses none: `pull` is cancel safe, and what it has answered is taken without an
        // await.
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            ended = self.pull(&mut *stream, in_a_row) => return ended,
        }
        self.finish(&mut *stream).await;
        Ok(())
    }

    async fn pull(&self, stream: &mut dyn Stream, in_a_row: &mut InARow) -> Result<(), SourceError> {
        loop {
            self.progress.store_works().await;
            let room = self.room().await;
            let most = room.as_ref().map_or(self.most, Reserved::deliveries);
            let deliveries = stream.pull(most).await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            in_a_row.worked();
            self.heartbeat.working("waits for acknowledgements to be taken");
            let dropped_poison = self.take_in(deliveries, room).await;
            if dropped_poison > 0 {
                tokio::time::sleep(PAUSE_AFTER_DROPPED_POISON).await;
            }
            self.heartbeat.idle();
        }
    }

    /// At the end, what the stream has received already is counted with the rest, as far as there is room, unless the store
    /// fails: to give it back costs each message a delivery attempt.
    async fn finish(&self, stream: &mut dyn Stream) {
        while !self.progress.store_failing()
            && let Some(room) = self.held.reserve(self.most).now_or_never()
        {
            let deliveries = stream.received(room.deliveries());
            if deliveries.is_empty() {
                return;
            }
            self.take_in(deliveries, Some(room)).await;
        }
    }

    /// Takes deliveries and passes on the broker's answers that are to be waited for. Answers how much poison was dropped.
    async fn take_in(&self, deliveries: Vec<Delivery>, room: Option<Reserved>) -> usize {
        let taken = self.take(deliveries);
        drop(room);
        for confirmation in taken.confirmations {
            // Closed only when the worker is being torn down; then nobody waits for the broker's answer.
            let _ = self.confirmations.send(confirmation).await;
        }
        if taken.dropped_poison > 0 {
            self.progress.leave(taken.dropped_poison);
        }
        taken.dropped_poison
    }

    /// Room for at least one delivery, unless the source has taken it. A stream that fails meanwhile says so later.
    async fn room(&self) -> Option<Reserved> {
        if self.source.room_taken() == RoomTaken::BySource {
            return None;
        }
        if let Some(room) = self.held.reserve(self.most).now_or_never() {
            return Some(room);
        }
        self.heartbeat.waits_for_room();
        let _waits = self.work.wait_for_room();
        let room = self.held.reserve(self.most).await;
        self.heartbeat.idle();
        Some(room)
    }

    /// Poison waits for the quarantine in the room that every delivery has. Only a quarantine that takes none although the
    /// store works has a share of it, so that the healthy are not stalled: beyond it the delivery is dropped and comes back.
    fn send_poison(&self, receipt: Receipt, poison: Poison) -> bool {
        !self.progress.quarantine_full() && self.poison.try_send((receipt, poison)).is_ok()
    }

    /// Decodes and adds. What is known already is settled here.
    fn take(&self, deliveries: Vec<Delivery>) -> Taken {
        self.progress.receive(deliveries.len());
        let (mut duplicates, mut stale, mut taken) = (0, 0, Taken::default());
        let (mut from_the_future, mut settled_before) = (0, 0);
        let mut adder = self.work.aggregator.adder(now());
        for delivery in deliveries {
            let attributes = delivery.meta.as_deref().map_or(&[][..], |meta| &meta.attributes);
            let decoded = decode_with(&delivery.payload, attributes, self.order, delivery.seen_at());
            let receipt = Receipt::new(delivery, &self.held);
            settled_before += u64::from(receipt.was_settled_before());
            let like = match decoded {
                Ok(like) => like,
                Err(poison) => {
                    from_the_future += u64::from(poison.is_from_the_future());
                    taken.dropped_poison += usize::from(!self.send_poison(receipt, poison));
                    continue;
                }
            };
            match adder.add(like, receipt) {
                Added::Buffered | Added::Folded => {}
                Added::Duplicate(receipt) => {
                    duplicates += 1;
                    taken.confirmations.extend(receipt.settle(&Settlement::Counted));
                }
                Added::Stale(receipt) => {
                    stale += 1;
                    taken.confirmations.extend(receipt.settle(&Settlement::Counted));
                }
            }
        }
        drop(adder);
        self.progress.known(duplicates, stale);
        self.progress.doubtful(from_the_future, settled_before);
        self.held.show();
        if !self.work.aggregator.is_empty() {
            self.work.ready.notify_one();
        }
        taken
    }
}

/// What is left to do for deliveries that were taken.
#[derive(Default)]
struct Taken {
    /// Answers of the broker to wait for.
    confirmations: Vec<Confirmation>,
    dropped_poison: usize,
}
