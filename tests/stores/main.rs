//! The stores: the conformance suite that every one passes, and what is special about each.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod bully;
mod conformance;
mod embedded;
mod embedded_disk;
mod emulators;
#[path = "../support/faults.rs"]
#[allow(dead_code, unreachable_pub, reason = "the suites use different parts of it")]
mod faults;
mod firestore;
mod lost_answer;
mod remote;
#[path = "../support/mod.rs"]
mod support;
