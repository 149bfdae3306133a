//! Quarantined deliveries, once more through the pipeline: after a fix of the worker, of its settings or of the store,
//! what was poison may count.
//!
//! An entry leaves the quarantine after its effect is durable and never before, so whatever ends a readmission (a crash,
//! an outage, an interrupt) leaves an entry that can be readmitted again: counting is idempotent.

mod entries;
mod kept;

use crate::engine::pipeline::{self, Config, EngineError};
use crate::engine::progress::Progress;
use crate::like::event::Poison;
use crate::store::retry_limit::RetryLimit;
use crate::store::{Quarantined, Store, StoreError};
use entries::Entries;
use kept::Kept;
use rand::Rng;
use std::sync::Arc;
use std::time::SystemTime;

/// What became of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its effect is durable, through this delivery of it or an earlier one. It has left the quarantine.
    Counted,
    /// It is poison still, for this reason, and stays.
    StillPoison(Poison),
    /// The readmission ended before. It stays.
    Left,
}

/// Why a readmission ended early. What was counted before has left the quarantine, or can be readmitted again.
#[derive(Debug, thiserror::Error)]
pub enum ReprocessError {
    /// The pipeline stopped.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What was counted could not be deleted. It stays; readmitting it again changes no count.
    #[error("what was counted cannot be deleted from the quarantine: {0}")]
    Discard(#[source] StoreError),
}

/// Readmits some entries: as many as may be in memory at once. The fates are in the order of the entries, also when the
/// readmission ended early.
///
/// The time of the readmission counts as the time of receipt, so an event that came from the future can be counted once
/// its time has come.
pub async fn reprocess(
    store: &Arc<dyn Store>,
    entries: Vec<Quarantined>,
    config: Config,
    shutdown: impl Future<Output = ()>,
    progress: Arc<Progress>,
    rng: &mut impl Rng,
) -> (Vec<Fate>, Result<(), ReprocessError>) {
    let (ids, messages): (Vec<String>, Vec<_>) =
        entries.into_iter().map(|entry| (entry.id, (entry.data, entry.attributes))).unzip();
    let source = Arc::new(Entries::new(messages, SystemTime::now()));
    let kept = Arc::new(Kept(Arc::clone(store)));
    let ran = pipeline::run(source.clone(), kept, config, shutdown, progress).await;
    let fates = source.fates();
    let counted = ids.into_iter().zip(&fates).filter(|(_, fate)| **fate == Fate::Counted).map(|(id, _)| id);
    let discarded = discard(&**store, &counted.collect::<Vec<_>>(), rng).await;
    let ended = match (ran, discarded) {
        (Err(error), _) => Err(error.into()),
        (_, Err(error)) => Err(ReprocessError::Discard(error)),
        (Ok(_), Ok(())) => Ok(()),
    };
    (fates, ended)
}

/// Deletes entries, and tries again while that may help: deleting twice is deleting once.
///
/// # Errors
/// When the store cannot delete, or keeps failing.
pub async fn discard(store: &dyn Store, ids: &[String], rng: &mut impl Rng) -> Result<(), StoreError> {
    let mut retry_limit = RetryLimit::new(rng);
    while let Err(error) = store.discard(ids).await {
        retry_limit.wait(error).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
