//! What every room may use: adapter URLs, retry delays, the memory budget, and locks. Names nothing of the rest.

pub mod adapter_url;
pub mod backoff;
pub mod budget;
pub(crate) mod sync;
