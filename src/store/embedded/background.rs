//! The two threads that tend the tables: one writes sealed generations as tables, one merges tables, sweeps what was
//! deleted, and holds old tables against their checksums.

use super::engine::{Engine, Next};
use super::error::StorageError;
use super::frame::Tree;
use super::job::Job;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long after a failure the same is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Brings generations to disk until the store closes or fails.
pub(super) fn flush(engine: &Engine) {
    while let Next::Flush(last) = engine.next_flush() {
        match engine.flush(last) {
            Ok(()) => engine.flushed(None),
            Err(error) if error.passes() => {
                let trouble = error.describe(&engine.path);
                tracing::warn!("{trouble}");
                engine.flushed(Some(trouble));
                if !engine.wait_to_try_again(TRY_AGAIN_AFTER) {
                    return;
                }
            }
            Err(error) => {
                engine.fail(&error);
                return;
            }
        }
    }
}

/// Merges and sweeps until the store closes or fails. `jobs` asks the writer to seal what is in memory.
pub(super) fn merge(engine: &Engine, jobs: &mpsc::WeakSender<Job>) {
    loop {
        let done = match engine.next_merge() {
            Next::End | Next::Flush(_) => return,
            Next::Merge => engine.trees.merge(),
            Next::Purge => purge(engine, jobs),
            // It is gone once it was merged with others.
            Next::Check(table) if !table.path.exists() => Ok(()),
            Next::Check(table) => table.check().map(drop),
        };
        match done {
            Ok(()) => {}
            Err(error) if error.passes() => {
                tracing::warn!("{}", error.describe(&engine.path));
                if !engine.wait_to_try_again(TRY_AGAIN_AFTER) {
                    return;
                }
            }
            Err(error) => {
                engine.fail(&error);
                return;
            }
        }
    }
}

/// Asks the writer to seal what is in memory, and rewrites the quarantine when that is on disk.
fn purge(engine: &Engine, jobs: &mpsc::WeakSender<Job>) -> Result<(), StorageError> {
    // The writer has ended: the store closes, and sweeps then.
    let Some(jobs) = jobs.upgrade() else { return Ok(()) };
    let (reply, sealed) = oneshot::channel();
    if jobs.blocking_send(Job::Seal(reply)).is_err() {
        return Ok(());
    }
    drop(jobs);
    match sealed.blocking_recv() {
        Ok(Ok(())) => engine.trees.rewrite(Tree::Quarantine),
        // It was not possible now. A try later will be.
        _ => {
            engine.purge_soon();
            Ok(())
        }
    }
}
