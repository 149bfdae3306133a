//! The thread that moves a sealed generation from memory into sorted tables, and then forgets its log.
//!
//! The order of steps is what a crash relies on:
//!
//! 1. memberships are ingested: doing it again changes nothing;
//! 2. counters are ingested together with the generation's number, which become visible as one: at the next opening
//!    that number says whether the log still has to be added to the counters;
//! 3. memory lets go of the generation; 4. its log is removed, in any number of steps.

use super::StorageError;
use super::engine::{Engine, Generation, LOG_REMOVALS, Next};
use super::layout::{MERGED_KEY, Record, counter, log_key};
use super::table::Table;

/// Keys on disk that the filter takes in between two looks at whether a generation waits.
const FILTER_STEP: usize = 20_000;

/// Works until the store closes or fails. Checkpoints come first; between them, after opening, it reads the keys that are
/// on disk already into the filter.
pub(super) fn run(engine: &Engine) {
    // Later checkpoints add their own keys, so it does not matter that this does not see them.
    let mut old_keys = Some(engine.members.iter());
    loop {
        let step = match engine.next_sealed(old_keys.is_some()) {
            Next::End => return,
            Next::Checkpoint(generation) => checkpoint(engine, &generation),
            Next::Nothing => fill_filter(engine, &mut old_keys),
        };
        if let Err(error) = step {
            engine.fail(&error);
            return;
        }
    }
}

fn fill_filter(engine: &Engine, old_keys: &mut Option<fjall::Iter>) -> Result<(), StorageError> {
    let mut left = FILTER_STEP;
    for row in old_keys.iter_mut().flatten().take(FILTER_STEP) {
        engine.filter.add(engine.hasher.hash(&row.key()?));
        left -= 1;
    }
    if left > 0 {
        engine.filter.complete();
        *old_keys = None;
    }
    Ok(())
}

fn checkpoint(engine: &Engine, generation: &Generation) -> Result<(), StorageError> {
    let mut members = engine.members.start_ingestion()?;
    for record in sorted(&generation.members) {
        members.write(record.key, record.value)?;
        engine.filter.add(engine.hasher.hash(record.key));
    }
    members.finish()?;

    let mut counters = engine.counters.start_ingestion()?;
    counters.write(MERGED_KEY, generation.number.to_le_bytes())?;
    for record in sorted(&generation.counters) {
        // Only this thread writes counters, so what it reads is what it replaces.
        let before = match engine.counters.get(record.key)? {
            Some(value) => counter(&value)?,
            None => 0,
        };
        let delta = counter(record.value)?;
        counters.write(record.key, before.wrapping_add(delta).to_le_bytes())?;
    }
    counters.finish()?;
    engine.checkpointed();

    let numbers: Vec<u64> = (0..generation.log_entries).collect();
    for numbers in numbers.chunks(LOG_REMOVALS) {
        let mut batch = engine.db.batch();
        numbers.iter().for_each(|&number| batch.remove(&engine.log, log_key(generation.number, number)));
        batch.commit()?;
    }
    Ok(())
}

/// The records of a table by key. They lie in sorted runs, one a batch, which a merge sort makes use of.
fn sorted(table: &Table) -> Vec<Record<'_>> {
    let mut records: Vec<Record<'_>> = table.records().collect();
    records.sort_by(|a, b| a.key.cmp(b.key));
    records
}
