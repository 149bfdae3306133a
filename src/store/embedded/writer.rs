//! The one thread that writes.
//!
//! It takes all batches that wait, decides their likes against what is stored, commits each batch on its own, makes one
//! durable sync for all of them, shows the result to readers, and only then answers. Whatever fails before the end of
//! the sync, nobody of the group is told that it worked.

use super::engine::{Engine, Generation};
use super::job::{Correction, Job, Outcome, Prepared};
use super::layout::{LOG_HEAD, counter, log_key, membership, post_prefix, push_post, push_shard, record};
use super::read;
use super::table::push_counter_record;
use super::{BATCH_KEY_LIFETIME, StorageError};
use crate::membership::{Decision, decide};
use crate::store::{Applied, REPAIR_SHARD, Repaired, StoreError};
use fjall::{OwnedWriteBatch, PersistMode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// How many jobs share one sync at most.
const GROUP_JOBS: usize = 64;

/// Bytes of records after which a group takes no further job: it bounds what is answered late, and memory.
const GROUP_BYTES: usize = 8 << 20;

/// Records published between two warmings: few enough that none of them has left the cache again.
const WARM_RECORDS: usize = 256;

/// How often expired batch keys are looked for, and how many go at a time: more than a busy store makes in that time,
/// and few enough that nobody waits long.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_KEYS: usize = 4_096;

/// The writer's own state.
pub(super) struct Writer<'a> {
    engine: &'a Engine,
    /// What this group has written so far. Readers do not see it: it may not be durable yet.
    pending: Generation,
    /// The entry of the log that is being made.
    entry: Vec<u8>,
    counter_key: Vec<u8>,
    consumer: Vec<u8>,
    swept_at: Option<Instant>,
    /// No key that expired before this (seconds since 1970) is left.
    swept_until: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        Self {
            engine,
            pending: Generation::default(),
            entry: Vec::new(),
            counter_key: Vec::new(),
            consumer: post_prefix(&engine.config.consumer),
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
            match self.commit(&group) {
                Ok(outcomes) => group.drain(..).zip(outcomes).for_each(|(job, outcome)| job.answer(outcome)),
                Err(error) => group.drain(..).for_each(|job| job.refuse(&error.message)),
            }
        }
    }

    /// One group, durable when this answers.
    fn commit(&mut self, group: &[Job]) -> Result<Vec<Outcome>, StoreError> {
        self.engine.working()?;
        if self.engine.tables().active.record_bytes() >= self.engine.config.generation_bytes {
            self.engine.seal()?;
        }
        self.pending.members.clear();
        self.pending.counters.clear();
        self.pending.shards.clear();
        self.pending.log_entries = 0;
        let outcomes = self.write(group).and_then(|outcomes| {
            self.sweep()?;
            self.engine.db.persist(PersistMode::SyncData)?;
            Ok(outcomes)
        });
        let outcomes = outcomes.map_err(|error| self.engine.fail(&error))?;
        self.publish();
        Ok(outcomes)
    }

    /// Decides and commits the jobs one after the other; each sees what the ones before it wrote.
    fn write(&mut self, group: &[Job]) -> Result<Vec<Outcome>, StorageError> {
        let engine = self.engine;
        let tables = engine.tables();
        group
            .iter()
            .map(|job| match job {
                Job::Apply(batch, _) => {
                    Ok(Outcome::Applied(self.apply(&tables.active, tables.sealed.as_deref(), batch)?))
                }
                Job::Repair(correction, _) => Ok(Outcome::Repaired(self.repair(&tables.active, correction)?)),
                Job::Discard(keys, _) => {
                    let mut commit = engine.db.batch();
                    keys.iter().for_each(|key| commit.remove(&engine.quarantine, key.as_slice()));
                    commit.commit()?;
                    Ok(Outcome::Quarantine)
                }
                Job::Quarantine(rows, _) => {
                    let mut commit = engine.db.batch();
                    for (key, row) in rows {
                        commit.insert(&engine.quarantine, key.as_slice(), row.as_slice());
                    }
                    commit.commit()?;
                    Ok(Outcome::Quarantine)
                }
            })
            .collect()
    }

    fn apply(
        &mut self,
        active: &Generation,
        sealed: Option<&Generation>,
        batch: &Prepared,
    ) -> Result<Applied, StorageError> {
        let engine = self.engine;
        let mut batch_key = self.consumer.clone();
        batch_key.extend_from_slice(batch.key.as_bytes());
        if let Some(outcome) = engine.batches.get(&batch_key)? {
            return Ok(read_outcome(&outcome)?);
        }
        let hashes = batch.places.iter().map(|&(hash, _)| hash);
        active.members.warm(hashes.clone());
        if let Some(sealed) = sealed {
            sealed.members.warm(hashes.clone());
        }
        engine.filter.warm(hashes);
        let mut applied = Applied::default();
        self.entry.clear();
        self.entry.extend_from_slice(&[0; LOG_HEAD]);
        let mut sums: Vec<(usize, i64)> = Vec::new();
        let mut at_like = 0;
        for likes in batch.likes.chunk_by(|a, b| a.post() == b.post()) {
            let (mut sum, first) = (0, at_like);
            for like in likes {
                let (hash, at) = batch.places[at_like];
                at_like += 1;
                // `Prepared` has made a record for every like.
                let Some(record) = record(&batch.records[at as usize..]) else { continue };
                let in_memory = self
                    .pending
                    .members
                    .get(hash, record.key)
                    .or_else(|| active.members.get(hash, record.key))
                    .or_else(|| sealed.and_then(|sealed| sealed.members.get(hash, record.key)));
                let decision = match in_memory {
                    Some(value) => decide(Some(membership(value)?), like),
                    None if engine.filter.may_hold(hash) => match engine.members.get(record.key)? {
                        Some(value) => decide(Some(membership(&value)?), like),
                        None => decide(None, like),
                    },
                    None => decide(None, like),
                };
                match decision {
                    Decision::Duplicate => applied.duplicates += 1,
                    Decision::Stale => applied.stale += 1,
                    Decision::Write { delta } => {
                        applied.applied += 1;
                        sum += i64::from(delta);
                        self.pending.members.put(hash, record.bytes);
                        self.entry.extend_from_slice(record.bytes);
                    }
                }
            }
            if sum != 0 {
                sums.push((first, sum));
            }
        }
        if applied.applied == 0 {
            return Ok(applied);
        }
        let members = (self.entry.len() - LOG_HEAD) as u32;
        self.entry[..LOG_HEAD].copy_from_slice(&members.to_le_bytes());
        for (first, sum) in sums {
            self.add(batch.likes[first].post(), batch.shard, sum);
        }
        let number = self.next_number(active);
        // One commit: a crash keeps all of the batch or nothing of it.
        let expires = now_s() + BATCH_KEY_LIFETIME.as_secs();
        let mut commit = OwnedWriteBatch::with_capacity(engine.db.clone(), 3);
        commit.insert(&engine.log, log_key(active.number, number), self.entry.as_slice());
        commit.insert(&engine.expiry, expiry_key(expires, &batch_key), []);
        commit.insert(&engine.batches, batch_key, write_outcome(&applied));
        commit.commit()?;
        Ok(applied)
    }

    /// Only this thread writes versions, so what it reads here is what it replaces. The version and the entry of the log
    /// change in one commit.
    fn repair(&mut self, active: &Generation, correction: &Correction) -> Result<Repaired, StorageError> {
        let engine = self.engine;
        let prefix = post_prefix(&correction.post);
        if read::version(engine, &prefix)? != correction.version {
            return Ok(Repaired::Refused);
        }
        let repairs = engine.repairs.get(&prefix)?.map_or(Ok(0), |value| counter(&value))?;
        self.entry.clear();
        self.entry.extend_from_slice(&[0; LOG_HEAD]);
        self.add(&correction.post, REPAIR_SHARD, correction.delta);
        let number = self.next_number(active);
        let mut commit = engine.db.batch();
        commit.insert(&engine.log, log_key(active.number, number), self.entry.as_slice());
        commit.insert(&engine.repairs, prefix, (repairs + 1).to_le_bytes());
        commit.commit()?;
        Ok(Repaired::Done)
    }

    /// Adds to a counter, in the entry of the log and in memory.
    fn add(&mut self, post: &str, shard: u16, delta: i64) {
        self.counter_key.clear();
        push_post(&mut self.counter_key, post);
        push_shard(&mut self.counter_key, shard);
        push_counter_record(&mut self.entry, &self.counter_key, delta);
        self.pending.counters.add(self.engine.hasher.hash(&self.counter_key), &self.counter_key, delta);
        self.pending.shards.insert(shard);
    }

    /// The number of the next entry of the log in the active generation.
    fn next_number(&mut self, active: &Generation) -> u64 {
        let number = active.log_entries + self.pending.log_entries;
        self.pending.log_entries += 1;
        number
    }

    /// Makes a durable group visible, whole.
    fn publish(&mut self) {
        if self.pending.log_entries == 0 {
            return;
        }
        let active = &mut self.engine.tables_mut().active;
        let hasher = &self.engine.hasher;
        let mut records = self.pending.members.records();
        let mut some: Vec<(u32, &[u8])> = Vec::with_capacity(WARM_RECORDS);
        loop {
            some.clear();
            some.extend(records.by_ref().take(WARM_RECORDS).map(|record| (hasher.hash(record.key), record.bytes)));
            if some.is_empty() {
                break;
            }
            active.members.warm(some.iter().map(|&(hash, _)| hash));
            some.iter().for_each(|&(hash, bytes)| active.members.put(hash, bytes));
        }
        for record in self.pending.counters.records() {
            if let Some(delta) = record.value.first_chunk() {
                active.counters.add(hasher.hash(record.key), record.key, i64::from_le_bytes(*delta));
            }
        }
        active.shards.append(&mut self.pending.shards);
        active.log_entries += self.pending.log_entries;
    }

    /// Removes some batch keys whose time has come.
    fn sweep(&mut self) -> Result<(), StorageError> {
        if self.swept_at.is_some_and(|at| at.elapsed() < SWEEP_EVERY) {
            return Ok(());
        }
        self.swept_at = Some(Instant::now());
        let (engine, now) = (self.engine, now_s());
        let mut commit = engine.db.batch();
        for row in engine.expiry.range(self.swept_until.to_be_bytes()..now.to_be_bytes()).take(SWEEP_KEYS) {
            let key = row.key()?;
            if let Some((expires, batch_key)) = key.split_first_chunk() {
                // Later searches begin here: they do not walk over what earlier ones removed.
                self.swept_until = u64::from_be_bytes(*expires);
                commit.remove(&engine.batches, batch_key);
            }
            commit.remove(&engine.expiry, key);
        }
        Ok(commit.commit()?)
    }
}

fn expiry_key(expires_s: u64, batch_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + batch_key.len());
    key.extend_from_slice(&expires_s.to_be_bytes());
    key.extend_from_slice(batch_key);
    key
}

fn write_outcome(applied: &Applied) -> [u8; 24] {
    let mut row = [0; 24];
    for (part, number) in row.chunks_exact_mut(8).zip([applied.applied, applied.duplicates, applied.stale]) {
        part.copy_from_slice(&number.to_le_bytes());
    }
    row
}

fn read_outcome(row: &[u8]) -> Result<Applied, super::layout::Damaged> {
    let row: &[u8; 24] = row.try_into().map_err(|_| super::layout::Damaged("a batch key"))?;
    let [applied, duplicates, stale] =
        [0, 8, 16].map(|at| row[at..].first_chunk().map_or(0, |part| u64::from_le_bytes(*part)));
    Ok(Applied { applied, duplicates, stale, replayed: true })
}

/// Seconds since 1970 by this machine's clock. Only the life of batch keys depends on it, and they only save work.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
