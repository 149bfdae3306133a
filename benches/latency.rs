//! From the moment at which a like was to be sent to a count that a reader sees, at half of what was measured as the
//! capacity: in process (memory to the embedded store) and over Google's emulators (Pub/Sub to Firestore).
//!
//! The target is the flush delay, twice the commit's p99 (one that is under way, and one's own) and the broker's own
//! delivery p99. Each part is measured in the same run. All likes are of one post, each of another user, so the n-th like
//! is visible when the post counts n: readers cannot tell likes apart, and neither does this.
//!
//! `cargo bench --bench latency --no-default-features --features embedded,firestore,pubsub -- [seconds=20]
//! [only=process|emulators]`

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark ends at the first failure")]

#[path = "latency/broker.rs"]
mod broker;
#[path = "latency/run.rs"]
mod run;
#[path = "../tests/support/mod.rs"]
mod support;

#[path = "support/rounds.rs"]
#[allow(dead_code, reason = "this benchmark has no rounds")]
mod rounds;

use broker::Way;
use hotcount::store::{Options, Store};
use std::sync::Arc;
use std::time::Duration;

/// Streams of the subscription: what the emulator serves best.
const STREAMS: usize = 16;

fn main() {
    let (mut lasts, mut only) = (Duration::from_secs(20), None);
    rounds::arguments(|name, value| match name {
        "seconds" => lasts = Duration::from_secs(value.parse().expect("seconds is a number")),
        "only" => only = Some(value.to_owned()),
        other => panic!("there is no argument '{other}'"),
    });
    let wants = |what: &str| only.as_deref().is_none_or(|only| only == what);
    println!("{} cores, shared by everything; {} s at half of the capacity", rounds::machine(), lasts.as_secs());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        run::header();
        if wants("process") {
            let folder = tempfile::TempDir::new().expect("a folder");
            let store = open(&format!("embedded:{}", folder.path().display())).await;
            run::run("memory to embedded", Way::in_process, store, 400_000, lasts).await;
        }
        if wants("emulators") {
            // Asking for an emulator that is required and missing panics, after it has said how to get it.
            let Some((firestore, _)) = support::emulators::firestore().zip(support::emulators::pubsub()) else {
                return;
            };
            let database = support::emulators::unique("bench");
            let store = open(&format!("firestore://{database}?emulator={firestore}")).await;
            run::run("Pub/Sub to Firestore", Way::over_the_emulator, store, 60_000, lasts).await;
        }
    });
}

async fn open(url: &str) -> Arc<dyn Store> {
    hotcount::connect::store(url, &Options::default()).await.expect("the store opens")
}
