//! What travels with a like from its delivery to its settling: the delivery itself, and its share of the budget.

use crate::ack::{Ack, Confirmation, Settlement};
use crate::event::Poison;
use crate::held::{Held, Share};
use crate::source::{Delivery, Meta};
use crate::store::{Quarantined, quarantine_id};
use bytes::Bytes;
use std::sync::Arc;
use std::time::SystemTime;

/// A delivery that counts in the budget until its receipt is settled or dropped. Dropped means delivered again.
#[derive(Debug)]
pub struct Receipt {
    payload: Bytes,
    received_at: SystemTime,
    meta: Option<Box<Meta>>,
    ack: Ack,
    share: Share,
}

impl Receipt {
    /// Holds `delivery` from now on, in the room that its source has taken, or else in `held`.
    #[must_use]
    pub fn new(delivery: Delivery, held: &Arc<Held>) -> Self {
        let bytes = delivery.bytes();
        let Delivery { payload, received_at, meta, ack, share } = delivery;
        let share = share.unwrap_or_else(|| Share::new(held, bytes));
        Self { payload, received_at, meta, ack, share }
    }

    fn message_id(&self) -> Option<&str> {
        self.meta.as_deref()?.message_id.as_deref()
    }

    /// Whether this worker has settled the same message before, as far as it remembers: then its acknowledgement had no
    /// effect.
    #[must_use]
    pub fn was_settled_before(&self) -> bool {
        self.message_id().is_some_and(|id| self.share.held().settled().knows(id))
    }

    /// Acknowledges the delivery. Only for what is durable.
    pub fn settle(self, how: &Settlement) -> Option<Confirmation> {
        if let Some(id) = self.message_id() {
            self.share.held().settled().remember(id);
        }
        let Self { ack, share, .. } = self;
        let confirmation = ack.settle(how);
        drop(share);
        confirmation
    }

    /// The delivery as an entry of the quarantine.
    #[must_use]
    pub fn quarantined(&self, source: &str, poison: &Poison) -> Quarantined {
        let meta = self.meta.as_deref();
        Quarantined {
            id: quarantine_id(source, meta.and_then(|m| m.message_id.as_deref()), &self.payload),
            reason: poison.to_string(),
            data: self.payload.clone(),
            attributes: meta.map(|m| m.attributes.clone()).unwrap_or_default(),
            source: source.to_owned(),
            message_id: meta.and_then(|m| m.message_id.clone()),
            published_at: meta.and_then(|m| m.published_at),
            received_at: self.received_at,
            delivery_attempt: meta.and_then(|m| m.attempt),
        }
    }
}
