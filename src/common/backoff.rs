//! How long to wait before the next attempt: exponential growth with full jitter; which failures are in a row, and how long
//! one answer has come. Pure; the generator and the time are arguments.

use rand::{Rng, RngExt};
use std::time::{Duration, Instant};

/// A failure that comes so long after the one before begins a new row: ten minutes, twenty times the longest wait between
/// two attempts. Without it two blinks in two months, with nothing to do between, would be two in a row.
pub const HEALED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Bounds of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub base: Duration,
    /// The longest wait of all.
    pub cap: Duration,
}

impl Default for Backoff {
    /// 100 ms is about one commit on the service; 30 s keeps an outage of an hour to some hundred attempts a lane.
    fn default() -> Self {
        Self { base: Duration::from_millis(100), cap: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The wait after `failures` failures in a row: anything from nothing to `base · 2^(failures−1)`, at most `cap`.
    ///
    /// Full jitter spreads workers that failed together over the whole interval, so they do not fail together again.
    pub fn wait(&self, failures: u32, rng: &mut impl Rng) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let longest = self.base.saturating_mul(doubled).min(self.cap);
        longest.mul_f64(rng.random::<f64>())
    }
}

/// Failures in a row: what works ends the row, and so does time.
#[derive(Clone, Copy, Debug, Default)]
pub struct InARow {
    failures: u32,
    last: Option<Instant>,
}

impl InARow {
    /// One more failure. Answers how many there are in a row.
    pub fn failed(&mut self, at: Instant) -> u32 {
        let healed = self.last.is_some_and(|last| at.saturating_duration_since(last) >= HEALED_AFTER);
        self.failures = if healed { 1 } else { self.failures.saturating_add(1) };
        self.last = Some(at);
        self.failures
    }

    /// It worked.
    pub fn worked(&mut self) {
        *self = Self::default();
    }
}

/// What the time between two answers counts at most. A machine that was suspended meanwhile, or a worker that was stopped, has
/// not been told anything for so long.
const MOST_BETWEEN: Duration = Duration::from_secs(10);

/// One answer that comes again and again, and the time that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    answers: u32,
    last: Option<Instant>,
    lasts: Duration,
}

impl Lasting {
    /// The same answer came, again or for the first time.
    pub fn came(&mut self, now: Instant) {
        if let Some(last) = self.last {
            self.lasts += now.saturating_duration_since(last).min(MOST_BETWEEN);
        }
        self.answers = self.answers.saturating_add(1);
        self.last = Some(now);
    }

    /// Whether it came at least so often, over so long.
    #[must_use]
    pub fn is(&self, answers: u32, lasts: Duration) -> bool {
        self.answers >= answers && self.lasts >= lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    #[test]
    fn failures_are_in_a_row_until_something_works_or_time_has_passed() {
        let (mut row, mut at) = (InARow::default(), Instant::now());
        assert_eq!([row.failed(at), row.failed(at)], [1, 2]);
        row.worked();
        assert_eq!(row.failed(at), 1);
        for failures in 2..100 {
            at += HEALED_AFTER - Duration::from_secs(1);
            assert_eq!(row.failed(at), failures, "it goes on failing");
        }
        for _ in 0..100 {
            at += HEALED_AFTER;
            assert_eq!(row.failed(at), 1, "a blink now and then");
        }
    }

    #[test]
    fn an_hour_without_an_answer_counts_as_ten_seconds() {
        let (mut lasting, start) = (Lasting::default(), Instant::now());
        for (at_s, is_half_a_minute) in
            [(0, false), (5, false), (3_605, false), (3_610, false), (3_619, false), (3_620, true)]
        {
            lasting.came(start + Duration::from_secs(at_s));
            assert_eq!(lasting.is(2, Duration::from_secs(30)), is_half_a_minute, "{at_s}");
        }
        assert!(!lasting.is(7, Duration::from_secs(30)));
    }

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_fills_the_whole_interval() {
        let backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(1) };
        let mut rng = SmallRng::seed_from_u64(1);
        for (failures, longest_ms) in [(1, 100), (2, 200), (4, 800), (5, 1_000), (99, 1_000)] {
            let waits: Vec<_> = (0..1_000).map(|_| backoff.wait(failures, &mut rng).as_millis()).collect();
            assert!(waits.iter().all(|w| *w <= longest_ms), "{failures}");
            assert!(waits.iter().any(|w| *w < longest_ms / 10), "{failures}");
            assert!(waits.iter().any(|w| *w > longest_ms * 9 / 10), "{failures}");
        }
    }
}
