//! What a like is, how events spell it, and the one decision. Pure: no clock, no I/O, nothing of the rest of the crate.
//!
//! | module | is |
//! |---|---|
//! | [`inflate`], [`framing`] | unpacking gzip and zstd; where one event ends and the next begins in a text |
//! | [`event`] | bytes to a like or to poison with a reason |
//! | [`membership`] | the stored truth for one (post, user), and `decide` |
//! | [`batch`] | what one commit carries |

pub mod batch;
pub mod event;
pub mod framing;
pub mod inflate;
pub mod membership;
