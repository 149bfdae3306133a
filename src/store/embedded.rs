//! The embedded store: one directory, one process, no server. Built on fjall.
//!
//! A like costs one hash insert in memory and its share of one appended log entry. Sorting comes later and in bulk:
//!
//! - A **batch** is one atomic fjall commit: an entry of the log (the memberships that it wrote, what it adds to
//!   counters) and its batch key. All batches that wait share one durable sync, and are answered after it.
//! - A **generation** holds in memory what the log says, in hash tables. When it is full it is sealed, and a second
//!   thread sorts it and ingests it into fjall's tables, then removes its log. Meanwhile the next one fills.
//! - A membership is looked up in the newest place first: the group being written, the active generation, the sealed
//!   one, the tables on disk (unless a filter in memory knows that it is not there). A count is what the tables say plus what the generations add.
//!
//! What a concurrent twin sees: whole batches, and only durable ones. A group joins the active generation after its
//! sync, under one lock; readers take both generations and a snapshot of the tables under that lock too.
//!
//! After a crash, opening reads the log back into generations. Which generations the tables on disk hold already stands
//! among the counters and changes in one step with them.
//!
//! # Layout, format 1
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `members` | post, NUL, user | liked (1 byte), order (8), event id |
//! | `counters` | post, NUL, 1, shard (2, big endian) | count (8); shard 65,535 is the repair shard |
//! | `counters` | NUL | the newest generation that is in `members` and `counters` (8) |
//! | `log` | generation (8, big endian), number (8, big endian) | the memberships and counters of one batch |
//! | `repairs` | post, NUL | how often the post was repaired (8): the version of its repair shard |
//! | `batches` | consumer, NUL, batch key (16) | applied, duplicates, stale (8 each) |
//! | `expiry` | seconds since 1970 (8, big endian), key of `batches` | |
//! | `quarantine` | consumer, NUL, id | head in JSON with its length before it, payload |
//! | `meta` | `format` | the layout's version (4, big endian) |
//!
//! Text is its bytes; a NUL in a post or consumer is followed by 0xFF, which UTF-8 never has. Numbers are little endian
//! where they need not sort.

mod checkpoint;
mod config;
mod engine;
mod filter;
mod job;
mod layout;
mod poison;
mod read;
mod table;
mod writer;

use super::{
    Applied, Attempt, ConnectError, Counts, Depth, ErrorClass, Examined, Limits, Listing, Options, PageSize,
    QuarantinePage, Quarantined, Repair, Repaired, Settings, Store, StoreError, Tally,
};
use crate::adapter_url::shown;
use crate::batch::{Batch, BatchKey};
use crate::event::Like;
use async_trait::async_trait;
use config::Config;
use engine::{Engine, RecoverError};
use job::{Correction, Job, Prepared};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use writer::Writer;

/// How long a batch key is kept: twice the longest that a source lets a batch be retried (60 minutes).
const BATCH_KEY_LIFETIME: Duration = Duration::from_secs(2 * 60 * 60);

/// Batches that may wait for the writer; more wait in `apply`. A worker has far fewer lanes.
const QUEUED_JOBS: usize = 64;

/// Whoever reads, and each of the two threads, holds the lock for reading; closing takes the engine out, and then its
/// files are closed.
type Shared = Arc<RwLock<Option<Engine>>>;

/// The store. Dropping it ends its threads, as [`Store::close`] does.
pub struct Embedded {
    path: PathBuf,
    engine: Shared,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Embedded {
    /// Opens the store that `embedded:PATH` names, and creates it if need be.
    ///
    /// # Errors
    /// When the URL is not understood, another process has the store open, it is damaged, or the disk fails.
    pub async fn connect(url: &str, options: &Options) -> Result<Arc<dyn Store>, ConnectError> {
        let (path, config) = Config::parse(url, options)?;
        let unavailable = |problem| ConnectError::Unavailable { url: shown(url), problem };
        let opened = tokio::task::spawn_blocking(move || Self::open(path, config)).await;
        let store =
            opened.map_err(|panic| unavailable(format!("opening it failed ({panic})")))?.map_err(unavailable)?;
        Ok(Arc::new(store))
    }

    fn open(path: PathBuf, config: Config) -> Result<Self, String> {
        let engine = Engine::open(path.clone(), config).map_err(|error| match error {
            fjall::Error::Locked => format!(
                "another process has {} open; stop it, or read its counts with --store http://ADDR of the running worker",
                path.display()
            ),
            error => describe(&path, &error.into()),
        })?;
        engine.recover().map_err(|error| match error {
            RecoverError::Newer(_) => error.to_string(),
            RecoverError::Storage(error) => describe(&path, &error),
        })?;
        let (jobs, queue) = mpsc::channel(QUEUED_JOBS);
        // From here on dropping `store` ends whatever has been started.
        let store = Self {
            path,
            engine: Arc::new(RwLock::new(Some(engine))),
            jobs: Mutex::new(Some(jobs)),
            threads: Mutex::default(),
        };
        store.start("hotcount-store", move |engine| Writer::new(engine).run(queue))?;
        store.start("hotcount-tables", checkpoint::run)?;
        Ok(store)
    }

    fn start(&self, name: &str, work: impl FnOnce(&Engine) + Send + 'static) -> Result<(), String> {
        let engine = Arc::clone(&self.engine);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Some(engine) = &*engine.read().unwrap_or_else(PoisonError::into_inner) {
                work(engine);
            }
        });
        let thread = thread.map_err(|error| format!("no thread can be started ({error})"))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    fn closed(&self) -> StoreError {
        StoreError::new(ErrorClass::CannotWork, format!("the store in {} is closed", self.path.display()))
    }

    /// Looks at the open store for a moment.
    fn with<T>(&self, look: impl FnOnce(&Engine) -> T) -> Result<T, StoreError> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look).ok_or_else(|| self.closed())
    }

    /// Hands a job to the writer and waits for its answer.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job) -> Result<T, StoreError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| self.closed())?;
        let (reply, answer) = oneshot::channel();
        if jobs.send(job(reply)).await.is_err() {
            return Err(self.closed());
        }
        drop(jobs);
        // The writer answers every job that it took; only its own panic breaks that, and then nothing can be written.
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::new(ErrorClass::CannotWork, "the store's writer has ended: start the worker again"))
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
            let read = read(engine.as_ref().ok_or(closed)?);
            read.map_err(|error| StoreError::new(ErrorClass::CannotWork, describe(&path, &error)))
        });
        answer
            .await
            .unwrap_or_else(|panic| Err(StoreError::caused(ErrorClass::CannotWork, "reading the store failed", panic)))
    }

    /// No further jobs; what is left to do until the store is closed, which may take as long as a checkpoint.
    fn shut(&self) -> impl FnOnce() + Send + 'static {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let engine = Arc::clone(&self.engine);
        move || {
            let mut threads = threads.into_iter();
            // The writer first: it may wait for the checkpoint thread, never the other way round.
            // A panic of theirs has been reported by the panic hook, and whoever waited has got an error.
            threads.next().map(JoinHandle::join);
            if let Some(engine) = &*engine.read().unwrap_or_else(PoisonError::into_inner) {
                engine.end_checkpoints();
            }
            threads.for_each(|thread| drop(thread.join()));
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
}

#[async_trait]
impl Repair for Embedded {
    async fn examine(&self, post: &str) -> Result<Examined, StoreError> {
        let post = post.to_owned();
        self.read(move |engine| read::examine(engine, &post)).await
    }

    async fn repair(&self, post: &str, seen: &Examined) -> Result<Repaired, StoreError> {
        let Some(drift) = seen.tally.drift().filter(|drift| *drift != 0) else { return Ok(Repaired::Done) };
        let correction = Correction { post: post.to_owned(), version: seen.version.clone(), delta: -drift };
        self.ask(|reply| Job::Repair(correction, reply)).await
    }
}

#[async_trait]
impl Store for Embedded {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        // The batch key is read on every attempt, resuming or not: here it costs next to nothing.
        let prepared = Box::new(self.with(|engine| Prepared::new(engine, batch, attempt))?);
        self.ask(|reply| Job::Apply(prepared, reply)).await
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        let consumer = self.with(|engine| engine.config.consumer.clone())?;
        let rows: Result<Vec<_>, _> = poison.iter().map(|entry| poison::row(&consumer, entry)).collect();
        let rows = rows.map_err(|error| {
            StoreError::caused(ErrorClass::BatchCannotWork, "a quarantined delivery cannot be written down", error)
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
        Ok(settings.clone())
    }

    async fn probe(&self, _: BatchKey) -> Result<(), StoreError> {
        self.with(Engine::working)?
    }

    /// Nothing here has a limit of its own. The numbers keep a batch small beside a generation, and give the writer
    /// something to do while other batches wait for a sync. No window: here a duplicate costs one lookup in memory, and
    /// a window costs two for every like (a fifth of the processor time of a whole replay, measured).
    fn limits(&self) -> Limits {
        Limits {
            max_writes: 4_096,
            max_bytes: 4 << 20,
            lanes: 4,
            window_likes: 0,
            batch_key_lifetime: Some(BATCH_KEY_LIFETIME),
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        let shut = self.shut();
        let closed = tokio::task::spawn_blocking(shut).await;
        closed.map_err(|panic| StoreError::caused(ErrorClass::CannotWork, "closing the store failed", panic))
    }
}

/// A failure of the disk, of fjall, or of what they gave back.
#[derive(Debug, thiserror::Error)]
enum StorageError {
    #[error("{0:?}")]
    Storage(#[from] fjall::Error),
    #[error(transparent)]
    Damaged(#[from] layout::Damaged),
}

/// Every failure here means the same: stop, and let somebody see to the disk. The sentence says what to do.
fn describe(path: &Path, error: &StorageError) -> String {
    let path = path.display();
    let io = match error {
        StorageError::Storage(fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io))) => Some(io),
        _ => None,
    };
    match (error, io.map(std::io::Error::kind)) {
        (_, Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)) => {
            format!(
                "the disk that holds {path} is full: make room and start again, nothing that was acknowledged is lost"
            )
        }
        (_, Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)) => {
            format!("{path} cannot be written: give this user the right to, or name another path")
        }
        (StorageError::Damaged(what), _) => {
            format!("{what} ({path}): restore the directory from a copy, or seek the subscription back and count anew")
        }
        _ => format!("the disk that holds {path} failed ({error}): check it and start again"),
    }
}
