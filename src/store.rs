//! The store port: where memberships, shards, batch keys and quarantine live.
//!
//! A store knows neither sources nor acks. An adapter is chosen by URL from the one table at the foot of this file and
//! passes the one conformance suite in `tests/store_conformance.rs`.

#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(feature = "firestore")]
pub mod firestore;
pub mod memory;
#[cfg(feature = "http")]
pub mod remote;

use crate::adapter_url::{AdapterUrl, UrlError, scheme};
use crate::batch::Batch;
use crate::event::Like;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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

/// What a failure means for the batch, and so what the flush does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Nothing was written. Back off, pick a new shard, try again under the same key.
    DidNotCommit,
    /// It may have been written. Back off, try again under the same key, read the key first.
    Unknown,
    /// The store did not accept the credentials. Nothing was written. Tokens get refreshed, so only several of these
    /// in a row mean that the store cannot work.
    Unauthenticated,
    /// No batch can succeed. The worker stops with this error and acknowledges nothing.
    CannotWork,
    /// This batch cannot succeed as it is. Split it until the offender is alone.
    BatchCannotWork,
    /// Others keep writing the likes at these places of the batch. They go into a batch of their own, so that one
    /// toggling user cannot slow the others.
    Contended(Vec<usize>),
}

/// A store's failure, with its class. The text is for people; the class decides.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What the failure means.
    pub class: ErrorClass,
    /// What happened, in a sentence.
    pub message: String,
    /// The cause, where there is one.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// A failure of the given class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), source: None }
    }

    /// A failure of the given class, with its cause.
    pub fn caused(
        class: ErrorClass,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { class, message: message.into(), source: Some(source.into()) }
    }
}

/// One poison delivery on its way into the quarantine.
#[derive(Clone, Debug)]
pub struct Quarantined {
    /// Names the entry: the same delivery quarantined twice is one entry. See [`quarantine_id`].
    pub id: String,
    /// Why it can never succeed; the text names the field.
    pub reason: String,
    /// The payload, whole.
    pub data: Bytes,
    /// The message's attributes.
    pub attributes: Vec<(String, String)>,
    /// The source's name, such as `pubsub://project/subscription`.
    pub source: String,
    /// The broker's id of the message, where it has one.
    pub message_id: Option<String>,
    /// When the message was published, where that is known.
    pub published_at: Option<SystemTime>,
    /// When it was received.
    pub received_at: SystemTime,
    /// Which delivery attempt this was, where the broker counts them.
    pub delivery_attempt: Option<u32>,
}

/// The first 32 hex digits of SHA-256 over the source's name and message id, or over the payload where there is no
/// message id. A colon and the source's length keep two pairs apart.
#[must_use]
pub fn quarantine_id(source: &str, message_id: Option<&str>, payload: &[u8]) -> String {
    match message_id {
        Some(id) => hex_of_sha256(&[source.len().to_string().as_bytes(), b":", source.as_bytes(), b":", id.as_bytes()]),
        None => hex_of_sha256(&[payload]),
    }
}

/// The first 32 hex digits of SHA-256 over `parts`, one after the other.
#[must_use]
pub fn hex_of_sha256(parts: &[&[u8]]) -> String {
    use sha2::{Digest, Sha256};
    use std::fmt::Write;
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    let digest = hash.finalize();
    digest.iter().take(16).fold(String::with_capacity(32), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
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
pub struct Examined {
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
    Refused,
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
    pub window_likes: usize,
    /// How long a batch key is kept; retries must end before.
    pub batch_key_lifetime: Option<Duration>,
}

/// Reading: counts, posts and the quarantine. A running worker offers this over HTTP too.
#[async_trait]
pub trait Counts: Send + Sync {
    /// The counts of one post at one read time. An unknown post counts 0 with 0 shards.
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError>;

    /// Up to `limit` posts whose ids come after `after`, sorted by the bytes of the id. Fewer than `limit` means that
    /// there are no more.
    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Up to `limit` quarantined deliveries of this consumer whose ids come after `after`, sorted by id.
    async fn quarantined(&self, after: Option<&str>, limit: usize) -> Result<Vec<Quarantined>, StoreError>;
}

/// Repairing, while workers keep running: a commit of theirs changes shards and members alike, so a drift that was read
/// stays what it is until somebody repairs it. A running worker offers this over HTTP too.
#[async_trait]
pub trait Repair: Counts {
    /// The counts of one post, from shards and from members, with the version of its repair shard.
    async fn examine(&self, post: &str) -> Result<Examined, StoreError>;

    /// Adds what the shards lacked when `seen` was read to the post's repair shard, unless that shard has changed since.
    /// So of two repairs from one reading one is refused, however late it arrives. After an unknown answer the caller
    /// reads again.
    async fn repair(&self, post: &str, seen: &Examined) -> Result<Repaired, StoreError>;
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

    /// What fits in one commit.
    fn limits(&self) -> Limits;

    /// Ends the store: what it buffers is durable and its files are closed when this returns.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What every adapter is told beside its URL.
#[derive(Clone, Debug)]
pub struct Options {
    /// Prefixes batch keys and quarantine ids, so that two consumers of one topic never share them.
    pub consumer: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { consumer: "like-counter".to_owned() }
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

/// The table: opens the store that `url` names, for writing.
///
/// # Errors
/// When no adapter has the scheme, the URL is not understood, or the store does not open.
#[cfg_attr(not(any(feature = "embedded", feature = "firestore")), expect(unused_variables, reason = "memory has none"))]
pub async fn connect(url: &str, options: &Options) -> Result<Arc<dyn Store>, ConnectError> {
    match scheme(url).as_str() {
        #[cfg(feature = "firestore")]
        "firestore" => Ok(Arc::new(firestore::Firestore::connect(url, options).await?)),
        #[cfg(feature = "embedded")]
        "embedded" => embedded::Embedded::connect(url, options).await,
        "memory" => Ok(Arc::new(memory::Memory::connect(&AdapterUrl::parse(url)?)?)),
        other => Err(ConnectError::UnknownScheme(other.to_owned(), "")),
    }
}

/// The same table for reading alone, where `http://ADDR` names a running worker.
///
/// # Errors
/// As [`connect`].
pub async fn connect_counts(url: &str, options: &Options) -> Result<Arc<dyn Counts>, ConnectError> {
    Ok(connect_repair(url, options).await?)
}

/// The same table for reading and repairing, where `http://ADDR` names a running worker.
///
/// # Errors
/// As [`connect`].
pub async fn connect_repair(url: &str, options: &Options) -> Result<Arc<dyn Repair>, ConnectError> {
    match scheme(url).as_str() {
        #[cfg(feature = "http")]
        "http" => Ok(Arc::new(remote::Remote::connect(url)?)),
        _ => match connect(url, options).await {
            Ok(store) => Ok(store),
            Err(ConnectError::UnknownScheme(s, _)) => {
                Err(ConnectError::UnknownScheme(s, ", or http://ADDR of a running worker"))
            }
            Err(other) => Err(other),
        },
    }
}
