//! What the threads of the buffer share: locks, counters, and a map of locks. Names alone, so they cost nothing.
//!
//! [`crate::engine::aggregate`] takes them from here and from nowhere else. The model checker in `tests/interleavings/main.rs`
//! compiles the same sources over types of the same names, between whose steps it puts any other thread.

pub(crate) use dashmap::DashMap as Map;
pub(crate) use dashmap::mapref::entry::Entry;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
