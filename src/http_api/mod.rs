//! The HTTP face of a store: counts, posts and the quarantine as JSON, for whoever shows or checks them.
//!
//! The shapes here are written by the routes and read by [`crate::http_api::client`], so both sides are one file.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/counts/{post}[?verify=true]` | [`PostCount`] |
//! | `GET /v1/posts?listing=shards\|members[&after=ID][&limit=N]` | [`PostPage`] |
//! | `GET /v1/quarantine[?after=ID][&limit=N][&bytes=N]` | [`QuarantinePage`] |
//! | `GET /v1/backup` | a copy of an embedded store, as bytes; 429 while another copy is read |
//! | `GET /v1/counts/{post}/repair` | [`PostState`] |
//! | `POST /v1/counts/{post}/repair`, a [`RepairOrder`] | 204 corrected · 409 somebody else repaired first: read again |
//!
//! A post in a path is percent-encoded. An unknown post counts 0. A page of posts with fewer than `limit` is the last; one of
//! the quarantine says where the next begins, and which entries cannot be read. A failure of the store, and no room for a
//! page, answer 503, a request that is not understood 400, and 500 says that something stored for this post or entry cannot
//! be read, all with a [`Problem`].
//!
//! What a page holds counts in the worker's budget until it is sent, and all pages together have a quarter of it, so that
//! whoever reads pages slowly does not keep likes out.
//!
//! Nobody is asked who they are here, so nothing here can do harm: a repair takes the version from the request and the
//! counts from the store, and can only make shards equal to members. Deleting poison is not among the routes.

mod backup;
pub mod client;
mod health;
mod page;
mod problem;
mod quarantine;
mod routes;
pub mod server;

pub use backup::BACKUP_PATH;
pub use health::health;
pub use problem::{Fault, Problem, UnreadableDocument};
pub use quarantine::{Attribute, NotUnderstood, QuarantineEntry, QuarantinePage, UnreadableEntry};
pub use routes::{routes, unknown_path, wrong_method};

use crate::store::{Audit, Listing, Tally};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The most posts on one page: ids are up to 1,500 bytes, so a page stays under 2 MiB.
pub const MAX_POSTS: usize = 1_000;

/// The most quarantined deliveries on one page. Their payloads may be megabytes.
pub const MAX_QUARANTINED: usize = 25;

/// The bytes of payloads and attributes after which a page of the quarantine ends, so that it has less than this and one
/// more entry.
pub const MAX_QUARANTINED_BYTES: usize = 4 << 20;

/// The counts of one post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostCount {
    /// The post's id.
    pub post: String,
    /// The sum of its shards.
    pub count: i64,
    /// How many shards it has.
    pub shards: u64,
    /// How many members like it; with `verify=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    /// Count from shards minus count from members; with `verify=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<i64>,
}

impl PostCount {
    /// A tally and the post that it is of.
    #[must_use]
    pub fn new(post: String, tally: Tally) -> Self {
        Self { post, count: tally.count, shards: tally.shards, members: tally.members, drift: tally.drift() }
    }

    /// The tally in it.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally { count: self.count, shards: self.shards, members: self.members }
    }
}

/// The counts of one post from shards and members, and the state of its repair shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostState {
    /// The counts.
    #[serde(flatten)]
    pub count: PostCount,
    /// The sum of all repairs so far.
    pub repaired: i64,
    /// Which version of the repair shard this is; null when there is none.
    pub version: Option<String>,
}

impl PostState {
    /// What was read of a post.
    #[must_use]
    pub fn new(post: String, seen: Audit) -> Self {
        Self { count: PostCount::new(post, seen.tally), repaired: seen.repaired, version: seen.version }
    }

    /// What was read.
    #[must_use]
    pub fn audit(self) -> Audit {
        Audit { tally: self.count.tally(), repaired: self.repaired, version: self.version }
    }
}

/// Asks for a repair, on condition that the repair shard still has this version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairOrder {
    /// The version that [`PostState`] showed; null for a post that was never repaired.
    pub version: Option<String>,
}

/// Some posts, sorted by the bytes of their ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostPage {
    /// Their ids.
    pub posts: Vec<String>,
}

/// A time as text. RFC 3339 ends with the year 9999; a clock beyond it is shown as the beginning of 1970.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let nanos = match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
    };
    let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    at.format(&Rfc3339).unwrap_or_else(|_| "1970-01-01T00:00:00Z".to_owned())
}

/// The path that asks for a post's counts: every byte that could mean something in a URL is percent-encoded.
#[must_use]
pub fn count_path(post: &str) -> String {
    post.bytes().fold("/v1/counts/".to_owned(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

/// The path of a post's repair.
#[must_use]
pub fn repair_path(post: &str) -> String {
    count_path(post) + "/repair"
}

/// The name of a listing in a query.
#[must_use]
pub fn listing_name(listing: Listing) -> &'static str {
    match listing {
        Listing::Shards => "shards",
        Listing::Members => "members",
    }
}
