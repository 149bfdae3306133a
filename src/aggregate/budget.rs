//! What the worker holds, counted from delivery to settling: likes and bytes, payloads and tokens included.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What a delivery costs beside its payload: its token, its metadata and its place in the map and the line, as the
/// memory benchmark measured them, rounded up.
const DELIVERY_BYTES: usize = 512;

/// A fixed budget. It refuses nothing by itself: whoever pulls asks for room first.
#[derive(Debug)]
pub struct Budget {
    max_deliveries: usize,
    max_bytes: usize,
    deliveries: AtomicUsize,
    bytes: AtomicUsize,
}

impl Budget {
    /// An empty budget with two bounds; whichever is reached first counts.
    #[must_use]
    pub fn new(max_deliveries: usize, max_bytes: usize) -> Self {
        Self { max_deliveries, max_bytes, deliveries: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    /// How many more deliveries may be asked for; 0 when full. One answer may overshoot the bytes, by what the source
    /// had received already.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.bytes.load(Ordering::Acquire) >= self.max_bytes {
            return 0;
        }
        self.max_deliveries.saturating_sub(self.deliveries.load(Ordering::Acquire))
    }

    /// Holds one delivery.
    pub fn hold(&self, payload_bytes: usize) {
        self.deliveries.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(payload_bytes + DELIVERY_BYTES, Ordering::AcqRel);
    }

    /// Lets go of one delivery that was held with the same `payload_bytes`. Answers whether this made room where
    /// there was none, so that whoever waits can be woken once.
    pub fn release(&self, payload_bytes: usize) -> bool {
        let cost = payload_bytes + DELIVERY_BYTES;
        let bytes = self.bytes.fetch_sub(cost, Ordering::AcqRel);
        let deliveries = self.deliveries.fetch_sub(1, Ordering::AcqRel);
        let was_full = deliveries >= self.max_deliveries || bytes >= self.max_bytes;
        was_full && self.room() > 0
    }

    /// Deliveries held now.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.deliveries.load(Ordering::Acquire)
    }

    /// Bytes held now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_budget_has_no_room_until_something_is_released() {
        let budget = Budget::new(2, 1 << 20);
        budget.hold(10);
        assert_eq!(budget.room(), 1);
        budget.hold(10);
        assert_eq!(budget.room(), 0);
        assert!(budget.release(10));
        assert!(!budget.release(10));
        assert_eq!((budget.deliveries(), budget.bytes()), (0, 0));
    }

    #[test]
    fn large_payloads_fill_it_before_their_number_does() {
        let budget = Budget::new(1_000, 4_096);
        budget.hold(5_000);
        assert_eq!(budget.room(), 0);
    }
}
