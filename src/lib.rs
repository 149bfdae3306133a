//! hotcount counts likes on posts, exactly, from a queue that delivers at least once, when one post receives most of
//! the traffic.

pub mod ack;
pub mod aggregate;
pub mod backoff;
pub mod batch;
pub mod event;
pub mod membership;
pub mod shard;
pub mod source;
pub mod store;
