//! What tests share. A test binary uses some of it and not the rest.
#![allow(dead_code, unreachable_pub, reason = "every test binary compiles this module and uses another part of it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod emulators;
#[cfg(feature = "http")]
pub mod proxy;
#[cfg(feature = "pubsub")]
pub mod publish;
