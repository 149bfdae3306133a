//! Which shard number a lane uses now. Pure; the generator is an argument.
//!
//! A lane keeps one number for all posts until a commit is aborted or slow. With a fresh random shard per post, two
//! lanes would meet in almost every pair of commits as soon as batches hold many posts: one shared shard ties them
//! together. In a lock model of 16 lanes and 64 shards that reached 0.09 of linear; one number per lane reached 0.99.

use rand::{Rng, RngExt};
use std::num::NonZeroU16;

/// A lane's shard number.
#[derive(Clone, Copy, Debug)]
pub struct LaneShard {
    shards: NonZeroU16,
    current: u16,
}

impl LaneShard {
    /// A random one of `shards`.
    pub fn new(shards: NonZeroU16, rng: &mut impl Rng) -> Self {
        Self { shards, current: rng.random_range(0..shards.get()) }
    }

    /// The number in use.
    #[must_use]
    pub fn current(&self) -> u16 {
        self.current
    }

    /// Picks again, another one where there is another: somebody else is on this one.
    pub fn pick_again(&mut self, rng: &mut impl Rng) {
        if self.shards.get() > 1 {
            let step = rng.random_range(1..self.shards.get());
            let next = (u32::from(self.current) + u32::from(step)) % u32::from(self.shards.get());
            // A remainder of a u16 divisor fits.
            self.current = next as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;
    use std::collections::HashSet;

    #[test]
    fn picking_again_moves_to_another_shard_and_reaches_all_of_them() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lane = LaneShard::new(NonZeroU16::new(8).expect("8"), &mut rng);
        let mut seen = HashSet::new();
        for _ in 0..200 {
            let before = lane.current();
            lane.pick_again(&mut rng);
            assert_ne!(lane.current(), before);
            seen.insert(lane.current());
        }
        assert_eq!(seen.len(), 8);
    }

    #[test]
    fn one_shard_stays_one_shard() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lane = LaneShard::new(NonZeroU16::MIN, &mut rng);
        lane.pick_again(&mut rng);
        assert_eq!(lane.current(), 0);
    }
}
