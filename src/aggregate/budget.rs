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
    /// Held now.
    deliveries: AtomicUsize,
    /// Held or reserved. One counter, because two that are read one after the other can both have changed meanwhile and
    /// look as before, and then more is granted than there is. What was reserved counts twice for a moment, from when it
    /// is held until it is no longer reserved, and never not at all.
    taken: AtomicUsize,
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
            taken: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// How many more deliveries may be asked for; 0 when full. An answer may overshoot the bytes, by what the source had
    /// received already.
    #[must_use]
    pub fn room(&self) -> usize {
        self.beside(self.taken.load(Ordering::Acquire))
    }

    /// The room beside what is `taken`.
    fn beside(&self, taken: usize) -> usize {
        if self.bytes.load(Ordering::Acquire) >= self.max_bytes {
            return 0;
        }
        self.max_deliveries.saturating_sub(taken)
    }

    /// Reserves room for up to `most` deliveries that will be asked for, and answers for how many; 0 when there is none.
    pub fn reserve(&self, most: usize) -> usize {
        let mut got = 0;
        // The closure always answers with a number.
        let _ = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
            got = self.beside(taken).min(most);
            Some(taken + got)
        });
        got
    }

    /// Gives a reservation back, after what came of it was held.
    pub fn unreserve(&self, deliveries: usize) {
        self.taken.fetch_sub(deliveries, Ordering::AcqRel);
    }

    /// Holds one delivery.
    pub fn hold(&self, payload_bytes: usize) {
        self.taken.fetch_add(1, Ordering::AcqRel);
        self.deliveries.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(payload_bytes + DELIVERY_BYTES, Ordering::AcqRel);
    }

    /// Lets go of one delivery that was held with the same `payload_bytes`. Answers whether this made room where
    /// there was none, so that whoever waits can be woken once.
    pub fn release(&self, payload_bytes: usize) -> bool {
        let cost = payload_bytes + DELIVERY_BYTES;
        let bytes = self.bytes.fetch_sub(cost, Ordering::AcqRel);
        self.deliveries.fetch_sub(1, Ordering::AcqRel);
        let was_full = self.taken.fetch_sub(1, Ordering::AcqRel) >= self.max_deliveries || bytes >= self.max_bytes;
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
