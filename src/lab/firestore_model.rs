//! A model of Firestore's contention, for a clock that can be paused: thousands of workers on two cores.
//!
//! Every document that a commit writes is locked while the commit lasts. A commit that waits for a lock longer than the
//! deadline is aborted. A key range that is new takes 500 writes a second, and half as many again every five minutes.
//! Everything random grows from a seed, so on a runtime with one thread and a paused clock a run replays.
//!
//! [`Contended`] is a store that behaves so; the real engine runs on it. [`guarded`] is what the engine is compared with:
//! one transaction an event. They share the same [`Contention`], so they are measured by the same rule. Its numbers are
//! assumptions, not measurements of the service: print [`Assumptions`] wherever its numbers are printed.

pub mod guarded;
mod locks;
mod ramp;
mod store;

pub use ramp::Ranges;
pub use store::{Contended, ShardChoice};

use crate::common::sync::Locked;
use locks::{DocumentLock, Locks};
use ramp::Ramps;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the model takes for granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// A commit of one document, alone.
    pub commit: Duration,
    /// Each further document of a commit adds so much.
    pub document: Duration,
    /// A commit takes up to this share more or less, evenly spread.
    pub jitter: f64,
    /// Documents read in one request.
    pub read: Duration,
    /// A commit that waits for a lock so long is aborted. 20 s is what the service documents.
    pub lock_deadline: Duration,
    /// Whether the key ranges have taken such a load before.
    pub ranges: Ranges,
}

impl Default for Assumptions {
    /// A database in the worker's own region.
    fn default() -> Self {
        Self {
            commit: Duration::from_millis(50),
            document: Duration::from_micros(100),
            jitter: 0.2,
            read: Duration::from_millis(10),
            lock_deadline: Duration::from_secs(20),
            ranges: Ranges::Warm,
        }
    }
}

impl fmt::Display for Assumptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "- a commit takes {:?} and {:?} for each further document, ±{:.0} %; a read takes {:?}",
            self.commit,
            self.document,
            self.jitter * 100.0,
            self.read
        )?;
        writeln!(f, "- a commit locks each document that it writes, first come first served, until it is answered")?;
        writeln!(f, "- one that waits {:?} for a lock is aborted, and has written nothing", self.lock_deadline)?;
        writeln!(
            f,
            "- a guarded transaction holds the counter from its read to its answer; it never has to wait for the read \
             locks of others and be thrown away, as it has in the service: kinder to it than the service is"
        )?;
        write!(f, "- key ranges are {}", self.ranges)
    }
}

/// A lock was not granted in time, or a key range takes no more: nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Aborted {
    /// Somebody else held a document for too long.
    #[error("a lock was not granted in time: too much contention on these documents")]
    Lock,
    /// The key range is not warm enough.
    #[error("the key range takes no more writes a second yet")]
    Ramp,
}

/// What was asked of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Commits that were tried.
    pub tried: u64,
    /// Those of them that were aborted.
    pub aborted: u64,
    /// Documents written.
    pub writes: u64,
    /// Documents read.
    pub reads: u64,
}

impl Usage {
    /// The share of commits that were aborted.
    #[must_use]
    pub fn aborted_share(&self) -> f64 {
        if self.tried == 0 { 0.0 } else { self.aborted as f64 / self.tried as f64 }
    }

    /// What was asked since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            tried: self.tried - before.tried,
            aborted: self.aborted - before.aborted,
            writes: self.writes - before.writes,
            reads: self.reads - before.reads,
        }
    }
}

/// A document or a key range, as a number: which one matters only for being the same.
pub(crate) type Name = u64;

/// Locks of documents. Dropping them passes them on.
pub struct DocumentLocks(#[expect(dead_code, reason = "held for being dropped")] Vec<DocumentLock>);

/// The database's locks, ramps and meters. Shared by everybody who works on the same database.
pub struct Contention {
    assumptions: Assumptions,
    locks: Arc<Locks>,
    ramps: Mutex<Ramps>,
    rng: Mutex<SmallRng>,
    tried: AtomicU64,
    aborted: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
}

impl Contention {
    /// An idle database.
    #[must_use]
    pub fn new(assumptions: Assumptions, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            assumptions,
            locks: Arc::new(Locks::default()),
            ramps: Mutex::new(Ramps::new(assumptions.ranges, tokio::time::Instant::now())),
            rng: Mutex::new(SmallRng::seed_from_u64(seed)),
            tried: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        })
    }

    /// What has been asked so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Usage {
            tried: read(&self.tried),
            aborted: read(&self.aborted),
            writes: read(&self.writes),
            reads: read(&self.reads),
        }
    }

    /// Waits for the locks of the documents of these names, all ranges being warm. They are held until what is returned is
    /// dropped.
    ///
    /// # Errors
    /// When a lock is not granted in time.
    pub async fn lock(&self, names: impl IntoIterator<Item = &str>) -> Result<DocumentLocks, Aborted> {
        let names = names.into_iter().map(|document| store::name("document", document.as_bytes(), b"")).collect();
        self.begin(names, &[]).await.map(DocumentLocks)
    }

    /// Reads documents, without a lock.
    pub async fn read(&self, documents: u64) {
        self.reads.fetch_add(documents, Ordering::Relaxed);
        tokio::time::sleep(self.assumptions.read).await;
    }

    /// Waits for the locks of `documents` and for room in `ranges`, each with its number of writes. What is returned
    /// holds the locks until it is dropped.
    async fn begin(&self, mut documents: Vec<Name>, ranges: &[(Name, u64)]) -> Result<Vec<DocumentLock>, Aborted> {
        self.tried.fetch_add(1, Ordering::Relaxed);
        let held = self.enter(&mut documents, ranges).await;
        if held.is_err() {
            self.aborted.fetch_add(1, Ordering::Relaxed);
        }
        held
    }

    async fn enter(&self, documents: &mut Vec<Name>, ranges: &[(Name, u64)]) -> Result<Vec<DocumentLock>, Aborted> {
        let now = tokio::time::Instant::now();
        let admitted = self.ramps.locked().admit(ranges, now);
        match admitted {
            Ok(wait) if wait.is_zero() => {}
            Ok(wait) => tokio::time::sleep(wait).await,
            Err(full) => {
                tokio::time::sleep(self.assumptions.commit).await;
                return Err(full);
            }
        }
        // Everybody takes locks in one order, so nobody waits in a circle.
        documents.sort_unstable();
        documents.dedup();
        let deadline = tokio::time::Instant::now() + self.assumptions.lock_deadline;
        let mut held = Vec::with_capacity(documents.len());
        for document in documents.iter() {
            held.push(self.locks.lock(*document, deadline).await.ok_or(Aborted::Lock)?);
        }
        Ok(held)
    }

    /// The time that a commit of so many documents takes, once it has its locks.
    pub async fn commit(&self, documents: u64) {
        let Assumptions { commit, document, jitter, .. } = self.assumptions;
        let further = u32::try_from(documents.saturating_sub(1)).unwrap_or(u32::MAX);
        let swing = self.rng.locked().random_range(-1.0..=1.0) * jitter;
        tokio::time::sleep((commit + document.saturating_mul(further)).mul_f64((1.0 + swing).max(0.0))).await;
        self.writes.fetch_add(documents, Ordering::Relaxed);
    }
}
