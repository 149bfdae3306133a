//! What the worker holds, counted from delivery to settling: likes and bytes, payloads and tokens included.

use crate::sync::{AtomicUsize, Ordering};

/// What a delivery costs beside its payload: its token, its metadata and its place in the map and the line, as the
/// memory benchmark measured them, rounded up.
const DELIVERY_BYTES: usize = 512;

/// A fixed budget. It refuses nothing by itself: whoever pulls reserves room first, so that several who pull at once do
/// not ask for the same room.
#[derive(Debug)]
pub struct Budget {
    max_deliveries: usize,
    max_bytes: usize,
    deliveries: AtomicUsize,
    reserved: AtomicUsize,
    bytes: AtomicUsize,
}

impl Budget {
    /// An empty budget with two bounds; whichever is reached first counts.
    #[must_use]
    pub fn new(max_deliveries: usize, max_bytes: usize) -> Self {
        Self {
            max_deliveries,
            max_bytes,
            deliveries: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// How many more deliveries may be asked for; 0 when full. An answer may overshoot the bytes, by what the source had
    /// received already.
    #[must_use]
    pub fn room(&self) -> usize {
        self.beside(self.reserved.load(Ordering::Acquire))
    }

    /// The room beside `reserved`. What was reserved is held before it is no longer reserved, so whoever reads the
    /// reservations first counts a delivery twice for a moment, and never not at all.
    fn beside(&self, reserved: usize) -> usize {
        if self.bytes.load(Ordering::Acquire) >= self.max_bytes {
            return 0;
        }
        let held = self.deliveries.load(Ordering::Acquire);
        self.max_deliveries.saturating_sub(held.saturating_add(reserved))
    }

    /// Reserves room for up to `most` deliveries that will be asked for, and answers for how many; 0 when there is none.
    pub fn reserve(&self, most: usize) -> usize {
        let mut got = 0;
        // The closure always answers with a number.
        let _ = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
            got = self.beside(reserved).min(most);
            Some(reserved + got)
        });
        got
    }

    /// Gives a reservation back, after what came of it was held.
    pub fn unreserve(&self, deliveries: usize) {
        self.reserved.fetch_sub(deliveries, Ordering::AcqRel);
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
        let taken = deliveries.saturating_add(self.reserved.load(Ordering::Acquire));
        let was_full = taken >= self.max_deliveries || bytes >= self.max_bytes;
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
    fn what_is_reserved_cannot_be_reserved_again_and_what_came_of_it_is_held() {
        let budget = Budget::new(10, 1 << 20);
        assert_eq!((budget.reserve(6), budget.reserve(6), budget.reserve(6)), (6, 4, 0));
        budget.hold(10);
        budget.unreserve(6);
        assert_eq!((budget.room(), budget.reserve(9)), (5, 5));
        assert!(budget.release(10), "nothing was left but this");
    }

    #[test]
    fn large_payloads_fill_it_before_their_number_does() {
        let budget = Budget::new(1_000, 4_096);
        budget.hold(5_000);
        assert_eq!(budget.room(), 0);
    }
}
