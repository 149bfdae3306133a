//! A share of the recent deliveries that should be small.

/// Deliveries in one of the two generations that are looked at: the last 500 to 1,000, or those of the last look where it
/// brought more.
const GENERATION: u64 = 500;

/// Fewer deliveries say nothing.
const AT_LEAST: u64 = 50;

/// Looks without a delivery after which what was seen is forgotten: five minutes. A worker that is not ready may be given
/// nothing, and could never show that it is well again.
const FORGET_AFTER: u32 = 60;

/// Hits and deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// How many were hit.
    pub hits: u64,
    /// Of how many.
    pub of: u64,
}

/// Counts in two generations, so that it needs no clock and no list. It begins at a half and ends below a quarter.
#[derive(Debug, Default)]
pub struct Share {
    before: Part,
    young: Part,
    old: Part,
    quiet: u32,
    stands: bool,
}

impl Share {
    /// One look at counters that only grow. Answers with the recent part while it is too large.
    pub fn look(&mut self, hits: u64, of: u64) -> Option<Part> {
        let new = Part { hits: hits.saturating_sub(self.before.hits), of: of.saturating_sub(self.before.of) };
        self.before = Part { hits, of };
        if new.of == 0 {
            self.quiet = self.quiet.saturating_add(1);
            if self.quiet >= FORGET_AFTER {
                (self.young, self.old, self.stands) = (Part::default(), Part::default(), false);
            }
        } else {
            self.quiet = 0;
            self.young = Part { hits: self.young.hits + new.hits, of: self.young.of + new.of };
        }
        let recent = Part { hits: self.young.hits + self.old.hits, of: self.young.of + self.old.of };
        if self.young.of >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.stands = match self.stands {
            true => recent.hits * 4 >= recent.of,
            false => recent.of >= AT_LEAST && recent.hits * 2 >= recent.of,
        };
        self.stands.then_some(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_stands_from_a_half_until_it_is_below_a_quarter() {
        let mut share = Share::default();
        assert_eq!(share.look(0, 1_000), None);
        assert_eq!(share.look(600, 1_600), None, "600 of the last 1,600");
        assert_eq!(share.look(1_100, 2_100), Some(Part { hits: 1_100, of: 1_100 }), "all of the last 1,100");
        assert!(share.look(1_100, 2_800).is_some(), "500 of the last 1,200");
        assert_eq!(share.look(1_100, 3_600), None, "none of the last 1,500");
    }

    #[test]
    fn a_few_deliveries_say_nothing() {
        let mut share = Share::default();
        assert_eq!(share.look(49, 49), None);
        assert_eq!(share.look(50, 50), Some(Part { hits: 50, of: 50 }));
    }

    #[test]
    fn what_was_seen_is_forgotten_when_nothing_comes_any_more() {
        let mut share = Share::default();
        assert!(share.look(100, 100).is_some());
        for _ in 1..FORGET_AFTER {
            assert!(share.look(100, 100).is_some());
        }
        assert_eq!(share.look(100, 100), None);
        assert_eq!(share.look(100, 110), None, "and does not come back with a few healthy ones");
    }
}
