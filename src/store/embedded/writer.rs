//! The one thread that writes.
//!
//! It takes all batches that wait, decides their likes against what is stored, appends a frame for each to the log, makes
//! one durable sync for all of them, puts their rows into the tables in memory, shows them to readers, and only then
//! answers. Whatever fails before the end of the sync, nobody of the group is told that it worked, and nothing of it is in
//! the tables.

use super::apply::JobError;
use super::engine::Engine;
use super::error::StorageError;
use super::frame::{self, Operation, Tree};
use super::job::{Job, Outcome};
use super::layout;
use super::log::Log;
use super::read::rows_between;
use crate::store::{Applied, ErrorClass, StoreError, Undecidable};
use lsm_tree::Slice;
use std::collections::HashMap;
use std::ops::Bound;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// How many jobs share one sync at most.
const GROUP_JOBS: usize = 64;

/// Bytes of records after which a group takes no further job: it bounds what is answered late, and memory.
const GROUP_BYTES: usize = 8 << 20;

/// How often expired batch keys are looked for, and how many go at a time: more than a busy store makes in that time,
/// and few enough that nobody waits long.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_KEYS: usize = 4_096;

/// How long the writer waits for the generation before to be on disk. A worker tries again after that.
const FLUSH_PATIENCE: Duration = Duration::from_secs(20);

/// A row that this group writes: its tree, key, and value unless it is removed.
struct Row {
    tree: Tree,
    key: Slice,
    value: Option<Slice>,
}

/// The writer's own state.
pub(super) struct Writer<'a> {
    pub(super) engine: &'a Engine,
    log: Log,
    /// The frames of this group.
    frames: Vec<u8>,
    /// The rows of this group, with the number of their frame.
    rows: Vec<(u64, Row)>,
    /// Where in `rows` the newest version of a key is; kept while further jobs of the group may ask for it.
    newest: HashMap<Slice, usize, foldhash::fast::RandomState>,
    swept_at: Option<Instant>,
    /// No key that expired before this (seconds since 1970) is left.
    swept_until: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(engine: &'a Engine, log: Log) -> Self {
        Self {
            engine,
            log,
            frames: Vec::new(),
            rows: Vec::new(),
            newest: HashMap::default(),
            swept_at: None,
            swept_until: 0,
        }
    }

    /// Works until all senders are gone and the queue is empty.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut group = Vec::new();
        while let Some(first) = jobs.blocking_recv() {
            let mut bytes = first.bytes();
            group.push(first);
            while group.len() < GROUP_JOBS && bytes < GROUP_BYTES {
                let Ok(next) = jobs.try_recv() else { break };
                bytes += next.bytes();
                group.push(next);
            }
            self.commit(&mut group);
        }
        self.end();
    }

    /// The last thing that the writer does: what was deleted is swept, and the log vouches for all of itself.
    fn end(&mut self) {
        if self.engine.working().is_err() {
            return;
        }
        let sweep = |writer: &mut Self| {
            writer.seal_and_wait()?;
            writer.engine.trees.rewrite(Tree::Quarantine).map_err(|error| error.for_store(&writer.engine.path))
        };
        if self.engine.purge_at_closing()
            && let Err(error) = sweep(self)
        {
            tracing::warn!("what was deleted is still on disk, until the store was open again for a while: {error}");
        }
        if let Err(error) = self.log.close() {
            tracing::warn!("the log's mark is not durable: {error}");
        }
    }

    /// One group. Each job is answered when the group is durable, or with why it is not.
    fn commit(&mut self, group: &mut Vec<Job>) {
        let outcomes = self.try_commit(group);
        match outcomes {
            Ok(outcomes) => group.drain(..).zip(outcomes).for_each(|(job, outcome)| job.answer(outcome)),
            Err(error) => {
                group.drain(..).for_each(|job| job.refuse(&error));
                // What was to be swept is still there.
                self.swept_until = 0;
            }
        }
        self.forget();
    }

    fn try_commit(&mut self, group: &[Job]) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
        self.engine.working()?;
        self.make_room()?;
        let mut outcomes = Vec::with_capacity(group.len());
        for (i, job) in group.iter().enumerate() {
            outcomes.push(self.job(job, i + 1 < group.len())?);
        }
        self.sweep()?;
        if self.rows.is_empty() {
            return Ok(outcomes);
        }
        let last = self.rows.last().map_or(self.log.durable(), |(number, _)| *number);
        self.log.append(&self.frames, last).map_err(|error| self.failed(error.into()))?;
        // What the disk holds after a failed sync is not known, so this never passes.
        self.log.sync().map_err(|error| self.engine.fail(&error.into()))?;
        let active = &mut self.engine.generations_mut().active;
        self.rows.drain(..).for_each(|(_, row)| active.put(row.tree, row.key, row.value));
        Ok(outcomes)
    }

    /// A failure that passes is told and forgotten; any other ends the store.
    fn failed(&self, error: StorageError) -> StoreError {
        if error.passes() { error.for_store(&self.engine.path) } else { self.engine.fail(&error) }
    }

    fn forget(&mut self) {
        self.frames.clear();
        self.rows.clear();
        self.newest.clear();
    }

    /// Seals the generation in memory when it is full. While the one before it does not come to disk it may grow to twice
    /// its size; then what is written has to wait.
    fn make_room(&mut self) -> Result<(), StoreError> {
        let (bytes, limit) = (self.engine.generations().active.bytes(), self.engine.config.generation_bytes);
        let may_grow = bytes < limit.saturating_mul(2);
        if bytes < limit || may_grow && self.engine.is_flushing() {
            return Ok(());
        }
        match self.seal() {
            Err(error) if may_grow && error.class == ErrorClass::DidNotCommit => Ok(()),
            sealed => sealed,
        }
    }

    /// Begins a new generation, and a new segment of the log with it.
    fn seal(&mut self) -> Result<(), StoreError> {
        self.engine.wait_until_flushed(FLUSH_PATIENCE)?;
        if self.log.is_empty() {
            return Ok(());
        }
        self.log.rotate().map_err(|error| self.failed(error.into()))?;
        self.engine.seal(self.log.durable());
        Ok(())
    }

    /// Decides one job. What concerns it alone is in its outcome; an error concerns the whole group.
    fn job(&mut self, job: &Job, asked_again: bool) -> Result<Result<Outcome, StoreError>, StoreError> {
        let at = frame::begin(&mut self.frames);
        let first = self.rows.len();
        let outcome = match job {
            Job::Apply(batch, _) => self.apply(batch).map(Outcome::Applied),
            Job::Repair(correction, _) => self.repair(correction).map(Outcome::Repaired),
            Job::Discard(keys, _) => {
                keys.iter().for_each(|key| self.remove(Tree::Quarantine, key.as_slice().into()));
                self.engine.purge_soon();
                Ok(Outcome::Done)
            }
            Job::Quarantine(rows, _) => {
                rows.iter()
                    .for_each(|(key, row)| self.put(Tree::Quarantine, key.as_slice().into(), row.as_slice().into()));
                Ok(Outcome::Done)
            }
            Job::Agree(settings, _) => self.agree(settings).map(Outcome::Settings),
            Job::Probe(key, _) => {
                self.put_batch_key(*key, &Applied::default());
                Ok(Outcome::Done)
            }
            Job::Seal(_) => self.seal_and_wait().map(|()| Outcome::Done).map_err(JobError::Told),
        };
        match outcome {
            Ok(outcome) => {
                self.finish_frame(at, first, asked_again);
                Ok(Ok(outcome))
            }
            Err(JobError::Storage(error)) if !error.passes() && !matches!(error, StorageError::Row { .. }) => {
                Err(self.engine.fail(&error))
            }
            Err(error) => {
                self.frames.truncate(at);
                self.rows.truncate(first);
                Ok(Err(match error {
                    JobError::Told(error) => error,
                    JobError::Storage(error) => error.for_store(&self.engine.path),
                    JobError::Undecidable(likes) => {
                        let text = likes.iter().map(Undecidable::to_string).collect::<Vec<_>>().join("; ");
                        StoreError::new(ErrorClass::Undecidable(likes), text)
                    }
                }))
            }
        }
    }

    /// Ends the frame of a job, unless it wrote nothing.
    fn finish_frame(&mut self, at: usize, first: usize, asked_again: bool) {
        if self.rows.len() == first {
            self.frames.truncate(at);
            return;
        }
        let number = self.rows[..first].last().map_or(self.log.next(), |(number, _)| number + 1);
        for (i, (of_row, row)) in self.rows.iter_mut().enumerate().skip(first) {
            *of_row = number;
            if asked_again {
                self.newest.insert(row.key.clone(), i);
            }
            let operation = Operation { tree: row.tree, key: &row.key, value: row.value.as_deref() };
            frame::push_operation(&mut self.frames, operation);
        }
        frame::finish(&mut self.frames, at, self.log.salt(), number, self.log.durable());
    }

    /// Seals what is in memory and waits until it is on disk.
    fn seal_and_wait(&mut self) -> Result<(), StoreError> {
        // What this group has decided so far is not in memory yet; it stays out, and in the new segment.
        self.seal()?;
        self.engine.wait_until_flushed(FLUSH_PATIENCE)
    }

    /// The newest value of a row, written by this group or stored.
    pub(super) fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Slice>, StorageError> {
        match self.newest.get(key) {
            Some(&at) => Ok(self.rows[at].1.value.clone()),
            None => match self.engine.generations().get(tree, key) {
                Some(value) => Ok(value.clone()),
                None => self.engine.trees.get(tree, key),
            },
        }
    }

    pub(super) fn put(&mut self, tree: Tree, key: Slice, value: Slice) {
        self.rows.push((0, Row { tree, key, value: Some(value) }));
    }

    pub(super) fn remove(&mut self, tree: Tree, key: Slice) {
        self.rows.push((0, Row { tree, key, value: None }));
    }

    /// Removes some batch keys whose time has come, in a frame of their own.
    fn sweep(&mut self) -> Result<(), StoreError> {
        if self.swept_at.is_some_and(|at| at.elapsed() < SWEEP_EVERY) {
            return Ok(());
        }
        self.swept_at = Some(Instant::now());
        let at = frame::begin(&mut self.frames);
        let first = self.rows.len();
        let (from, to) = (layout::expiry_key(self.swept_until, &[]), layout::expiry_key(now_s(), &[]));
        let (from, to) = (Bound::Included(from), Bound::Excluded(to));
        for row in rows_between(self.engine, Tree::Rows, from, to).take(SWEEP_KEYS) {
            let (key, _) = row.map_err(|error| self.failed(error))?;
            if let Ok((expires_s, batch_key)) = layout::expiry_of(&key) {
                // Later searches begin here: they do not walk over what earlier ones removed.
                self.swept_until = expires_s;
                self.remove(Tree::Rows, batch_key.into());
            }
            self.remove(Tree::Rows, key);
        }
        self.finish_frame(at, first, false);
        Ok(())
    }
}

/// Seconds since 1970 by this machine's clock. Only the life of batch keys depends on it, and they only save work.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
