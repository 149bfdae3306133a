//! Whether the store works as a whole, as opposed to one batch that does not. A commit of any lane since is a witness; where
//! there is none the worker commits a probe of its own, so that nothing waits for a like of a stranger to prove anything.

use super::{LaneKeys, class_name, now};
use crate::common::backoff::{Backoff, Lasting};
use crate::common::sync::Locked;
use crate::engine::progress::Progress;
use crate::store::{ErrorClass, Store, StoreError};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// So long a store that has worked must answer nothing but codes that mean "never" before the worker believes it and ends:
/// longer than a restart of it, or a change of its permissions, takes to settle.
const NEVER_FOR: Duration = Duration::from_secs(30);

/// How long a call may take on whose answer the whole worker waits: as long as Firestore's own calls may. One that nobody
/// answers, as of a connection that died in silence, must not keep the next one from being tried.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Refused credentials so often in a row are no token that is being refreshed.
const UNAUTHENTICATED_LIMIT: u32 = 5;

/// Shared by whoever writes to the store.
pub struct Health {
    store: Arc<dyn Store>,
    progress: Arc<Progress>,
    keys: Mutex<LaneKeys>,
    /// One probe at a time: whoever waits for it takes its answer.
    turn: tokio::sync::Mutex<()>,
    /// Answers that meant "never", with no other between, and the witnesses then: one more, and it is over.
    never: Mutex<Option<(Lasting, u64)>>,
}

/// Whether an answer means that no batch can succeed.
fn is_never(class: &ErrorClass) -> bool {
    matches!(class, ErrorClass::Fatal | ErrorClass::Rejected)
}

impl Health {
    /// Of a store, with keys for its probes.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, progress: Arc<Progress>, keys: LaneKeys) -> Self {
        let (turn, never) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { store, progress, keys: Mutex::new(keys), turn, never }
    }

    /// Writes that the store has taken so far.
    #[must_use]
    pub fn witnesses(&self) -> u64 {
        self.progress.witnesses()
    }

    /// The failure as it is to be taken: credentials that are refused again and again are no token that is refreshed.
    #[must_use]
    pub fn judged(&self, error: StoreError) -> StoreError {
        let refused = error.class == ErrorClass::Unauthenticated;
        if refused && self.progress.unauthenticated() >= UNAUTHENTICATED_LIMIT {
            return StoreError { class: ErrorClass::Fatal, ..error };
        }
        error
    }

    /// Whether the store has taken a write since there were so many `witnesses`; if none came by itself, a probe is one. If
    /// that fails too, the store fails as a whole, and the worker pauses.
    pub async fn works_since(&self, witnesses: u64) -> bool {
        if self.witnesses() > witnesses {
            return true;
        }
        let _turn = self.turn.lock().await;
        if self.witnesses() > witnesses {
            return true;
        }
        // While it pauses, its watch asks again and again.
        !self.progress.store_failing() && self.probe().await.is_ok()
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let key = self.keys.locked().next();
        let error = match tokio::time::timeout(ANSWERED_WITHIN, self.store.probe(key)).await {
            Ok(Ok(())) => {
                self.progress.witness();
                return Ok(());
            }
            Ok(Err(error)) => self.judged(error),
            Err(_) => StoreError::new(ErrorClass::Unknown, format!("a probe was not answered in {ANSWERED_WITHIN:?}")),
        };
        self.progress.failure(class_name(&error.class));
        let mut never = self.never.locked();
        let witnesses = self.witnesses();
        let mut lasting = match *never {
            Some((lasting, then)) if then == witnesses => lasting,
            _ => Lasting::default(),
        };
        lasting.came(now());
        *never = is_never(&error.class).then_some((lasting, witnesses));
        drop(never);
        if self.progress.pause() {
            tracing::warn!("the store fails as a whole; pulling stops, batches and their leases are kept: {error}");
        }
        Err(error)
    }

    /// While the store fails as a whole, probes until it works. Returns when `stop` is cancelled.
    ///
    /// # Errors
    /// For half a minute the store has answered nothing but that it never will: the worker must stop.
    pub async fn watch(&self, backoff: Backoff, seed: u64, stop: CancellationToken) -> Result<(), StoreError> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut failures = 0;
        loop {
            if self.progress.store_failing() {
                failures += 1;
            } else {
                failures = 0;
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    () = self.progress.store_fails() => continue,
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = self.progress.store_works() => continue,
                () = tokio::time::sleep(self.wait(backoff, failures, &mut rng)) => {}
            }
            let probed = async {
                let _turn = self.turn.lock().await;
                self.probe().await
            };
            let answer = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                answer = probed => answer,
            };
            if let Err(error) = answer
                && let Some(error) = self.last_word(error)
            {
                return Err(error);
            }
        }
    }

    /// How long until the next probe. A store that says "never" is asked often enough to be believed after half a minute.
    fn wait(&self, backoff: Backoff, failures: u32, rng: &mut SmallRng) -> Duration {
        let says_never = self.never.locked().is_some();
        let wait = backoff.wait(failures, rng);
        if says_never { wait.min(NEVER_FOR / 3) } else { wait }
    }

    /// The failure with which the worker ends, when the store has answered so for long enough.
    fn last_word(&self, error: StoreError) -> Option<StoreError> {
        let (lasting, _) = (*self.never.locked())?;
        if !lasting.is(1, NEVER_FOR) {
            return None;
        }
        let message = match error.class {
            ErrorClass::Rejected => {
                format!("the store refuses every like, so nothing is quarantined; are its settings right? {error}")
            }
            _ => error.message,
        };
        Some(StoreError { class: ErrorClass::Fatal, message, source: error.source })
    }
}
