//! Where poison waits for the quarantine. It has room of its own, so it never blocks a healthy delivery.

use crate::ack::{Confirmation, Settlement};
use crate::backoff::Backoff;
use crate::event::Poison;
use crate::flush::{Drain, now};
use crate::progress::Progress;
use crate::receipt::Receipt;
use crate::store::{ErrorClass, Store, StoreError};
use crate::watchdog::Sign;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Poison that is kept with one call: a payload may have 10 MiB, and a commit of Firestore takes as much.
const ENTRIES_A_CALL: usize = 50;

/// A reason is logged once in this time, with how often it came up since.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Reasons told apart in the log at once; the reasons carry text from outside, so their number needs a limit.
const MAX_REASONS: usize = 1_000;

/// Entries that failed together so often in a row are halved.
const HALVE_AFTER: u32 = 3;

/// Entries that are kept with one call.
struct Group {
    poison: Vec<(Receipt, Poison)>,
    failures: u32,
}

/// Moves poison into the store's quarantine, then acknowledges it.
pub struct Quarantine {
    /// Where it is kept.
    pub store: Arc<dyn Store>,
    /// The source's name, kept with each entry.
    pub source: String,
    /// The numbers.
    pub progress: Arc<Progress>,
    /// What the watchdog sees of it.
    pub sign: Arc<Sign>,
    /// Where acknowledgements wait for the broker's answer.
    pub confirmations: mpsc::Sender<Confirmation>,
    /// The wait between attempts.
    pub backoff: Backoff,
    /// How long an entry is tried again before it is left to redelivery.
    pub retry_deadline: Duration,
    /// When everything must be given up, once a shutdown has begun.
    pub drain: Arc<Drain>,
}

impl Quarantine {
    /// Works until `poison` is closed and empty. What cannot be kept is dropped, so that it is delivered again; it is
    /// never acknowledged.
    ///
    /// # Errors
    /// The store cannot work.
    pub async fn run(self, mut poison: mpsc::Receiver<(Receipt, Poison)>, seed: u64) -> Result<(), StoreError> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut log = Log::default();
        let mut waiting = Vec::with_capacity(ENTRIES_A_CALL);
        while poison.recv_many(&mut waiting, ENTRIES_A_CALL).await > 0 {
            for (_, reason) in &waiting {
                if let Some(deliveries) = log.note(reason, now()) {
                    tracing::warn!(deliveries, "poison quarantined: {reason}");
                }
            }
            self.keep(std::mem::take(&mut waiting), &mut rng).await?;
            self.sign.rests();
        }
        Ok(())
    }

    /// Keeps the entries, or drops those that cannot be kept in time. What fails together is halved, as a batch is: an
    /// entry that the store refuses must not take others with it, and "too large" hides behind several codes.
    async fn keep(&self, poison: Vec<(Receipt, Poison)>, rng: &mut SmallRng) -> Result<(), StoreError> {
        let give_up = now() + self.retry_deadline;
        let mut groups = vec![Group { poison, failures: 0 }];
        while let Some(mut group) = groups.pop() {
            let entries: Vec<_> =
                group.poison.iter().map(|(receipt, why)| receipt.quarantined(&self.source, why)).collect();
            self.sign.steps("waits for the store to answer");
            let answer = tokio::select! {
                biased;
                () = self.drain.expire(give_up) => {
                    self.leave(group, "there is no more time");
                    continue;
                }
                answer = self.store.quarantine(&entries) => answer,
            };
            let error = match answer {
                Ok(()) => {
                    self.settle(group).await;
                    continue;
                }
                Err(error) if error.class == ErrorClass::CannotWork => return Err(error),
                Err(error) => error,
            };
            group.failures += 1;
            let failures = group.failures;
            let refused = error.class == ErrorClass::BatchCannotWork;
            if group.poison.len() == 1 {
                if refused {
                    self.leave(group, &error.message);
                } else {
                    groups.push(group);
                }
            } else {
                if refused || failures.is_multiple_of(HALVE_AFTER) {
                    let half = group.poison.len() / 2;
                    groups.push(Group { poison: group.poison.split_off(half), failures });
                }
                groups.push(group);
            }
            // Also after an entry was left: a broker that delivers it again at once is not to be asked at the speed of the
            // CPU. At the deadline the next turn drops what is left.
            tokio::select! {
                biased;
                () = self.drain.expire(give_up) => {}
                () = tokio::time::sleep(self.backoff.wait(failures, rng)) => {}
            }
        }
        Ok(())
    }

    async fn settle(&self, group: Group) {
        for (receipt, reason) in group.poison {
            self.progress.quarantine(reason.field);
            if let Some(confirmation) = receipt.settle(&Settlement::Quarantined(reason)) {
                // Closed only when the worker is being torn down; then nobody waits for the answer.
                let _ = self.confirmations.send(confirmation).await;
            }
        }
    }

    fn leave(&self, group: Group, why: &str) {
        let deliveries = group.poison.len();
        tracing::error!(deliveries, "poison could not be quarantined and is left to redelivery: {why}");
        drop(group);
        self.progress.leave(deliveries);
    }
}

/// Says a reason once a minute, not once a message.
#[derive(Default)]
struct Log {
    said: HashMap<String, (Instant, u64)>,
}

impl Log {
    /// Notes a reason at `now`. When it is time to say it, for how many deliveries it was the reason since it was said.
    fn note(&mut self, reason: &Poison, now: Instant) -> Option<u64> {
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
