//! Says a reason once a minute, not once a message.

use crate::like::event::Poison;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

/// A reason is logged once in this time, with how often it came up since.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Reasons told apart in the log at once; the reasons carry text from outside, so their number needs a limit.
const MAX_REASONS: usize = 1_000;

/// The reasons that were said.
#[derive(Default)]
pub(super) struct Log {
    said: HashMap<String, (Instant, u64)>,
}

impl Log {
    /// Notes a reason at `now`. When it is time to say it, for how many deliveries it was the reason since it was said.
    pub(super) fn note(&mut self, reason: &Poison, now: Instant) -> Option<u64> {
        if self.said.len() >= MAX_REASONS {
            self.said.clear();
        }
        let (last, unsaid) = match self.said.entry(reason.to_string()) {
            Entry::Vacant(entry) => {
                entry.insert((now, 0));
                return Some(1);
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        *unsaid += 1;
        if now.saturating_duration_since(*last) < LOG_EVERY {
            return None;
        }
        *last = now;
        Some(std::mem::take(unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_at_once_and_then_once_a_minute_with_its_number() {
        let (mut log, start) = (Log::default(), Instant::now());
        let reason = Poison::refused_by_store("no");
        assert_eq!(log.note(&reason, start), Some(1));
        for second in 1..60 {
            assert_eq!(log.note(&reason, start + Duration::from_secs(second)), None);
        }
        assert_eq!(log.note(&Poison::refused_by_store("never"), start), Some(1), "another reason");
        assert_eq!(log.note(&reason, start + Duration::from_secs(60)), Some(60));
        assert_eq!(log.note(&reason, start + Duration::from_secs(61)), None);
    }

    #[test]
    fn reasons_that_never_end_do_not_fill_the_memory() {
        let mut log = Log::default();
        for n in 0..3 * MAX_REASONS {
            log.note(&Poison::refused_by_store(n.to_string()), Instant::now());
        }
        assert!(log.said.len() <= MAX_REASONS);
    }
}
