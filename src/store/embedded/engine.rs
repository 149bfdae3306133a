//! The open store: its keyspaces, the two generations in memory, and how both come back after a crash.

use super::filter::Filter;
use super::layout::{FORMAT, MERGED_KEY, counter, log_entry, log_position};
use super::table::{KeyHasher, Table};
use super::{Config, StorageError, describe};
use crate::store::{ErrorClass, StoreError};
use fjall::config::{FilterPolicy, FilterPolicyEntry};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What was written since the last checkpoint began, or what one checkpoint moves into tables.
#[derive(Default)]
pub(super) struct Generation {
    /// Counts up from 1 over the life of the store.
    pub(super) number: u64,
    /// The newest membership of each member that was written in this generation.
    pub(super) members: Table,
    /// What this generation adds to counters.
    pub(super) counters: Table,
    /// The shard numbers that occur in `counters`.
    pub(super) shards: BTreeSet<u16>,
    /// How many entries of the log belong to it.
    pub(super) log_entries: u64,
}

impl Generation {
    /// The next one, with room for as much.
    fn successor(&self) -> Self {
        Self {
            number: self.number + 1,
            members: Table::sized_like(&self.members),
            counters: Table::sized_like(&self.counters),
            ..Self::default()
        }
    }

    /// Bytes of what it holds.
    pub(super) fn record_bytes(&self) -> usize {
        self.members.record_bytes() + self.counters.record_bytes()
    }

    fn replay(&mut self, hasher: &KeyHasher, bytes: &[u8]) -> Result<(), super::layout::Damaged> {
        let entry = log_entry(bytes)?;
        for record in entry.members {
            let record = record?;
            self.members.put(hasher.hash(record.key), record.bytes);
        }
        for record in entry.counters {
            let record = record?;
            self.shards.insert(super::layout::shard_of(record.key)?);
            self.counters.add(hasher.hash(record.key), record.key, counter(record.value)?);
        }
        self.log_entries += 1;
        Ok(())
    }
}

/// The generations in memory, together with the log exactly what the tables on disk lack.
pub(super) struct Tables {
    /// Takes what is written now. It changes under the write lock, only by the writer, and only by whole groups that are
    /// durable: nobody reads what a crash could take back.
    pub(super) active: Generation,
    /// Is moved into tables on disk now; never changes.
    pub(super) sealed: Option<Arc<Generation>>,
}

/// The open store, shared by its two threads and by readers.
pub(super) struct Engine {
    pub(super) config: Config,
    pub(super) path: PathBuf,
    pub(super) db: Database,
    /// Memberships, by post and user. Written by checkpoints alone.
    pub(super) members: Keyspace,
    /// Counters, by post and shard, and the generation that they hold. Written by checkpoints alone.
    pub(super) counters: Keyspace,
    /// What every batch since the last checkpoint wrote, by generation and number.
    pub(super) log: Keyspace,
    /// How often each post was repaired.
    pub(super) repairs: Keyspace,
    /// The outcome of every batch that changed something, by consumer and batch key.
    pub(super) batches: Keyspace,
    /// Batch keys by the time at which they may go.
    pub(super) expiry: Keyspace,
    /// Poison, by consumer and id.
    pub(super) quarantine: Keyspace,
    pub(super) hasher: KeyHasher,
    tables: RwLock<Tables>,
    /// What `members` cannot hold. The checkpoint thread fills it.
    pub(super) filter: Filter,
    handover: Mutex<Handover>,
    handed_over: Condvar,
    failure: OnceLock<String>,
}

#[derive(Default)]
struct Handover {
    /// A sealed generation waits for its checkpoint, or is in it.
    sealed: bool,
    /// No more will be sealed.
    closing: bool,
}

impl Engine {
    /// Opens the store in `path`, which is created if need be, and reads its log back into memory.
    pub(super) fn open(path: PathBuf, config: Config) -> Result<Self, fjall::Error> {
        let db = Database::builder(&path)
            // A group of batches is synced once, by hand.
            .manual_journal_persist(true)
            .cache_size(config.cache_bytes)
            .max_journaling_size(MAX_JOURNAL_BYTES)
            // With two, one of them spins while the other compacts.
            .worker_threads(1)
            .open()?;
        let plain = KeyspaceCreateOptions::default;
        // The log is read at opening alone. Its memtable is larger than a generation, so most entries are removed again
        // before they would be written a second time.
        let log_options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(2 * config.generation_bytes as u64)
                .filter_policy(FilterPolicy::all(FilterPolicyEntry::None))
        };
        let (members, counters) = (db.keyspace("members", plain)?, db.keyspace("counters", plain)?);
        Ok(Self {
            log: db.keyspace("log", log_options)?,
            repairs: db.keyspace("repairs", plain)?,
            batches: db.keyspace("batches", plain)?,
            expiry: db.keyspace("expiry", plain)?,
            quarantine: db.keyspace("quarantine", plain)?,
            members,
            counters,
            hasher: KeyHasher::default(),
            tables: RwLock::new(Tables { active: Generation::default(), sealed: None }),
            filter: Filter::new(config.filter_bytes),
            handover: Mutex::default(),
            handed_over: Condvar::new(),
            failure: OnceLock::new(),
            config,
            path,
            db,
        })
    }

    /// Checks or writes the format, then brings the generations back from the log.
    pub(super) fn recover(&self) -> Result<(), RecoverError> {
        let meta = self.db.keyspace("meta", KeyspaceCreateOptions::default)?;
        match meta.get("format")? {
            None => {
                meta.insert("format", FORMAT.to_be_bytes())?;
                self.db.persist(fjall::PersistMode::SyncAll)?;
            }
            Some(bytes) => {
                let format = bytes.as_ref().try_into().map_or(u32::MAX, u32::from_be_bytes);
                if format > FORMAT {
                    return Err(RecoverError::Newer(format));
                }
            }
        }
        let merged = match self.counters.get(MERGED_KEY)? {
            Some(value) => counter(&value)? as u64,
            None => 0,
        };
        let mut generations: Vec<Generation> = Vec::new();
        let mut leftovers = Vec::new();
        for entry in self.log.iter() {
            let (key, value) = entry.into_inner()?;
            let (number, _) = log_position(&key)?;
            if number <= merged {
                leftovers.push(key);
                continue;
            }
            if generations.last().is_none_or(|last| last.number != number) {
                generations.push(Generation { number, ..Generation::default() });
            }
            if let Some(generation) = generations.last_mut() {
                generation.replay(&self.hasher, &value)?;
            }
        }
        // A checkpoint that crashed before it had cleared its part of the log.
        for keys in leftovers.chunks(LOG_REMOVALS) {
            let mut batch = self.db.batch();
            keys.iter().for_each(|key| batch.remove(&self.log, key.clone()));
            batch.commit()?;
        }
        let active = generations.pop().unwrap_or(Generation { number: merged + 1, ..Generation::default() });
        // One generation is sealed at a time, so at most one is left beside the active one.
        let sealed = generations.pop().map(Arc::new);
        if !generations.is_empty() {
            return Err(super::layout::Damaged("the order of generations").into());
        }
        self.handover.lock().unwrap_or_else(PoisonError::into_inner).sealed = sealed.is_some();
        *self.tables_mut() = Tables { active, sealed };
        Ok(())
    }

    /// The generations, for reading.
    pub(super) fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        // Tables change by calls that cannot panic half way.
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generations, for the two threads that change them.
    pub(super) fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the active generation over to the checkpoint thread, after the one before is done: memory holds two
    /// generations and never a third, so a slow disk slows the writer.
    pub(super) fn seal(&self) -> Result<(), StoreError> {
        let mut handover = self.handover.lock().unwrap_or_else(PoisonError::into_inner);
        while handover.sealed {
            self.working()?;
            handover = self.handed_over.wait(handover).unwrap_or_else(PoisonError::into_inner);
        }
        self.working()?;
        let tables = &mut *self.tables_mut();
        let next = tables.active.successor();
        tables.sealed = Some(Arc::new(std::mem::replace(&mut tables.active, next)));
        handover.sealed = true;
        self.handed_over.notify_all();
        Ok(())
    }

    /// What the checkpoint thread does next. If it has something to do meanwhile (`busy`), this does not wait.
    pub(super) fn next_sealed(&self, busy: bool) -> Next {
        let mut handover = self.handover.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if handover.closing || self.failure.get().is_some() {
                return Next::End;
            }
            if let Some(sealed) = self.tables().sealed.as_ref().filter(|_| handover.sealed) {
                return Next::Checkpoint(Arc::clone(sealed));
            }
            if busy {
                return Next::Nothing;
            }
            handover = self.handed_over.wait(handover).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The sealed generation is in the tables on disk now.
    pub(super) fn checkpointed(&self) {
        let mut handover = self.handover.lock().unwrap_or_else(PoisonError::into_inner);
        self.tables_mut().sealed = None;
        handover.sealed = false;
        self.handed_over.notify_all();
    }

    /// Ends the checkpoint thread. A generation that it has not begun stays in the log.
    pub(super) fn end_checkpoints(&self) {
        self.handover.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.handed_over.notify_all();
    }

    /// Remembers a failure. From then on nothing is written: what a disk does after a failed sync is not known.
    pub(super) fn fail(&self, error: &StorageError) -> StoreError {
        let failure = self.failure.get_or_init(|| describe(&self.path, error));
        let _handover = self.handover.lock().unwrap_or_else(PoisonError::into_inner);
        self.handed_over.notify_all();
        StoreError::new(ErrorClass::CannotWork, failure.clone())
    }

    /// An error once anything has failed.
    pub(super) fn working(&self) -> Result<(), StoreError> {
        match self.failure.get() {
            Some(failure) => Err(StoreError::new(ErrorClass::CannotWork, failure.clone())),
            None => Ok(()),
        }
    }
}

/// What the checkpoint thread is to do.
pub(super) enum Next {
    /// Move this generation into tables.
    Checkpoint(Arc<Generation>),
    /// No generation waits.
    Nothing,
    /// The store closes, or has failed.
    End,
}

/// How many entries of the log are removed in one step; other writers wait for it.
pub(super) const LOG_REMOVALS: usize = 256;

/// Journals are kept until every keyspace has flushed what they hold; the quiet ones are made to at this size. Reading
/// them back bounds how long opening takes.
const MAX_JOURNAL_BYTES: u64 = 256 << 20;

/// Why a store that opened cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoverError {
    #[error(transparent)]
    Storage(StorageError),
    #[error("it was written by a newer hotcount (format {0}, this one knows {FORMAT}): use that version")]
    Newer(u32),
}

impl<E: Into<StorageError>> From<E> for RecoverError {
    fn from(error: E) -> Self {
        Self::Storage(error.into())
    }
}
