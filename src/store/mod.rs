//! The store port: where memberships, shards, batch keys and quarantine live.
//!
//! A store knows neither sources nor acks. An adapter is chosen by URL in [`crate::connect`] and passes the one conformance suite in `tests/stores/conformance.rs`.

#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
#[cfg(feature = "firestore")]
pub mod firestore;
pub mod memory;
mod quarantined;
pub(crate) mod retry_limit;

pub use error::{ErrorClass, LAYOUT, StoreError, StoredFault, Undecidable};
pub use quarantined::{PageSize, QuarantinePage, Quarantined, hex_of_sha256, quarantine_id};

use crate::common::adapter_url::UrlError;
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use crate::like::membership::Decision;
use async_trait::async_trait;
use std::time::Duration;

/// How one attempt at a batch goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// Whether an earlier attempt may have committed without an answer: then the batch key is read before anything.
    pub resuming: bool,
    /// The shard number that the lane uses now.
    pub shard: u16,
}

impl Attempt {
    /// The first attempt, on `shard`.
    #[must_use]
    pub fn first(shard: u16) -> Self {
        Self { number: 1, resuming: false, shard }
    }
}

/// What a batch did. `applied + duplicates + stale` is the number of likes in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Likes that were written.
    pub applied: u64,
    /// Likes not newer than what was stored, of the same state.
    pub duplicates: u64,
    /// Likes not newer than what was stored, of the other state.
    pub stale: u64,
    /// Whether the batch key showed that an earlier attempt had committed.
    pub replayed: bool,
}

impl Applied {
    /// What a like came to that writes nothing; `None` for one that must be written.
    #[must_use]
    pub fn without_a_write(decision: Decision) -> Option<Self> {
        match decision {
            Decision::Duplicate => Some(Self { duplicates: 1, ..Self::default() }),
            Decision::Stale => Some(Self { stale: 1, ..Self::default() }),
            Decision::Write { .. } => None,
        }
    }
}

/// What must agree among all workers of one consumer, for as long as the store lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The order policy, as `--order` names it.
    pub order: String,
    /// What tells one event from another: `member`.
    pub identity: String,
    /// The version of the layout; see [`LAYOUT`].
    pub layout: i64,
}

/// The counts of one post, all read at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The sum of the post's shards, the repair shard included.
    pub count: i64,
    /// How many shard documents there are.
    pub shards: u64,
    /// How many members like the post; only when asked for.
    pub members: Option<u64>,
}

impl Tally {
    /// Count from shards minus count from members: 0 whenever the contract holds. Shards that were changed from outside
    /// may hold anything, so it saturates.
    #[must_use]
    pub fn drift(&self) -> Option<i64> {
        self.members.map(|m| self.count.saturating_sub_unsigned(m))
    }
}

/// The counts of one post and the state of its repair shard, all read at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Shards and members; the repair shard is one of the shards.
    pub tally: Tally,
    /// What the repair shard holds: the sum of all repairs so far.
    pub repaired: i64,
    /// Which version of the repair shard was read; `None` when there was none. Only the store that gave it can read it.
    pub version: Option<String>,
}

/// What became of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// The drift that was read is corrected; or there was none, and nothing was written.
    Done,
    /// The repair shard has changed since it was read: somebody else repaired first. Nothing was written; read again.
    Conflict,
}

/// The shard number that repairs write, where shards have numbers: no lane has it, for there are at most 65,535 shards.
pub const REPAIR_SHARD: u16 = u16::MAX;

/// What a tally reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The shards alone: what a page view does.
    Shards,
    /// The shards and the members, at one read time.
    ShardsAndMembers,
}

/// How posts are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// By their shard documents.
    Shards,
    /// By the members that like them: also posts whose shards were deleted from outside. A post that has nothing but
    /// tombstones counts 0 either way and may be missing.
    Members,
}

/// What a batch may hold in one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Documents written by one commit: one a like, one a post, and the batch key.
    pub max_writes: usize,
    /// Bytes of ids in one commit, with what the store adds to each.
    pub max_bytes: usize,
    /// How many commits at once serve the store best.
    pub lanes: usize,
    /// How many likes whose commit was answered are worth remembering, so that their duplicates never reach the store; 0
    /// where asking the store costs less than remembering.
    pub recent_likes: usize,
    /// How long a batch key is kept; retries must end before.
    pub batch_key_lifetime: Option<Duration>,
}

/// A consistent copy of a store, as bytes that the store's own kind makes a store of. Nothing waits for whoever reads it.
pub type Backup = futures::stream::BoxStream<'static, Result<bytes::Bytes, StoreError>>;

/// Reading: counts, posts and the quarantine. A running worker offers this over HTTP too.
#[async_trait]
pub trait Counts: Send + Sync {
    /// The counts of one post at one read time. An unknown post counts 0 with 0 shards.
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError>;

    /// Up to `limit` posts whose ids come after `after`, sorted by the bytes of the id. Fewer than `limit` means that
    /// there are no more.
    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Quarantined deliveries of this consumer whose ids come after `after`, sorted by id.
    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError>;

    /// A copy of all that the store holds at one time.
    async fn backup(&self) -> Result<Backup, StoreError> {
        let problem = "this store has no copy to give: a Firestore database is copied with gcloud firestore export, and \
                       what is in memory ends with its process";
        Err(StoreError::new(ErrorClass::Fatal, problem))
    }
}

/// Repairing, while workers keep running: a commit of theirs changes shards and members alike, so a drift that was read
/// stays what it is until somebody repairs it. A running worker offers this over HTTP too.
#[async_trait]
pub trait Repair: Counts {
    /// The counts of one post, from shards and from members, with the version of its repair shard.
    async fn audit(&self, post: &str) -> Result<Audit, StoreError>;

    /// Adds what the shards lacked when `seen` was read to the post's repair shard, unless that shard has changed since.
    /// So of two repairs from one reading one is refused, however late it arrives. After an unknown answer the caller
    /// reads again.
    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError>;
}

/// Writing. An answer means that all that was read and written is durable, also for a batch that changes nothing.
#[async_trait]
pub trait Store: Repair {
    /// Applies a batch in one atomic commit: its memberships, one increment per post, and its key. However often it is
    /// called for one batch, the effect happens once.
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError>;

    /// Keeps poison. The same id again replaces the entry.
    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError>;

    /// One quarantined delivery of this consumer.
    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError>;

    /// Deletes quarantined deliveries of this consumer, each wholly or not at all. An id that is not there is no error,
    /// so after an unknown answer the same call is made again.
    async fn discard(&self, ids: &[String]) -> Result<(), StoreError>;

    /// The newest like stored for one (post, user).
    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError>;

    /// Keeps `settings` when the store has none for this consumer, and answers with those that it keeps: of two workers
    /// that start at once both see the same.
    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError>;

    /// Commits a batch key without any like: a witness that the store takes writes now. It expires as every key does.
    async fn probe(&self, key: BatchKey) -> Result<(), StoreError>;

    /// What fits in one commit.
    fn limits(&self) -> Limits;

    /// Ends the store: what it buffers is durable and its files are closed when this returns.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// To count: a store that is not there is made.
    #[default]
    Create,
    /// To change what is there: a store that is not there is an error.
    Change,
    /// To read alone: nothing is made, and no byte of it changes.
    Read,
}

/// What every adapter is told beside its URL.
#[derive(Clone, Debug)]
pub struct Options {
    /// Prefixes batch keys and quarantine ids, so that two consumers of one topic never share them.
    pub consumer: String,
    /// What it is opened for.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        Self { consumer: "like-counter".to_owned(), access: Access::default() }
    }
}

/// A URL that names no store, or a store that cannot be opened. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The scheme is not in the table.
    #[error("no store is called '{0}': use embedded:PATH, firestore://PROJECT[/DATABASE] or memory:{hint}", hint = .1)]
    UnknownScheme(String, &'static str),
    /// The rest of the URL, or an option in its query, is not understood.
    #[error("the store URL '{url}' is not understood: {problem}")]
    BadUrl {
        /// The URL as it may be shown.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It is understood but does not open.
    #[error("the store {url} cannot be opened: {problem}")]
    Unavailable {
        /// The URL as it may be shown.
        url: String,
        /// What happened and what to do.
        problem: String,
    },
}

impl From<UrlError> for ConnectError {
    fn from(UrlError { url, problem }: UrlError) -> Self {
        Self::BadUrl { url, problem }
    }
}
