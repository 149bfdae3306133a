//! Which shard number a lane uses now. Pure; the generator is an argument.
//!
//! A lane keeps one number for all posts until a commit is aborted or slow. With a fresh random shard per post, two
//! lanes would meet in almost every pair of commits as soon as batches hold many posts: one shared shard ties them
//! together. `benches/contention.rs` shows both.
//!
//! Two lanes on one shard take turns: nothing fails, every commit only takes twice as long. So "slow" is measured against
//! the quickest commits of about the same size that this lane has seen, and a new lane tries a few numbers first, or it
//! might never see what quick is.

use rand::{Rng, RngExt};
use std::num::NonZeroU16;
use std::time::Duration;

/// Numbers that a new lane tries, one commit each. Of 200 lanes on 1,024 shards a fifth meet another one; that one lane
/// meets one four times in a row is rarer than one in 500.
const TRIED_AT_FIRST: u32 = 4;

/// A commit that takes so much longer than the quickest of its size is slow. Waiting for one other commit doubles the
/// time; a store's own jitter should stay below.
const SLOW: f64 = 1.75;

/// Slow commits in a row that make a lane pick again. Who shares a shard is slow each time; one slow commit alone is
/// the store's own jitter, and a lane that moved for it would soon have left a document on every shard.
const SLOW_IN_A_ROW: u32 = 3;

/// How much of itself the quickest time grows by with each commit, so that a store that has become slower for good is
/// taken for what it is after about forty commits.
const FORGETTING: f64 = 1.0 / 64.0;

/// Sizes are told apart by their number of bits; 500 likes have nine.
const SIZES: usize = 17;

/// A lane's shard number.
#[derive(Clone, Copy, Debug)]
pub struct LaneShard {
    shards: NonZeroU16,
    current: u16,
    tried: u32,
    slow_in_a_row: u32,
    /// Seconds of the quickest commit, by size.
    quickest: [Option<f64>; SIZES],
}

impl LaneShard {
    /// A random one of `shards`.
    pub fn new(shards: NonZeroU16, rng: &mut impl Rng) -> Self {
        Self { shards, current: rng.random_range(0..shards.get()), tried: 0, slow_in_a_row: 0, quickest: [None; SIZES] }
    }

    /// The number in use.
    #[must_use]
    pub fn current(&self) -> u16 {
        self.current
    }

    /// A commit that wrote so many likes on this number was answered after `took`. Slow ones in a row make the lane pick
    /// again: somebody else is on this number.
    pub fn committed(&mut self, likes: u64, took: Duration, rng: &mut impl Rng) {
        let size = (u64::BITS - likes.leading_zeros()) as usize;
        let quickest = &mut self.quickest[size.min(SIZES - 1)];
        let took = took.as_secs_f64();
        let slow = quickest.is_some_and(|quickest| took > quickest * SLOW);
        *quickest = Some(quickest.map_or(took, |quickest| took.min(quickest * (1.0 + FORGETTING))));
        self.slow_in_a_row = if slow { self.slow_in_a_row + 1 } else { 0 };
        if self.slow_in_a_row == SLOW_IN_A_ROW || self.tried < TRIED_AT_FIRST {
            self.tried = self.tried.saturating_add(1);
            self.pick_again(rng);
        }
    }

    /// Picks again, another one where there is another.
    pub fn pick_again(&mut self, rng: &mut impl Rng) {
        self.slow_in_a_row = 0;
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

    const QUICK: Duration = Duration::from_millis(100);
    const SHARED: Duration = Duration::from_millis(200);

    /// A lane that has tried enough and found its place.
    fn settled(rng: &mut SmallRng) -> LaneShard {
        let mut lane = LaneShard::new(NonZeroU16::new(64).expect("64"), rng);
        (0..TRIED_AT_FIRST).for_each(|_| lane.committed(500, QUICK, rng));
        lane
    }

    #[test]
    fn a_lane_keeps_its_shard_while_commits_are_quick() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lane = settled(&mut rng);
        let kept = lane.current();
        for jitter in 0..200 {
            lane.committed(500, QUICK.mul_f64(1.0 + f64::from(jitter % 5) / 10.0), &mut rng);
            assert_eq!(lane.current(), kept);
        }
    }

    #[test]
    fn commits_that_waited_for_others_in_a_row_make_the_lane_pick_again() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lane = settled(&mut rng);
        let kept = lane.current();
        for took in [SHARED, SHARED, QUICK, SHARED, SHARED] {
            lane.committed(500, took, &mut rng);
            assert_eq!(lane.current(), kept);
        }
        lane.committed(500, SHARED, &mut rng);
        assert_ne!(lane.current(), kept);
    }

    #[test]
    fn a_new_lane_on_a_shared_shard_learns_what_quick_is_on_others() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lane = LaneShard::new(NonZeroU16::new(64).expect("64"), &mut rng);
        let crowded = lane.current();
        let mut stays = 0;
        for _ in 0..100 {
            let took = if lane.current() == crowded { SHARED } else { QUICK };
            stays += usize::from(lane.current() == crowded);
            lane.committed(500, took, &mut rng);
        }
        assert!(stays < 10, "{stays} commits on the crowded shard");
    }

    #[test]
    fn commits_of_other_sizes_are_not_compared() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lane = settled(&mut rng);
        let kept = lane.current();
        lane.committed(5, QUICK / 10, &mut rng);
        lane.committed(500, QUICK, &mut rng);
        assert_eq!(lane.current(), kept);
    }

    #[test]
    fn a_store_that_became_slower_for_good_is_accepted() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lane = settled(&mut rng);
        (0..100).for_each(|_| lane.committed(500, SHARED, &mut rng));
        let kept = lane.current();
        lane.committed(500, SHARED, &mut rng);
        assert_eq!(lane.current(), kept);
    }
}
