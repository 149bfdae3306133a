//! What travels with a like from its delivery to its settling: the delivery itself, and its share of the budget.

use crate::ack::{Ack, Confirmation, Settlement};
use crate::aggregate::Budget;
use crate::event::{Poison, outside};
use crate::source::{Delivery, Meta};
use crate::store::{Quarantined, quarantine_id};
use crate::telemetry::Metric;
use bytes::Bytes;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Notify;

/// The budget, and whoever waits for room in it.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    room: Notify,
}

impl Held {
    /// Nothing held yet.
    #[must_use]
    pub fn new(budget: Budget) -> Arc<Self> {
        Arc::new(Self { budget, room: Notify::new() })
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Shows what is held now.
    pub fn show(&self) {
        Metric::HeldDeliveries.set(self.budget.deliveries());
        Metric::HeldBytes.set(self.budget.bytes());
    }

    /// Waits until there is room for at least one delivery, and reserves it for `most` at most.
    pub async fn reserve(self: &Arc<Self>, most: usize) -> Reserved {
        loop {
            // Registered before the look, so that a release in between is not missed.
            let released = self.room.notified();
            let deliveries = self.budget.reserve(most);
            if deliveries > 0 {
                return Reserved { held: Arc::clone(self), deliveries };
            }
            released.await;
        }
    }
}

/// Room for deliveries that are asked for. To be dropped when what came is held.
#[derive(Debug)]
pub struct Reserved {
    held: Arc<Held>,
    deliveries: usize,
}

impl Reserved {
    /// For how many.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.deliveries
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.held.budget.unreserve(self.deliveries);
        self.held.room.notify_waiters();
    }
}

/// A delivery that counts in the budget until its receipt is settled or dropped. Dropped means delivered again.
#[derive(Debug)]
pub struct Receipt {
    payload: Bytes,
    received_at: SystemTime,
    meta: Option<Box<Meta>>,
    ack: Ack,
    share: Share,
}

#[derive(Debug)]
struct Share {
    held: Arc<Held>,
    payload_bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.held.budget.release(self.payload_bytes) {
            self.held.room.notify_waiters();
        }
    }
}

impl Receipt {
    /// Holds `delivery` from now on.
    #[must_use]
    pub fn new(delivery: Delivery, held: &Arc<Held>) -> Self {
        let Delivery { payload, received_at, meta, ack } = delivery;
        held.budget.hold(payload.len());
        let share = Share { held: Arc::clone(held), payload_bytes: payload.len() };
        Self { payload, received_at, meta, ack, share }
    }

    /// Acknowledges the delivery. Only for what is durable.
    pub fn settle(self, how: &Settlement) -> Option<Confirmation> {
        let Self { ack, share, .. } = self;
        let confirmation = ack.settle(how);
        drop(share);
        confirmation
    }

    /// The delivery as an entry of the quarantine. What came over HTTP or in a file may have a broker's message around it;
    /// then that says what a broker would have.
    #[must_use]
    pub fn quarantined(&self, source: &str, poison: &Poison) -> Quarantined {
        let meta = self.meta.as_deref();
        let outside = match meta {
            Some(Meta { message_id: Some(_), .. }) => None,
            _ => outside(&self.payload),
        };
        let outside = outside.unwrap_or_default();
        let message_id = meta.and_then(|m| m.message_id.clone()).or(outside.message_id);
        let mut attributes = meta.map(|m| m.attributes.clone()).unwrap_or_default();
        attributes.extend(outside.attributes);
        Quarantined {
            id: quarantine_id(source, message_id.as_deref(), &self.payload),
            reason: poison.to_string(),
            data: self.payload.clone(),
            attributes,
            source: source.to_owned(),
            message_id,
            published_at: meta.and_then(|m| m.published_at).or(outside.published_at),
            received_at: self.received_at,
            delivery_attempt: meta.and_then(|m| m.attempt).or(outside.attempt),
        }
    }
}
