//! What went wrong for others who run this kind of job, brought about here, a test for each. `tests/README.md` says what
//! each number stands for and where it was reported.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod binary;
mod commits;
mod counts;
mod exactly_once;
#[path = "../support/faults.rs"]
#[allow(dead_code, reason = "shared by several test binaries")]
mod faults;
mod flow_control;
mod identity;
mod leases;
mod place;
#[path = "../support/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]
mod process;
mod queue;
mod shutdown;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod ttl;
mod wire;
mod worker;

use faults::{Fault, Faulty};
use hotcount::engine::pipeline::Config;
use hotcount::like::event::OrderPolicy;
use hotcount::source::memory::Memory as Messages;
use hotcount::source::{Source, SourceError};
use hotcount::store::memory::Memory;
use hotcount::store::{Counts, Depth, ErrorClass, Store};
use place::Place;
use queue::{Fate, Queue, Rules};
use std::sync::Arc;
use std::time::Duration;
use support::proxy::{Call, Proxy, Status, Verdict};
use support::publish::Topic;
use wire::Wire;
use worker::{Worker, count, soon, until};

const SECOND: Duration = Duration::from_secs(1);

/// One event as a publisher writes it.
fn event(id: &str, post: &str, user: &str, liked: bool, version: i64) -> String {
    let kind = if liked { "like.added" } else { "like.removed" };
    format!(r#"{{"eventId":"{id}","type":"{kind}","postId":"{post}","userId":"{user}","version":{version}}}"#)
}

/// A like of user `n` of the post `p`.
fn like(n: usize) -> String {
    event(&format!("e{n}"), "p", &format!("u{n}"), true, 1)
}

/// Small batches, a small budget, and no window: whether a like is known is for the store to say.
fn config() -> Config {
    Config {
        order: OrderPolicy::Version,
        batch_writes: Some(12),
        max_held_deliveries: 50,
        lanes: Some(3),
        recent_likes: Some(0),
        ..Config::default()
    }
}

/// A queue in which so many likes wait.
fn queue_of(likes: usize, rules: Rules) -> Queue {
    let queue = Queue::new(rules);
    (0..likes).for_each(|n| queue.publish(like(n)));
    queue
}

/// A store that behaves as `script` says, at a time since now.
fn failing(memory: &Arc<Memory>, script: fn(Duration) -> Fault) -> Arc<Faulty<Memory>> {
    let began = tokio::time::Instant::now();
    Faulty::new(Arc::clone(memory), move |_, _| script(began.elapsed()))
}
