//! What the worker holds, counted from when it arrives to its settling: deliveries, and bytes, with tokens, attributes and
//! bookkeeping included.

use crate::common::sync::{AtomicUsize, Ordering};

/// What a delivery costs beside its bytes: its token, its metadata and its place in the map and the line, as the memory
/// benchmark measured them, rounded up.
pub const DELIVERY_BYTES: usize = 512;

/// A fixed budget. It refuses no delivery by itself: whoever pulls reserves room first, so that several who pull at once do
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
    /// Of deliveries, and of what is no delivery: a body that is being read, a page that is being answered.
    bytes: AtomicUsize,
}

/// For whom a release made room where there was none, so that whoever waits can be woken once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeRoom {
    /// There is room for a delivery.
    pub for_deliveries: bool,
    /// There is room for bytes.
    pub for_bytes: bool,
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

    /// How many deliveries may be held.
    #[must_use]
    pub fn max_deliveries(&self) -> usize {
        self.max_deliveries
    }

    /// The same with less room, for something that is held as long as the budget.
    #[must_use]
    pub fn without(self, bytes: usize) -> Self {
        Self { max_bytes: self.max_bytes.saturating_sub(bytes), ..self }
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

    /// Holds one delivery of so many bytes.
    pub fn hold(&self, bytes: usize) {
        self.taken.fetch_add(1, Ordering::AcqRel);
        self.deliveries.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes + DELIVERY_BYTES, Ordering::AcqRel);
    }

    /// Lets go of one delivery that was held with the same `bytes`.
    pub fn release(&self, bytes: usize) -> MadeRoom {
        let cost = bytes + DELIVERY_BYTES;
        let bytes = self.bytes.fetch_sub(cost, Ordering::AcqRel);
        self.deliveries.fetch_sub(1, Ordering::AcqRel);
        let was_full = self.taken.fetch_sub(1, Ordering::AcqRel) >= self.max_deliveries || bytes >= self.max_bytes;
        MadeRoom { for_deliveries: was_full && self.room() > 0, for_bytes: self.falls_below(bytes, cost) }
    }

    /// Takes `bytes` that are no delivery. Answers whether there was room for any: as long as there is some, all are
    /// granted, so that what is larger than the budget passes too, alone. So bytes exceed their bound by one grant at most.
    pub fn take_bytes(&self, bytes: usize) -> bool {
        let grant = |held| (held < self.max_bytes).then_some(held + bytes);
        self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, grant).is_ok()
    }

    /// Counts `bytes` that are there already, room or not.
    pub fn force_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives back what was taken.
    pub fn give_bytes(&self, bytes: usize) -> MadeRoom {
        let for_bytes = self.falls_below(self.bytes.fetch_sub(bytes, Ordering::AcqRel), bytes);
        MadeRoom { for_deliveries: for_bytes && self.room() > 0, for_bytes }
    }

    /// Whether bytes were at their bound, and are not once `less` are gone.
    fn falls_below(&self, bytes: usize, less: usize) -> bool {
        bytes >= self.max_bytes && bytes - less < self.max_bytes
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

    /// Whether there is room for bytes.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.bytes() < self.max_bytes
    }

    /// Bytes that may be held.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
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
        assert!(budget.release(10).for_deliveries);
        assert!(!budget.release(10).for_deliveries);
        assert_eq!((budget.deliveries(), budget.bytes()), (0, 0));
    }

    #[test]
    fn what_is_reserved_cannot_be_reserved_again_and_what_came_of_it_is_held() {
        let budget = Budget::new(10, 1 << 20);
        assert_eq!((budget.reserve(6), budget.reserve(6), budget.reserve(6)), (6, 4, 0));
        budget.hold(10);
        budget.unreserve(6);
        assert_eq!((budget.room(), budget.reserve(9)), (5, 5));
        assert!(budget.release(10).for_deliveries, "nothing was left but this");
    }

    #[test]
    fn large_payloads_fill_it_before_their_number_does() {
        let budget = Budget::new(1_000, 4_096);
        budget.hold(5_000);
        assert_eq!(budget.room(), 0);
        assert_eq!(budget.release(5_000), MadeRoom { for_deliveries: true, for_bytes: true });
    }

    #[test]
    fn bytes_beside_deliveries_share_the_bound_and_what_is_larger_than_it_passes_alone() {
        let budget = Budget::new(10, 1_000);
        assert!(budget.take_bytes(5_000));
        assert!(!budget.take_bytes(1));
        assert_eq!(budget.room(), 0);
        assert_eq!(budget.give_bytes(4_000), MadeRoom { for_deliveries: false, for_bytes: false });
        assert_eq!(budget.give_bytes(1_000), MadeRoom { for_deliveries: true, for_bytes: true });
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn room_for_bytes_is_told_also_while_there_are_as_many_deliveries_as_there_may_be() {
        let budget = Budget::new(1, 1_000);
        budget.hold(10);
        assert!(budget.take_bytes(600));
        assert_eq!(budget.give_bytes(600), MadeRoom { for_deliveries: false, for_bytes: true });
    }
}
