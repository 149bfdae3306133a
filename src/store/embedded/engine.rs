//! The open store: generations in memory over tables on disk, and how the first come back from the log.

use super::Config;
use super::error::{OpenError, StorageError};
use super::frame::{self, Tree};
use super::generation::{Generation, Value};
use super::manifest::{self, Listed};
use super::place::Place;
use super::tables::{FOLDERS, Trees};
use super::{damage::Damage, log};
use crate::common::sync::Locked;
use crate::store::{ErrorClass, StoreError};
use lsm_tree::Slice;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Bytes of tables that are read and held against their checksums while the store opens: about a second. The rest is while
/// the store works.
const CHECKED_AT_OPENING: u64 = 1 << 30;

/// How long a purge may stay on disk: what is deleted within this time goes in one sweep.
pub(super) const PURGED_WITHIN: Duration = Duration::from_secs(10);

/// Up to so many bytes of quarantine are swept when the store closes; more wait until it is open again.
const SWEPT_AT_CLOSING: u64 = 256 << 20;

/// The generations in memory.
#[derive(Default)]
pub(super) struct Generations {
    /// Takes what is written now. It changes under the write lock, only by the writer, and only by whole groups that are
    /// durable: nobody reads what a crash could take back.
    pub(super) active: Generation,
    /// Is written as tables now; never changes.
    pub(super) sealed: Option<Arc<Generation>>,
}

impl Generations {
    /// What they say about a row, the newer one first; `None` when nothing.
    pub(super) fn get(&self, tree: Tree, key: &[u8]) -> Option<&Value> {
        self.active.get(tree, key).or_else(|| self.sealed.as_ref()?.get(tree, key))
    }

    /// Both, the older one first.
    pub(super) fn both(&self) -> impl Iterator<Item = &Generation> {
        self.sealed.as_deref().into_iter().chain([&self.active])
    }
}

/// The open store, shared by its threads and by readers.
pub(super) struct Engine {
    pub(super) config: Config,
    /// The store's path as it was given.
    pub(super) path: PathBuf,
    pub(super) place: Place,
    /// Everything that no generation in memory has, or an older version of it. Written by [`Engine::flush`] alone.
    pub(super) trees: Trees,
    generations: RwLock<Generations>,
    work: Mutex<Work>,
    changed: Condvar,
    failure: OnceLock<String>,
    /// Tables that are still to be held against their checksums.
    unchecked: Mutex<VecDeque<Listed>>,
    /// Where the trees are opened that nobody may change.
    _view: Option<tempfile::TempDir>,
}

/// What the two background threads have to do.
#[derive(Default)]
struct Work {
    /// The last frame of the sealed generation, while there is one.
    sealed: Option<u64>,
    /// Why it is not on disk yet, in a sentence.
    trouble: Option<String>,
    /// Tables were added, so some may have to be merged.
    merge: bool,
    /// When what was deleted from the quarantine has to be gone.
    purge: Option<Instant>,
    /// No more will come.
    closing: bool,
}

/// What a background thread does next.
pub(super) enum Next {
    /// Bring the generation up to this frame to disk.
    Flush(u64),
    /// Merge tables.
    Merge,
    /// Seal what is in memory, then sweep the quarantine.
    Purge,
    /// Hold a table against its checksum.
    Check(Listed),
    /// The store closes, or has failed.
    End,
}

impl Engine {
    /// Opens the store in `path` and reads its log back into memory. Answers the number of its last frame too.
    pub(super) fn open(path: PathBuf, config: Config) -> Result<(Self, u64), OpenError> {
        let place = Place::take(&path, config.access)?;
        let mut unchecked = VecDeque::new();
        for folder in FOLDERS {
            unchecked.extend(manifest::tables(&place.store.join(folder))?);
        }
        let mut checked = 0;
        while checked < CHECKED_AT_OPENING
            && let Some(table) = unchecked.pop_front()
        {
            checked += table.check()?;
        }
        let (trees, view) = Trees::open(&place.store, config.access, config.cache_bytes)?;
        let mut active = Generation::default();
        let last = log::read(&place.store, place.salt, trees.position()?, |at, frame| {
            for operation in frame::operations(frame.payload) {
                let operation = operation
                    .map_err(|_| Damage::new(at.file, at.offset as u64, format!("what frame {} says", frame.number)))?;
                active.put(operation.tree, operation.key.into(), operation.value.map(Slice::from));
            }
            Ok(())
        })
        .map_err(StorageError::from)?;
        let engine = Self {
            config,
            path,
            place,
            trees,
            generations: RwLock::new(Generations { active, sealed: None }),
            work: Mutex::default(),
            changed: Condvar::new(),
            failure: OnceLock::new(),
            unchecked: Mutex::new(unchecked),
            _view: view,
        };
        Ok((engine, last))
    }

    /// Brings to disk what the log held, so that it can begin anew: of what lies there nothing is written over, and what
    /// was never synced is not mixed with what comes.
    pub(super) fn begin(&self, last: u64) -> Result<log::Log, StorageError> {
        if !self.generations().active.is_empty() {
            self.seal(last);
            self.flush(last)?;
            self.flushed(None);
        }
        let log = log::Log::begin(&self.place.store, self.place.salt, last)?;
        log::remove_before(&self.place.store, last + 1)?;
        // What an earlier process deleted and did not come to sweep.
        if self.trees.has_removed_poison() {
            self.purge_soon();
        }
        self.work().merge = true;
        Ok(log)
    }

    /// The generations, for reading.
    pub(super) fn generations(&self) -> RwLockReadGuard<'_, Generations> {
        // They change by calls that cannot panic half way.
        self.generations.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generations, for the two threads that change them.
    pub(super) fn generations_mut(&self) -> RwLockWriteGuard<'_, Generations> {
        self.generations.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seals the active generation, whose last frame is `last`. There is none sealed: memory holds two and never a third.
    pub(super) fn seal(&self, last: u64) {
        let generations = &mut *self.generations_mut();
        let next = generations.active.sized_like();
        generations.sealed = Some(Arc::new(std::mem::replace(&mut generations.active, next)));
        self.work().sealed = Some(last);
        self.changed.notify_all();
    }

    /// Writes the sealed generation, whose last frame is `last`, as tables, and removes its log.
    pub(super) fn flush(&self, last: u64) -> Result<(), StorageError> {
        let Some(sealed) = self.generations().sealed.clone() else { return Ok(()) };
        self.trees.write(&sealed, last)?;
        log::remove_before(&self.place.store, last + 1)?;
        Ok(())
    }

    /// What the thread that brings generations to disk does next.
    pub(super) fn next_flush(&self) -> Next {
        let mut work = self.work();
        loop {
            if self.failure.get().is_some() {
                return Next::End;
            }
            if let Some(last) = work.sealed {
                return Next::Flush(last);
            }
            if work.closing {
                return Next::End;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a generation is on its way to disk.
    pub(super) fn is_flushing(&self) -> bool {
        self.work().sealed.is_some()
    }

    /// A generation is on disk, or is not, for a reason that passes.
    pub(super) fn flushed(&self, trouble: Option<String>) {
        if trouble.is_none() {
            self.generations_mut().sealed = None;
        }
        let mut work = self.work();
        if trouble.is_none() {
            work.sealed = None;
            work.merge = true;
        }
        work.trouble = trouble;
        self.changed.notify_all();
    }

    /// Waits a while between two tries of what failed; `false` when the store closes meanwhile.
    pub(super) fn wait_to_try_again(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut work = self.work();
        while !work.closing && self.failure.get().is_none() {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return true;
            };
            work = self.changed.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Waits until no generation is on its way to disk, for `patience` at most. Answers why there is still one.
    pub(super) fn wait_until_flushed(&self, patience: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + patience;
        let mut work = self.work();
        while work.sealed.is_some() {
            self.working()?;
            let left = until.saturating_duration_since(Instant::now());
            if let Some(trouble) = work.trouble.clone().or_else(|| {
                left.is_zero()
                    .then(|| format!("the disk that holds {} is too slow for what is written", self.path.display()))
            }) {
                return Err(StoreError::new(ErrorClass::DidNotCommit, trouble));
            }
            work = self.changed.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.working()
    }

    /// What the thread that merges tables does next.
    pub(super) fn next_merge(&self) -> Next {
        let mut work = self.work();
        loop {
            if work.closing || self.failure.get().is_some() {
                return Next::End;
            }
            if work.purge.is_some_and(|at| at <= Instant::now()) {
                work.purge = None;
                return Next::Purge;
            }
            if std::mem::take(&mut work.merge) {
                return Next::Merge;
            }
            if let Some(table) = self.unchecked.locked().pop_front() {
                return Next::Check(table);
            }
            work = match work.purge {
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(work).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Something was deleted from the quarantine.
    pub(super) fn purge_soon(&self) {
        let mut work = self.work();
        work.purge.get_or_insert_with(|| Instant::now() + PURGED_WITHIN);
        self.changed.notify_all();
    }

    /// Whether what was deleted is to be swept while the store closes.
    pub(super) fn purge_at_closing(&self) -> bool {
        self.work().purge.is_some() && self.trees.quarantine_bytes() <= SWEPT_AT_CLOSING
    }

    /// Ends the background threads. A generation that is not on disk stays in the log.
    pub(super) fn end_background(&self) {
        self.work().closing = true;
        self.changed.notify_all();
    }

    /// Remembers a failure. From then on nothing is written.
    pub(super) fn fail(&self, error: &StorageError) -> StoreError {
        let failure = self.failure.get_or_init(|| error.describe(&self.path));
        let _work = self.work();
        self.changed.notify_all();
        StoreError::new(ErrorClass::Fatal, failure.clone())
    }

    /// An error once anything has failed.
    pub(super) fn working(&self) -> Result<(), StoreError> {
        match self.failure.get() {
            Some(failure) => Err(StoreError::new(ErrorClass::Fatal, failure.clone())),
            None => Ok(()),
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // It changes by assignments, which cannot panic half way.
        self.work.locked()
    }
}
