//! What tests share. A test binary uses some of it and not the rest.
#![allow(dead_code, unreachable_pub, reason = "every test binary compiles this module and uses another part of it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod emulators;
#[cfg(feature = "http")]
pub mod proxy;
#[cfg(feature = "pubsub")]
pub mod publish;

use std::time::Duration;

/// What `future` gives.
///
/// # Panics
/// When it takes longer than `limit`, naming what was waited for.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(done) => done,
        Err(_) => panic!("waited {limit:?} for {what}"),
    }
}
