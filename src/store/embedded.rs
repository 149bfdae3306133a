//! The embedded store: one directory, one process, no server.
//!
//! - A **batch** is one frame of the log: the rows that it writes, with its key. All batches that wait share one durable
//!   sync, and are answered after it; then their rows go into memory.
//! - A **generation** is what is in memory, and the segment of the log that holds the same. When it is full it is sealed: a
//!   thread writes it as tables on disk and removes its segment, and meanwhile the next one fills. Another thread merges
//!   tables, and rewrites the quarantine after something was deleted from it.
//! - A row is looked up in the newest place first: the group being written, the active generation, the sealed one, the
//!   tables.
//! - The tables are kept by `lsm-tree`, the engine of fjall without fjall's log. The log is our own, because it has to tell
//!   damage from what was never synced: see `frame.rs` and `log.rs`.
//!
//! What a concurrent writer sees: whole batches, and only durable ones. A group joins the active generation after its sync,
//! under one lock, and readers take what they need of both generations and of the tables under that lock too.
//!
//! After a crash, opening reads the log back, writes it as tables, and begins a new log. A store that is opened for reading
//! alone does so in memory, and changes nothing.
//!
//! # Layout, format 2
//!
//! The folder is described in `place.rs`. The tables hold these rows; every value begins with its version (1 byte):
//!
//! | tree | key | value |
//! |---|---|---|
//! | rows | `m`, post, NUL, user | liked (1), order (8), length of the event id (2), event id |
//! | rows | `c`, post, NUL, 1, shard (2, big endian) | count (8); shard 65,535 is the repair shard |
//! | rows | `r`, post, NUL | how often the post was repaired (8): the version of its repair shard |
//! | rows | `b`, consumer, NUL, batch key (16) | applied, duplicates, stale (8 each) |
//! | rows | `e`, seconds since 1970 (8, big endian), key of the batch | |
//! | rows | `s`, consumer, NUL | what all workers of the consumer agree on, in JSON |
//! | rows | `0` | the last frame that these tables hold (8) |
//! | quarantine | consumer, NUL, id | length of the head (8), head in JSON, payload |
//!
//! Text is its bytes; a NUL in a post or consumer is followed by 0xFF, which UTF-8 never has. Numbers are little endian
//! where they need not sort.

mod apply;
mod background;
mod backup;
mod compact;
mod config;
mod damage;
mod engine;
mod error;
mod frame;
mod generation;
mod job;
mod layout;
mod log;
mod manifest;
mod place;
mod poison;
mod read;
mod salvage;
mod tables;
mod writer;

pub use backup::{Copied, restore};
pub use compact::{Compacted, compact};
pub use damage::Damage;
pub use salvage::{Salvaged, salvage};

use super::{
    Access, Applied, Attempt, Audit, Backup, ConnectError, Counts, Depth, ErrorClass, Limits, Listing, Options,
    PageSize, QuarantinePage, Quarantined, Repair, Repaired, Settings, Store, StoreError, Tally,
};
use crate::common::adapter_url::shown;
use crate::common::sync::Locked;
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use async_trait::async_trait;
use config::Config;
use engine::Engine;
use error::{OpenError, StorageError};
use job::{Correction, Job, Prepared};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use writer::Writer;

/// How long a batch key is kept: twice the longest that a source lets a batch be retried (60 minutes).
const BATCH_KEY_LIFETIME: Duration = Duration::from_secs(2 * 60 * 60);

/// Batches that may wait for the writer; more wait in `apply`. A worker has far fewer lanes.
const QUEUED_JOBS: usize = 64;

/// Whoever reads, and each of the three threads, holds the lock for reading; closing takes the engine out, and then its
/// files are closed.
type Shared = Arc<RwLock<Option<Engine>>>;

/// The store. Dropping it ends its threads, as [`Store::close`] does.
pub struct Embedded {
    path: PathBuf,
    engine: Shared,
    access: Access,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    background: Mutex<Vec<JoinHandle<()>>>,
}

impl Embedded {
    /// Opens the store that `embedded:PATH` names; [`Options::access`] says whether one is made.
    ///
    /// # Errors
    /// When the URL is not understood, there is no store, another process has it open, it is damaged, or the disk fails.
    pub async fn connect(url: &str, options: &Options) -> Result<Arc<dyn Store>, ConnectError> {
        let (path, config) = Config::parse(url, options)?;
        Ok(Arc::new(Self::opened(shown(url), path, config).await?))
    }

    /// Opens the store at `path`; [`Options::access`] says whether one is made.
    ///
    /// # Errors
    /// As [`Embedded::connect`].
    pub async fn at(path: impl Into<PathBuf>, options: &Options) -> Result<Self, ConnectError> {
        let path = path.into();
        Self::opened(format!("embedded:{}", path.display()), path, Config::new(options)).await
    }

    async fn opened(url: String, path: PathBuf, config: Config) -> Result<Self, ConnectError> {
        let unavailable = |problem| ConnectError::Unavailable { url: url.clone(), problem };
        let opened = tokio::task::spawn_blocking(move || {
            Self::open(path.clone(), config).map_err(|error| error.describe(&path))
        });
        opened.await.map_err(|panic| unavailable(format!("opening it failed ({panic})")))?.map_err(unavailable)
    }

    fn open(path: PathBuf, config: Config) -> Result<Self, OpenError> {
        let access = config.access;
        let (engine, last) = Engine::open(path.clone(), config)?;
        let log = match access {
            Access::Read => None,
            Access::Create | Access::Change => Some(engine.begin(last)?),
        };
        // From here on dropping `store` ends whatever has been started.
        let store = Self {
            path,
            engine: Arc::new(RwLock::new(Some(engine))),
            access,
            jobs: Mutex::default(),
            writer: Mutex::default(),
            background: Mutex::default(),
        };
        if let Some(log) = log {
            let (jobs, queue) = mpsc::channel(QUEUED_JOBS);
            let seals = jobs.downgrade();
            *store.jobs.locked() = Some(jobs);
            let writer = store.start("hotcount-store", move |engine| Writer::new(engine, log).run(queue))?;
            *store.writer.locked() = Some(writer);
            for thread in [
                store.start("hotcount-tables", background::flush)?,
                store.start("hotcount-merge", move |engine| background::merge(engine, &seals))?,
            ] {
                store.background.locked().push(thread);
            }
        }
        Ok(store)
    }

    fn start(&self, name: &str, work: impl FnOnce(&Engine) + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
        let engine = Arc::clone(&self.engine);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Some(engine) = &*engine.read().unwrap_or_else(PoisonError::into_inner) {
                work(engine);
            }
        });
        Ok(thread.map_err(StorageError::from)?)
    }

    /// Why nothing can be asked.
    fn closed(&self) -> StoreError {
        let path = self.path.display();
        let is_open = self.engine.read().unwrap_or_else(PoisonError::into_inner).is_some();
        StoreError::new(
            ErrorClass::Fatal,
            if self.access == Access::Read && is_open {
                format!("the store in {path} was opened for reading alone")
            } else {
                format!("the store in {path} is closed")
            },
        )
    }

    /// Looks at the open store for a moment.
    fn with<T>(&self, look: impl FnOnce(&Engine) -> T) -> Result<T, StoreError> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look).ok_or_else(|| self.closed())
    }

    /// Hands a job to the writer and waits for its answer.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job) -> Result<T, StoreError> {
        let jobs = self.jobs.locked().clone().ok_or_else(|| self.closed())?;
        let (reply, answer) = oneshot::channel();
        if jobs.send(job(reply)).await.is_err() {
            return Err(self.closed());
        }
        drop(jobs);
        // The writer answers every job that it took; only its own panic breaks that, and then nothing can be written.
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::new(ErrorClass::Fatal, "the store's writer has ended: start the worker again"))
        })
    }

    /// Reads off the async threads, for a read may wait for the disk.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (engine, path, closed) = (Arc::clone(&self.engine), self.path.clone(), self.closed());
        let answer = tokio::task::spawn_blocking(move || {
            let engine = engine.read().unwrap_or_else(PoisonError::into_inner);
            read(engine.as_ref().ok_or(closed)?).map_err(|error| error.for_store(&path))
        });
        answer
            .await
            .unwrap_or_else(|panic| Err(StoreError::caused(ErrorClass::Fatal, "reading the store failed", panic)))
    }

    /// No further jobs; what is left to do until the store is closed, which may take as long as a merge of tables.
    fn shut(&self) -> impl FnOnce() + Send + 'static {
        drop(self.jobs.locked().take());
        let writer = self.writer.locked().take();
        let background = std::mem::take(&mut *self.background.locked());
        let engine = Arc::clone(&self.engine);
        move || {
            // The writer first: it may wait for the background threads, never the other way round.
            // A panic of theirs has been reported by the panic hook, and whoever waited has got an error.
            writer.map(JoinHandle::join);
            if let Some(engine) = &*engine.read().unwrap_or_else(PoisonError::into_inner) {
                engine.end_background();
            }
            background.into_iter().for_each(|thread| drop(thread.join()));
            drop(engine.write().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shut()();
    }
}

#[async_trait]
impl Counts for Embedded {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        let post = post.to_owned();
        self.read(move |engine| read::tally(engine, &post, depth)).await
    }

    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let after = after.map(str::to_owned);
        self.read(move |engine| read::posts(engine, listing, after.as_deref(), limit)).await
    }

    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        let after = after.map(str::to_owned);
        self.read(move |engine| read::quarantined(engine, after.as_deref(), size)).await
    }

    async fn backup(&self) -> Result<Backup, StoreError> {
        if self.access != Access::Read {
            // What is in memory is held for as long as the copy takes, so most of it goes to disk first.
            self.ask(Job::Seal).await?;
        }
        self.with(backup::stream)
    }
}

#[async_trait]
impl Repair for Embedded {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        let post = post.to_owned();
        self.read(move |engine| read::audit(engine, &post)).await
    }

    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        let Some(drift) = seen.tally.drift().filter(|drift| *drift != 0) else { return Ok(Repaired::Done) };
        let correction = Correction { post: post.to_owned(), version: seen.version.clone(), delta: -drift };
        self.ask(|reply| Job::Repair(correction, reply)).await
    }
}

#[async_trait]
impl Store for Embedded {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        // The batch key is read on every attempt, resuming or not: here it costs next to nothing.
        let prepared = Box::new(Prepared::new(batch, attempt));
        self.ask(|reply| Job::Apply(prepared, reply)).await
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        let consumer = self.with(|engine| engine.config.consumer.clone())?;
        let rows: Result<Vec<_>, _> = poison.iter().map(|entry| poison::row(&consumer, entry)).collect();
        let rows = rows.map_err(|error| {
            StoreError::caused(ErrorClass::Rejected, "a quarantined delivery cannot be written down", error)
        })?;
        self.ask(|reply| Job::Quarantine(rows, reply)).await
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        let id = id.to_owned();
        self.read(move |engine| read::find_quarantined(engine, &id)).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        let consumer = self.with(|engine| engine.config.consumer.clone())?;
        let keys = ids.iter().map(|id| poison::key(&consumer, id)).collect();
        self.ask(|reply| Job::Discard(keys, reply)).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        let (post, user) = (post.to_owned(), user.to_owned());
        self.read(move |engine| read::stored_like(engine, &post, &user)).await
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        let settings = settings.clone();
        self.ask(|reply| Job::Agree(settings, reply)).await
    }

    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        self.ask(|reply| Job::Probe(key, reply)).await
    }

    /// Nothing here has a limit of its own. The numbers keep a batch small beside a generation, and give the writer
    /// something to do while other batches wait for a sync. No window: here a duplicate costs one lookup in memory, and
    /// a window costs two for every like (a fifth of the processor time of a whole replay, measured).
    fn limits(&self) -> Limits {
        Limits {
            max_writes: 4_096,
            max_bytes: 4 << 20,
            lanes: 4,
            recent_likes: 0,
            batch_key_lifetime: Some(BATCH_KEY_LIFETIME),
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        let shut = self.shut();
        let closed = tokio::task::spawn_blocking(shut).await;
        closed.map_err(|panic| StoreError::caused(ErrorClass::Fatal, "closing the store failed", panic))
    }
}
