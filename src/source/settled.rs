//! Which messages this worker has settled lately, by the broker's ids. A message that was acknowledged and comes again
//! shows that its acknowledgement had no effect, whatever the cause; nothing else would.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most messages that are remembered: 1 MiB. As long as acknowledgements have no effect a broker has out what it may
/// have out, some thousand messages, and then delivers those again.
const MAX_REMEMBERED: usize = 1 << 17;

/// Places that a fingerprint may be in: with one alone, a table that is half full would forget a quarter.
const WAYS: usize = 4;

/// A table of fingerprints in which a later message takes the place of an earlier one. Forgetting is always safe, also the
/// one that two threads at once cause; and two ids in 2^47 or so are taken for one.
#[derive(Debug)]
pub struct Settled {
    prints: Box<[AtomicU64]>,
}

impl Settled {
    /// Remembers about as many messages as may be held, in 16 to 32 bytes each, and in a 64th of `max_bytes` at most.
    #[must_use]
    pub fn new(max_held: usize, max_bytes: usize) -> Self {
        let affordable = max_bytes / 64 / size_of::<AtomicU64>();
        let places = max_held.saturating_mul(2).min(affordable / 2 + 1).clamp(WAYS, MAX_REMEMBERED).next_power_of_two();
        Self { prints: (0..places).map(|_| AtomicU64::new(0)).collect() }
    }

    /// What it occupies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.prints.len() * size_of::<AtomicU64>()
    }

    /// A message was settled.
    pub fn remember(&self, message_id: &str) {
        let (places, mut print) = self.places(message_id);
        for place in places {
            // The newest is first, the oldest falls out.
            print = place.swap(print, Ordering::Relaxed);
        }
    }

    /// Whether it is known that the message was settled.
    #[must_use]
    pub fn knows(&self, message_id: &str) -> bool {
        let (places, print) = self.places(message_id);
        places.iter().any(|place| place.load(Ordering::Relaxed) == print)
    }

    /// Where a message may be, and its fingerprint.
    fn places(&self, message_id: &str) -> (&[AtomicU64], u64) {
        // Zero is an empty place.
        let print = FixedState::with_seed(0).hash_one(message_id).max(1);
        let sets = self.prints.len() / WAYS;
        let start = print as usize % sets * WAYS;
        (&self.prints[start..start + WAYS], print)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_settled_last_is_known_and_older_is_forgotten_one_by_one() {
        let settled = Settled::new(1_000, 1 << 20);
        assert!(!settled.knows("7"));
        settled.remember("7");
        assert!(settled.knows("7") && !settled.knows("8"));
        (1_000..1_100).for_each(|id| settled.remember(&id.to_string()));
        let known = (1_000..1_100).filter(|id| settled.knows(&id.to_string())).count();
        assert!(known > 95, "{known} of 100 in a table of 2,048");
        (2_000..60_000).for_each(|id| settled.remember(&id.to_string()));
        assert!(!settled.knows("7"));
    }

    #[test]
    fn what_it_occupies_follows_from_what_may_be_held_and_has_a_limit() {
        assert_eq!(Settled::new(0, 0).bytes(), 32);
        assert_eq!(Settled::new(100_000, 256 << 20).bytes(), 1 << 20);
        assert_eq!(Settled::new(usize::MAX, usize::MAX).bytes(), 1 << 20);
        assert_eq!(Settled::new(100_000, 1 << 20).bytes(), 16 << 10, "a 64th");
    }
}
