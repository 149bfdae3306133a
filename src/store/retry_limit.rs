//! How long an operator's command bears a store that fails: somebody waits at a terminal.

use crate::common::backoff::Backoff;
use crate::store::{ErrorClass, StoreError};
use rand::Rng;
use std::time::Duration;

/// Failures in a row after which the store is given up. With [`BACKOFF`] that is half a minute at most.
pub(crate) const MAX_FAILURES: u32 = 8;

/// The wait between attempts.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(10) };

/// Counts failures in a row.
pub(crate) struct RetryLimit<'a, R> {
    failures: u32,
    rng: &'a mut R,
}

impl<'a, R: Rng> RetryLimit<'a, R> {
    /// Nothing has failed yet.
    pub(crate) fn new(rng: &'a mut R) -> Self {
        Self { failures: 0, rng }
    }

    /// What was asked for was done: the row ends.
    pub(crate) fn worked(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The failure, when another attempt cannot help or there were too many.
    pub(crate) async fn wait(&mut self, error: StoreError) -> Result<(), StoreError> {
        self.failures += 1;
        match error.class {
            ErrorClass::DidNotCommit | ErrorClass::Unknown | ErrorClass::Unauthenticated
                if self.failures < MAX_FAILURES =>
            {
                tokio::time::sleep(BACKOFF.wait(self.failures, self.rng)).await;
                Ok(())
            }
            _ => Err(error),
        }
    }
}
