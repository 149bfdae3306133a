//! What the threads of the buffer share: locks, counters, and a map of locks. Names alone, so they cost nothing.
//!
//! [`crate::engine::aggregate`] takes them from here and from nowhere else. The model checker in `tests/interleavings/main.rs`
//! compiles the same sources over types of the same names, between whose steps it puts any other thread.

pub(crate) use dashmap::DashMap as Map;
pub(crate) use dashmap::mapref::entry::Entry;
use std::sync::PoisonError;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locking that does not end with another thread's panic.
pub(crate) trait Locked {
    /// What the lock guards.
    type Value;

    /// Locks it, also after a panic of another holder. So each change under a lock of this crate is whole at every point
    /// where it could panic, or is safe to lose; the holder says which where it is not one assignment.
    fn locked(&self) -> MutexGuard<'_, Self::Value>;
}

impl<T> Locked for Mutex<T> {
    type Value = T;

    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
