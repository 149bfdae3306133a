//! What travels with a like from its delivery to its settling: the delivery itself, and its share of the budget.

use crate::like::event::{Outside, Poison, outside};
use crate::source::ack::{Ack, Confirmation, Settlement};
use crate::source::in_flight::{InFlight, Share};
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
    pub fn new(delivery: Delivery, held: &Arc<InFlight>) -> Self {
        let bytes = delivery.bytes();
        let Delivery { payload, received_at, meta, ack, share } = delivery;
        let share = share.unwrap_or_else(|| Share::new(held, bytes));
        Self { payload, received_at, meta, ack, share }
    }

    /// The bytes of its payload.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.payload.len()
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
        // Anybody may write any id into an envelope, so two messages that differ are two entries.
        let id = match &outside {
            Some(Outside { message_id: Some(id), data, .. }) => {
                quarantine_id(source, None, &[id.as_bytes(), b"\0", data].concat())
            }
            _ => quarantine_id(source, meta.and_then(|m| m.message_id.as_deref()), &self.payload),
        };
        let outside = outside.unwrap_or_default();
        let message_id = meta.and_then(|m| m.message_id.clone()).or(outside.message_id);
        let mut attributes = meta.map(|m| m.attributes.clone()).unwrap_or_default();
        attributes.extend(outside.attributes);
        Quarantined {
            id,
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
    use crate::common::budget::{Budget, DELIVERY_BYTES};
    use crate::source::ack::SettleMany;

    struct Nobody;

    impl SettleMany for Nobody {
        fn settled(&self, _: u32, _: &Settlement) {}
        fn dropped(&self, _: u32) {}
    }

    /// Pub/Sub counts the attempts of a push, so no two of its bodies are the same.
    #[test]
    fn a_push_that_is_poison_has_one_entry_however_often_it_is_delivered() {
        let held = InFlight::new(Budget::new(10, 1 << 20));
        let quarantined = |data: &str, attempt: u32| {
            let payload = format!(
                r#"{{"message":{{"data":"{data}","messageId":"11","publishTime":"1970-01-01T00:00:01Z","attributes":{{"a":"b"}}}},
                    "subscription":"s","deliveryAttempt":{attempt}}}"#
            );
            let delivery = Delivery {
                payload: payload.into(),
                received_at: SystemTime::UNIX_EPOCH,
                meta: None,
                ack: Ack::of_many(Arc::new(Nobody), 0),
                share: None,
            };
            Receipt::new(delivery, &held).quarantined("http", &Poison::refused_by_store("no"))
        };
        let (first, again) = (quarantined("e30=", 1), quarantined("e30=", 2));
        assert_eq!((&first.id, &first.message_id), (&again.id, &Some("11".to_owned())));
        assert_eq!((first.delivery_attempt, again.delivery_attempt), (Some(1), Some(2)));
        assert_eq!(first.published_at, Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1)));
        assert_eq!(first.attributes, [("a".to_owned(), "b".to_owned())]);
        assert_ne!(first.id, quarantined("e30K", 1).id, "another message under an id that somebody made up");
        assert!(first.data.starts_with(b"{\"message\""), "it is kept whole");
    }

    fn with_attributes(share: Option<Share>) -> Delivery {
        let meta = Meta {
            message_id: Some("m".repeat(100)),
            attributes: vec![("k".repeat(1_000), "v".repeat(20_000)); 5],
            ..Meta::default()
        };
        let ack = Ack::of_many(Arc::new(Nobody), 0);
        let (payload, received_at) = (vec![0; 10].into(), SystemTime::UNIX_EPOCH);
        Delivery { payload, received_at, meta: Some(Box::new(meta)), ack, share }
    }

    #[test]
    fn attributes_and_the_message_id_count_in_the_budget_until_the_delivery_is_settled() {
        let held = InFlight::new(Budget::new(10, 1 << 20));
        let receipt = Receipt::new(with_attributes(None), &held);
        let bytes = held.budget().bytes();
        assert!(bytes >= 10 + 100 + 5 * 21_000 + DELIVERY_BYTES, "{bytes}");
        receipt.settle(&Settlement::Counted);
        assert_eq!(held.budget().bytes(), 0);
    }

    #[test]
    fn what_its_source_has_taken_is_not_taken_again() {
        let held = InFlight::new(Budget::new(10, 1 << 20));
        let receipt = Receipt::new(with_attributes(Some(Share::new(&held, 7))), &held);
        assert_eq!((held.budget().deliveries(), held.budget().bytes()), (1, 7 + DELIVERY_BYTES));
        drop(receipt);
        assert_eq!((held.budget().deliveries(), held.budget().bytes()), (0, 0));
    }
}
