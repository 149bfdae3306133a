//! hotcount counts likes on posts, exactly, from a queue that delivers at least once, when one post receives most of
//! the traffic.

pub mod ack;
pub mod batch;
pub mod event;
#[cfg(feature = "http")]
pub mod face;
pub mod membership;
pub mod source;
pub mod store;
