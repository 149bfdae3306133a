//! The door of a worker, with the real binary and bytes that no client library sends: what is refused and how, who is kept
//! waiting, and how much memory a crowd can make it hold.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod crowd;
mod memory;
#[path = "../support/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]
mod process;
mod raw;
mod refusals;
mod silent;

use process::Worker;

/// A worker that keeps its likes in memory.
fn worker(arguments: &[&str]) -> Worker {
    let mut all = vec!["--store", "memory:"];
    all.extend(arguments);
    Worker::start(&all)
}
