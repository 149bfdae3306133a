//! One body on its way into the queue: read while there is room, cut into events, each held in the budget.
//!
//! What is read and not yet an event counts in the budget too. An event that is larger than a chunk takes one of a few
//! places before it is read further: all of those together fit in half of the budget, so large events that wait for each
//! other's room cannot exist, and the small ones always have the other half.

use super::answer::Refused;
use super::request::Request;
use super::{BODY_WITHIN, Door, MAX_BODY_BYTES};
use crate::like::framing::{Framer, Framing, Record};
use crate::source::ack::Ack;
use crate::source::in_flight::{HeldBytes, InFlight, Reserved, Share};
use crate::source::{Delivery, Meta};
use axum::body::{BodyDataStream, Bytes};
use futures::StreamExt;
use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::SemaphorePermit;

/// What may be read of an event before it takes a place among the large ones. A legal like is smaller than 10 KiB.
const SMALL_BYTES: usize = 128 << 10;

/// Events whose room is reserved at once.
const EVENTS_AT_ONCE: usize = 64;

/// How many large events may be read at once in a budget of so many bytes.
pub(super) fn large_events_at_once(max_bytes: usize) -> usize {
    (max_bytes / 2 / MAX_BODY_BYTES).max(1)
}

/// What a request is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its sender.
    Reading,
    /// The budget.
    WaitingForRoom,
    /// The store.
    Settling,
}

/// A body that is being read.
pub(super) struct Intake<'a> {
    door: &'a Door,
    request: &'a Arc<Request>,
    stage: Stage,
    framer: Framer,
    /// For what is read and is no event yet.
    read: HeldBytes,
    /// A place among the large events, and the bytes that were taken with it.
    large: Option<(SemaphorePermit<'a>, usize)>,
    /// How large an event may get.
    most: usize,
    /// What its head says of the only event.
    meta: Option<Meta>,
}

impl<'a> Intake<'a> {
    /// Nothing read yet of a body of `length` bytes, where that is known.
    pub(super) fn new(
        door: &'a Door,
        request: &'a Arc<Request>,
        framing: Framing,
        length: Option<usize>,
        meta: Option<Meta>,
    ) -> Self {
        Self {
            door,
            request,
            stage: Stage::Reading,
            framer: Framer::new(framing, MAX_BODY_BYTES),
            read: HeldBytes::none(&door.held),
            large: None,
            most: length.unwrap_or(MAX_BODY_BYTES),
            meta,
        }
    }

    /// What the request is waiting for.
    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether many events were sent rather than one.
    pub(super) fn many(&self) -> bool {
        self.framer.many()
    }

    /// The next chunk of the body, once there is room for it.
    pub(super) async fn next(&mut self, body: &mut BodyDataStream) -> Result<Option<Bytes>, Refused> {
        self.stage = Stage::WaitingForRoom;
        self.read.grow(0).await;
        self.stage = Stage::Reading;
        match tokio::time::timeout(BODY_WITHIN, body.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
            Ok(Some(Err(error))) => Err(Refused::Broken(innermost(&error))),
            Err(_) => Err(Refused::Slow),
        }
    }

    /// Takes the events that are complete with this chunk.
    pub(super) async fn take(&mut self, chunk: &[u8]) -> Result<(), Refused> {
        self.stage = Stage::WaitingForRoom;
        self.read.grow(chunk.len()).await;
        if self.framer.pending_bytes() + chunk.len() > SMALL_BYTES && self.large.is_none() {
            // Never closed.
            let place = self.door.large.acquire().await.ok();
            self.read.grow(self.most).await;
            self.large = place.map(|place| (place, self.read.bytes()));
        }
        self.framer.push(chunk);
        self.records().await?;
        if self.framer.pending_bytes() <= SMALL_BYTES {
            self.large = None;
        }
        // What was only passed over, as padding, holds nothing: a body must never wait for room that it has itself.
        let taken = self.large.as_ref().map_or(0, |(_, bytes)| *bytes);
        self.read.set(self.framer.held_bytes().max(taken));
        Ok(())
    }

    /// The body has ended: takes what is left, and waits until all is settled or dropped.
    pub(super) async fn finish(&mut self) -> Result<(), Refused> {
        self.stage = Stage::WaitingForRoom;
        self.framer.finish();
        self.records().await?;
        self.read.set(self.framer.held_bytes());
        if self.request.received() == 0 {
            return Err(Refused::NoEvent);
        }
        self.stage = Stage::Settling;
        self.request.finished().await;
        Ok(())
    }

    /// Hands over the events that are complete.
    async fn records(&mut self) -> Result<(), Refused> {
        let received_at = SystemTime::now();
        let mut room = Room { held: &self.door.held, reserved: None, left: 0 };
        loop {
            let record = self.framer.next_record();
            if let Some(refusal) = self.framer.refusal() {
                return Err(Refused::Form(refusal));
            }
            let Some(Record { line, payload, .. }) = record else { return Ok(()) };
            room.one_more().await;
            self.request.one_more();
            let meta = self.meta.take().map(Box::new);
            let ack = Ack::of_many(self.request.clone(), line);
            let mut delivery = Delivery { payload, received_at, meta, ack, share: None };
            delivery.share = Some(Share::new(&self.door.held, delivery.bytes()));
            // Where the worker does not take events, dropping says so; and a closed queue drops the delivery too.
            if self.door.shared.is_served() {
                let _ = self.door.shared.queue.send(delivery).await;
            }
        }
    }
}

/// Room for some events, reserved together.
struct Room<'a> {
    held: &'a Arc<InFlight>,
    reserved: Option<Reserved>,
    left: usize,
}

impl Room<'_> {
    /// Waits until there is room for one more.
    async fn one_more(&mut self) {
        if self.left == 0 {
            self.reserved = None;
            let reserved = self.held.reserve(EVENTS_AT_ONCE).await;
            self.left = reserved.deliveries();
            self.reserved = Some(reserved);
        }
        self.left -= 1;
    }
}

/// The cause of a failure, without what only says that there was one.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
