//! The Pub/Sub source on the emulator, its setup and checks, and the conformance suite that every source passes.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod check;
mod conformance;
#[path = "../support/faults.rs"]
#[allow(dead_code, unreachable_pub, reason = "the suites use different parts of it")]
mod faults;
mod load;
mod restarts;
mod setup;
mod source;
#[path = "../support/mod.rs"]
mod support;
