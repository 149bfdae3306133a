//! hotcount counts likes on posts, exactly, from a queue that delivers at least once, when one post receives most of
//! the traffic.
//!
//! For every post, at every committed instant, the sum of its counter shards is the number of its members that are
//! liked. A *like* is one event: a wish that a user does or does not like a post, at an order. A *membership* is the
//! stored truth for one (post, user). A *batch* is what one commit carries: memberships, one increment per post on a
//! *shard*, and the batch's key.
//!
//! Data flows one way, source → decode → aggregate → flush → store → ack. Below, a room names only rooms above it:
//!
//! | room | is |
//! |---|---|
//! | [`like`] | the event and its wire forms, membership and the decision, the batch; pure |
//! | [`common`] | adapter URLs, retry delays, the memory budget |
//! | [`telemetry`] | every metric, in one table |
//! | [`source`] | the port where deliveries come from, with its ack tokens; its adapters |
//! | [`store`] | the port where counts are kept; its adapters |
//! | [`engine`] | aggregate, flush, quarantine, and the pipeline that runs them |
//! | [`read`] | derived counts, drift between shards and members, and its repair |
//! | `http_api` | a worker's HTTP server, the client that reads one, and the JSON that they share |
//! | [`connect`] | the one table from a URL to an adapter |
//! | [`lab`] | load generators and a model of Firestore: what measures and proves |
//!
//! [`run`] runs a worker on any source and store, here on both that need nothing installed:
//!
//! ```
//! use hotcount::source::memory::{Config as Queue, Finish, Memory as Messages};
//! use hotcount::store::{Counts, Depth, memory::Memory};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let messages = Arc::new(Messages::new(Queue { received_at: Arc::new(std::time::SystemTime::now), ..Queue::default() }));
//! let event = r#"{"eventId":"e1","type":"like.added","postId":"cats","userId":"ann","occurredAt":"2026-01-01T00:00:00Z"}"#;
//! for _ in 0..3 {
//!     messages.publish(event)?;
//! }
//! messages.finish(Finish::WhenSettled);
//! let store = Arc::new(Memory::default());
//! let report =
//!     hotcount::run(messages, store.clone(), hotcount::Config::default(), std::future::pending(), Arc::default()).await?;
//! assert_eq!((report.counted.received, report.counted.left), (3, 0));
//! assert_eq!(store.tally("cats", Depth::Shards).await?.count, 1);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/embed.rs` runs one on Pub/Sub and Firestore inside an application; `examples/reader.rs` reads counts.

pub mod common;
pub mod connect;
pub mod engine;
#[cfg(feature = "http")]
pub mod http_api;
pub mod lab;
pub mod like;
pub mod read;
pub mod source;
pub mod store;
pub mod telemetry;

pub use engine::pipeline::{Config, EngineError, Report, run};
pub use engine::progress::{Counted, Progress};
pub use like::batch::{Batch, BatchKey};
pub use like::event::{Like, Poison};
pub use like::membership::{Decision, Membership, decide};
pub use read::{reader, repair};
pub use source::Source;
pub use store::Store;
