//! What travels with a like from its delivery to its settling: the delivery itself, and its share of the budget.

use crate::ack::{Ack, Confirmation, Settlement};
use crate::event::{Poison, outside};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, DELIVERY_BYTES};

    struct Nobody;

    impl crate::ack::SettleMany for Nobody {
        fn settled(&self, _: u32, _: &Settlement) {}
        fn dropped(&self, _: u32) {}
    }

    fn delivery(share: Option<Share>) -> Delivery {
        let meta = Meta {
            message_id: Some("m".repeat(100)),
            attributes: vec![("k".repeat(1_000), "v".repeat(20_000)); 5],
            ..Meta::default()
        };
        let ack = Ack::of_many(Arc::new(Nobody), 0);
        Delivery {
            payload: vec![0; 10].into(),
            received_at: SystemTime::UNIX_EPOCH,
            meta: Some(Box::new(meta)),
            ack,
            share,
        }
    }

    #[test]
    fn attributes_and_the_message_id_count_in_the_budget_until_the_delivery_is_settled() {
        let held = Held::new(Budget::new(10, 1 << 20));
        let receipt = Receipt::new(delivery(None), &held);
        let bytes = held.budget().bytes();
        assert!(bytes >= 10 + 100 + 5 * 21_000 + DELIVERY_BYTES, "{bytes}");
        receipt.settle(&Settlement::Counted);
        assert_eq!(held.budget().bytes(), 0);
    }

    #[test]
    fn what_its_source_has_taken_is_not_taken_again() {
        let held = Held::new(Budget::new(10, 1 << 20));
        let receipt = Receipt::new(delivery(Some(Share::new(&held, 7))), &held);
        assert_eq!((held.budget().deliveries(), held.budget().bytes()), (1, 7 + DELIVERY_BYTES));
        drop(receipt);
        assert_eq!((held.budget().deliveries(), held.budget().bytes()), (0, 0));
    }
}
