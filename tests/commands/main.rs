//! The real binary: its commands, its workers, and what a user sees of both.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod backup;
mod dead_letters;
mod demo;
mod embed;
mod load;
mod metrics;
#[path = "../support/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "the suites use different parts of it")]
mod process;
mod repair;
mod replay;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod tls;
mod unreadable;
mod usage;
mod watchdog;
mod wire;
mod worker;
mod wrong_setting;
