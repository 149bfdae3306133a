//! The 500/50/5 rule: a new key range takes 500 writes a second, and half as many again every five minutes. Pure.

use super::{Aborted, Name};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Writes a second that a new key range takes, from Firestore's documentation.
const AT_FIRST: f64 = 500.0;
/// Every five minutes it takes half as many again, from the same place.
const GROWTH: f64 = 1.5;
const GROWS_EVERY: Duration = Duration::from_secs(300);

/// A range that is behind by more than this refuses; until then it only slows down.
const PATIENCE: Duration = Duration::from_secs(1);

/// What has gone before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// They were warmed up: they take whatever comes.
    Warm,
    /// The load is the first that they see.
    Cold,
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Warm => f.write_str("warmed up: they take whatever comes"),
            Self::Cold => write!(
                f,
                "cold: each takes {AT_FIRST} writes a second, and {GROWTH} times as many every {} s; one that is {PATIENCE:?} \
                 behind aborts",
                GROWS_EVERY.as_secs()
            ),
        }
    }
}

/// The ranges that were written to.
pub(super) struct Ramps {
    ranges: Ranges,
    began: Instant,
    /// When each will have taken what it was given.
    busy_until: HashMap<Name, Instant, foldhash::fast::FixedState>,
}

impl Ramps {
    pub(super) fn new(ranges: Ranges, began: Instant) -> Self {
        Self { ranges, began, busy_until: HashMap::default() }
    }

    /// How long a commit has to wait that writes so often to each of these ranges.
    pub(super) fn admit(&mut self, writes: &[(Name, u64)], now: Instant) -> Result<Duration, Aborted> {
        if self.ranges == Ranges::Warm {
            return Ok(Duration::ZERO);
        }
        let wait =
            |busy_until: Option<&Instant>| busy_until.map_or(Duration::ZERO, |t| t.saturating_duration_since(now));
        let longest = writes.iter().map(|(range, _)| wait(self.busy_until.get(range))).max().unwrap_or_default();
        if longest > PATIENCE {
            return Err(Aborted::Ramp);
        }
        let rate = self.rate(now);
        for (range, writes) in writes {
            let busy_until = self.busy_until.entry(*range).or_insert(now);
            *busy_until = (*busy_until).max(now) + Duration::from_secs_f64(*writes as f64 / rate);
        }
        Ok(longest)
    }

    /// Every range is as old as the load.
    fn rate(&self, now: Instant) -> f64 {
        let steps = now.saturating_duration_since(self.began).as_secs() / GROWS_EVERY.as_secs();
        AT_FIRST * GROWTH.powi(i32::try_from(steps).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes that are admitted in one second from `from` seconds on, 100 at a time.
    fn admitted(ramps: &mut Ramps, began: Instant, from: u64) -> u64 {
        let tries = (0..1_000).map(|ms| began + Duration::from_secs(from) + Duration::from_millis(ms));
        tries.map(|now| if ramps.admit(&[(1, 100)], now).is_ok() { 100 } else { 0 }).sum()
    }

    #[test]
    fn a_cold_range_takes_500_writes_a_second_and_half_as_many_again_after_five_minutes() {
        let began = Instant::now();
        let mut ramps = Ramps::new(Ranges::Cold, began);
        // A second's worth may wait, hence twice the rate in the first second.
        assert!((1_000..=1_200).contains(&admitted(&mut ramps, began, 0)));
        assert!((400..=600).contains(&admitted(&mut ramps, began, 1)));
        let _ = admitted(&mut ramps, began, 300);
        assert!((600..=900).contains(&admitted(&mut ramps, began, 301)));
    }

    #[test]
    fn one_full_range_refuses_the_commit_and_charges_the_others_nothing() {
        let now = Instant::now();
        let mut ramps = Ramps::new(Ranges::Cold, now);
        assert_eq!(ramps.admit(&[(1, 1_000)], now), Ok(Duration::ZERO));
        assert_eq!(ramps.admit(&[(1, 1), (2, 1_000)], now), Err(Aborted::Ramp));
        assert_eq!(ramps.admit(&[(2, 1)], now), Ok(Duration::ZERO));
    }

    #[test]
    fn a_warm_range_takes_whatever_comes() {
        let now = Instant::now();
        let mut ramps = Ramps::new(Ranges::Warm, now);
        assert_eq!(ramps.admit(&[(1, 1_000_000)], now), Ok(Duration::ZERO));
        assert_eq!(ramps.admit(&[(1, 1_000_000)], now), Ok(Duration::ZERO));
    }
}
