//! hotcount counts likes on posts, exactly, from a queue that delivers at least once, when one post receives most of
//! the traffic.
//!
//! For every post, at every committed instant, the sum of its counter shards is the number of its members that are
//! liked. A *like* is one event: a wish that a user does or does not like a post, at an order. A *membership* is the
//! stored truth for one (post, user). A *batch* is what one commit carries: memberships, one increment per post on a
//! *shard*, and the batch's key.
//!
//! Data flows one way, source → decode → aggregate → flush → store → ack, and so do the modules:
//!
//! | module | is |
//! |---|---|
//! | [`event`], [`membership`], [`batch`] | a like, the decision, what one commit carries; pure |
//! | [`adapter_url`] | the one reading of adapter URLs, which shows no secret; pure |
//! | [`ack`], [`backoff`], [`shard`] | tokens that are settled or dropped; full jitter; a lane's shard |
//! | [`inflate`], [`framing`] | unpacking; where one event ends and the next begins in a text; pure |
//! | [`budget`], [`held`], [`settled`] | what a worker may hold, and who waits for room; what it has settled lately |
//! | [`source`] | the port where deliveries come from, and its adapters |
//! | [`aggregate`] | the bounded buffer that folds likes per member and seals batches |
//! | [`receipt`], [`progress`], [`telemetry`] | what travels with a like; the numbers; the metrics |
//! | [`store`] | the port where counts are kept, and its adapters |
//! | [`watchdog`] | sees what stands still; pure |
//! | [`flush`], [`quarantine`] | a batch on its way to being durable; where poison is kept |
//! | [`pipeline`] | the engine: tasks and the order of shutdown |
//! | [`readmit`] | quarantined deliveries, once more through the pipeline |
//! | [`server`] | the HTTP server of a worker: who is let in, who is closed, and when |
//! | [`load`] | streams of likes whose outcome is known from a seed |
//! | [`model`] | Firestore's contention under a clock that can be paused, and what hotcount is compared with |
//! | [`reader`] | derived counts, and the drift between shards and members |
//! | [`repair`] | correcting a drift while workers keep running |
//!
//! [`pipeline::run`] runs a worker on any source and store; `examples/reader.rs` reads counts.

pub mod ack;
pub mod adapter_url;
pub mod aggregate;
pub mod backoff;
pub mod batch;
pub mod budget;
pub mod event;
#[cfg(feature = "http")]
pub mod face;
pub mod flush;
pub mod framing;
pub mod held;
pub mod inflate;
pub mod load;
pub mod membership;
pub mod model;
mod patience;
pub mod pipeline;
pub mod progress;
pub mod quarantine;
pub mod reader;
pub mod readmit;
pub mod receipt;
pub mod repair;
#[cfg(feature = "http")]
pub mod server;
pub mod settled;
pub mod shard;
pub mod source;
pub mod store;
mod sync;
pub mod telemetry;
pub mod watchdog;

pub use batch::{Batch, BatchKey};
pub use event::{Like, Poison};
pub use membership::{Decision, Membership, decide};
