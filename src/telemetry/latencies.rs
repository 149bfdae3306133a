//! Latencies that keep every percentile, for the report at the end of a run.

use crate::common::sync::Locked;
use hdrhistogram::Histogram;
use std::sync::Mutex;
use std::time::Duration;

/// Longest latency that a histogram keeps apart: an hour, the longest lease.
const MAX_MICROS: u64 = 3_600_000_000;

/// Latencies with every percentile, in microseconds.
#[derive(Debug)]
pub struct Latencies(Mutex<Histogram<u64>>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Mutex::new(empty()))
    }
}

#[expect(clippy::expect_used, reason = "the bounds are constants that the histogram accepts")]
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_MICROS, 3).expect("1 to an hour at three digits")
}

impl Latencies {
    /// Records one latency; longer than an hour counts as an hour.
    pub fn record(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).min(MAX_MICROS);
        self.0.locked().saturating_record(micros);
    }

    /// Adds what `other` has recorded so far.
    pub fn absorb(&self, other: &Self) {
        // Copied first, so that two that absorb each other never hold both locks.
        let other = other.0.locked().clone();
        *self.0.locked() += other;
    }

    /// The latency at `quantile`, from 0 to 1.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.0.locked().value_at_quantile(quantile))
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.locked().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_keep_three_digits_and_an_hour_is_the_end() {
        let latencies = Latencies::default();
        (1..=1_000).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let p99 = latencies.quantile(0.99).as_millis();
        assert!((989..=991).contains(&p99), "{p99}");
        latencies.record(Duration::from_secs(7_200));
        assert!(latencies.quantile(1.0) >= Duration::from_secs(3_590));
        assert_eq!(latencies.count(), 1_001);
        let all = Latencies::default();
        all.absorb(&latencies);
        all.absorb(&latencies);
        assert_eq!((all.count(), all.quantile(0.99)), (2_002, latencies.quantile(0.99)));
    }
}
