//! hotcount counts likes on posts, exactly, from a queue that delivers at least once, when one post receives most of
//! the traffic.

pub mod ack;
pub mod aggregate;
pub mod backoff;
pub mod batch;
pub mod event;
#[cfg(feature = "http")]
pub mod face;
pub mod flush;
pub mod load;
pub mod membership;
pub mod pipeline;
pub mod progress;
pub mod quarantine;
pub mod reader;
pub mod receipt;
pub mod shard;
pub mod source;
pub mod store;
pub mod telemetry;
