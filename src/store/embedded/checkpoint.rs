//! The thread that moves a sealed generation from memory into sorted tables, and then forgets its log.
//!
//! The order of steps is what a crash relies on:
//!
//! 1. memberships are ingested: doing it again changes nothing;
//! 2. counters are ingested together with the generation's number, which become visible as one: at the next opening
//!    that number says whether the log still has to be added to the counters;
//! 3. memory lets go of the generation; 4. its log is removed, in any number of steps.

use super::StorageError;
use super::engine::{Engine, Generation, LOG_REMOVALS};
use super::layout::{MERGED_KEY, Record, counter, log_key};
use super::table::Table;

/// Works until the store closes or fails.
pub(super) fn run(engine: &Engine) {
    while let Some(generation) = engine.next_sealed() {
        if let Err(error) = checkpoint(engine, &generation) {
            engine.fail(&error);
            return;
        }
    }
}

fn checkpoint(engine: &Engine, generation: &Generation) -> Result<(), StorageError> {
    let mut members = engine.members.start_ingestion()?;
    for record in sorted(&generation.members) {
        members.write(record.key, record.value)?;
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
