//! When each message is to be sent. Pure: times are counted from the start.

use std::time::Duration;

/// A rate that is constant after an optional ramp. An open loop keeps to it whatever the target does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    per_second: f64,
    ramp_s: f64,
}

impl Schedule {
    /// The rates that a schedule may have, in messages a second: from one an hour to more than can be written.
    pub const RATES: std::ops::RangeInclusive<f64> = 1.0 / 3_600.0..=1e9;

    /// `per_second` messages a second, reached evenly from nothing within `ramp`. `None` for a rate out of
    /// [`Schedule::RATES`].
    #[must_use]
    pub fn new(per_second: f64, ramp: Duration) -> Option<Self> {
        Self::RATES.contains(&per_second).then_some(Self { per_second, ramp_s: ramp.as_secs_f64() })
    }

    /// When message number `n`, counted from 0, is to be sent. Never earlier than the one before.
    #[must_use]
    pub fn due(&self, n: u64) -> Duration {
        let (n, rate, ramp) = (n as f64, self.per_second, self.ramp_s);
        // While it ramps, t seconds hold rate · t² / (2 · ramp) messages; the whole ramp half of its full rate.
        let in_ramp = rate * ramp / 2.0;
        let seconds = if n < in_ramp { (2.0 * ramp * n / rate).sqrt() } else { ramp + (n - in_ramp) / rate };
        Duration::from_secs_f64(seconds)
    }

    /// How many messages are due within `time`.
    #[must_use]
    pub fn within(&self, time: Duration) -> u64 {
        let (t, rate, ramp) = (time.as_secs_f64(), self.per_second, self.ramp_s);
        // The cast saturates and drops the part of a message.
        (if t < ramp { rate * t * t / (2.0 * ramp) } else { rate * (t - ramp / 2.0) }) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_is_evenly_spaced() {
        let schedule = Schedule::new(1_000.0, Duration::ZERO).expect("a rate");
        assert_eq!(schedule.due(0), Duration::ZERO);
        assert_eq!(schedule.due(1_500), Duration::from_millis(1_500));
        assert_eq!(schedule.within(Duration::from_secs(60)), 60_000);
    }

    #[test]
    fn a_ramp_sends_half_of_its_full_rate_and_goes_on_without_a_jump() {
        let schedule = Schedule::new(1_000.0, Duration::from_secs(4)).expect("a rate");
        assert_eq!(schedule.within(Duration::from_secs(4)), 2_000);
        assert_eq!(schedule.within(Duration::from_secs(2)), 500);
        assert_eq!(schedule.due(500), Duration::from_secs(2));
        assert_eq!(schedule.due(2_000), Duration::from_secs(4));
        assert_eq!(schedule.due(3_000), Duration::from_secs(5));
        assert!((0..5_000).all(|n| schedule.due(n) <= schedule.due(n + 1)));
    }

    #[test]
    fn a_rate_that_is_none_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Schedule::new(rate, Duration::ZERO), None);
        }
    }
}
