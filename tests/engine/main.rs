//! The engine on a paused clock: faults, drains, budgets, one at a time. All of them together are in `tests/simulation`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod alone;
mod contended;
mod failures;
#[path = "../support/faults.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]
mod faults;
mod load;
mod load_drive;
mod modelled;
mod poison;
mod reprocess;
mod source_checks;
mod store_as_a_whole;
mod streams;
mod watchdog;

use faults::{Fault, Faulty};
use hotcount::engine::flush::BatchKeys;
use hotcount::engine::pipeline::{self, Config, EngineError, Report};
use hotcount::engine::progress::Progress;
use hotcount::like::batch::BatchKey;
use hotcount::read::reader;
use hotcount::source::memory::{self, Finish, Memory as Messages};
use hotcount::store::memory::Memory;
use hotcount::store::{Counts, Depth, ErrorClass, PageSize, Store};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn event(n: u64, post: &str, user: &str, liked: bool, order: i64) -> String {
    let kind = if liked { "like.added" } else { "like.removed" };
    format!(r#"{{"eventId":"e{n}","type":"{kind}","postId":"{post}","userId":"{user}","version":{order}}}"#)
}

fn config() -> Config {
    Config {
        order: hotcount::like::event::OrderPolicy::Version,
        batch_writes: Some(12),
        max_held_deliveries: 50,
        lanes: Some(3),
        recent_likes: Some(1_000),
        ..Config::default()
    }
}

struct Worker {
    source: Messages,
    shutdown: CancellationToken,
    progress: Arc<Progress>,
    running: tokio::task::JoinHandle<Result<Report, EngineError>>,
}

impl Worker {
    fn start(source: &Messages, store: Arc<dyn Store>, config: Config) -> Self {
        let (shutdown, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
        let engine = pipeline::run(
            Arc::new(source.clone()),
            store,
            config,
            shutdown.clone().cancelled_owned(),
            Arc::clone(&progress),
        );
        Self { source: source.clone(), shutdown, progress, running: tokio::spawn(engine) }
    }

    /// Lets the source end when everything is settled.
    async fn finish(self) -> Report {
        self.source.finish(Finish::WhenSettled);
        self.running.await.expect("no panic").expect("the engine works")
    }

    async fn stop(self) -> Report {
        self.shutdown.cancel();
        self.running.await.expect("no panic").expect("the engine works")
    }
}

/// Waits, on the paused clock, until something is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

async fn count(store: &dyn Counts, post: &str) -> (i64, Option<u64>) {
    let tally = reader::tally(store, post, Depth::ShardsAndMembers).await.expect("memory can be read");
    (tally.count, tally.members)
}

fn no_fault() -> Fault {
    Fault::default()
}

#[tokio::test(start_paused = true)]
async fn every_delivery_ends_as_exactly_one_thing_and_the_numbers_add_up() {
    let (source, store) = (Messages::default(), Arc::new(Memory::default()));
    for n in 0..40 {
        source.publish(event(n, "p", &format!("u{}", n % 20), true, 1)).expect("room");
    }
    source.publish(event(90, "p", "u1", false, 0)).expect("room");
    source.publish("rubbish").expect("room");
    let report = Worker::start(&source, store.clone(), config()).finish().await;
    let c = report.counted;
    assert_eq!(c.received, 42);
    assert_eq!(c.applied + c.folded + c.duplicates + c.stale + c.poison, 42);
    assert_eq!((c.poison, c.left), (1, 0));
    assert_eq!(count(&*store, "p").await, (20, Some(20)));
    let poison = store.quarantined(None, PageSize::entries(10)).await.expect("memory can be read").entries;
    assert_eq!((poison.len(), &poison[0].data[..]), (1, &b"rubbish"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_like_redelivered_after_flush_is_counted_once_and_settled_without_the_store() {
    let (source, store) = (Messages::default(), Arc::new(Memory::default()));
    let worker = Worker::start(&source, store.clone(), config());
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    until("the like is settled", || source.totals().counted == 1).await;
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    until("its twin is settled", || source.totals().counted == 2).await;
    let commits = worker.progress.commits();
    let report = worker.finish().await;
    assert_eq!((commits, report.counted.applied, report.counted.duplicates), (1, 1, 1));
    assert_eq!(count(&*store, "p").await, (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_settled_before_its_commit_is_answered() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory, |_, _| Fault::slow(Duration::from_secs(100)));
    let worker = Worker::start(&source, store, config());
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    tokio::time::sleep(Duration::from_secs(99)).await;
    assert_eq!(source.totals().counted, 0);
    until("it is settled", || source.totals().counted == 1).await;
    worker.finish().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_held_stays_in_the_budget_whatever_waits() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory, |_, _| Fault::slow(Duration::from_secs(5)));
    for n in 0..1_000 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let worker = Worker::start(&source, store, config());
    let mut most = 0;
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = most.max(source.totals().held);
    }
    assert!((40..=50).contains(&most), "{most}");
    assert_eq!(worker.finish().await.counted.applied, 1_000);
}

#[tokio::test(start_paused = true)]
async fn streams_that_pull_at_once_share_one_budget_and_an_idle_one_keeps_no_more_than_its_part() {
    let source = Messages::new(memory::Config { streams: 4, ..Default::default() });
    let store = Faulty::new(Arc::new(Memory::default()), |_, _| Fault::slow(Duration::from_secs(5)));
    let worker = Worker::start(&source, store, config());
    // All streams wait, each with room that it may use, when a thousand messages arrive.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..1_000 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let mut most = 0;
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = most.max(source.totals().held);
    }
    assert!((40..=50).contains(&most), "{most}");
    assert_eq!(worker.finish().await.counted.applied, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_flushes_what_is_held_and_pulls_nothing_more() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |_, _| Fault::slow(Duration::from_secs(1)));
    let worker = Worker::start(&source, store, Config { linger: Duration::from_secs(20), ..config() });
    for n in 0..5 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    until("the worker holds them", || source.totals().held == 5).await;
    let report = worker.stop().await;
    assert_eq!((report.counted.applied, report.counted.left), (5, 0));
    source.publish(event(9, "p", "late", true, 1)).expect("room");
    assert_eq!((source.totals().counted, source.totals().waiting), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_with_a_store_that_hangs_ends_at_its_deadline_and_says_what_is_left() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory, |_, _| Fault::slow(Duration::from_secs(1_000_000)));
    let worker = Worker::start(&source, store, config());
    for n in 0..5 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    until("the worker holds them", || source.totals().held == 5).await;
    let asked = tokio::time::Instant::now();
    let report = worker.stop().await;
    assert_eq!(report.counted.left, 5);
    assert!(asked.elapsed() <= config().drain_timeout + Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!((source.totals().counted, source.totals().waiting), (0, 5), "they come back");
}

/// Two workers after each other on one store, each with likes of its own: the batch keys that the store saw.
async fn two_workers(config: Config) -> (Arc<Memory>, Vec<BatchKey>) {
    let (memory, keys) = (Arc::new(Memory::default()), Arc::new(Mutex::new(Vec::new())));
    for post in ["p", "q"] {
        let (source, seen) = (Messages::default(), Arc::clone(&keys));
        let store = Faulty::new(memory.clone(), move |batch, _| {
            seen.lock().unwrap().push(batch.key());
            no_fault()
        });
        for n in 0..40 {
            source.publish(event(n, post, &format!("u{n}"), true, 1)).expect("room");
        }
        Worker::start(&source, store, config.clone()).finish().await;
    }
    let keys = std::mem::take(&mut *keys.lock().unwrap());
    (memory, keys)
}

#[tokio::test(start_paused = true)]
async fn workers_with_the_same_seed_share_no_batch_key_and_lose_no_like() {
    let (memory, keys) = two_workers(Config { seed: 5, ..config() }).await;
    assert_eq!((count(&*memory, "p").await, count(&*memory, "q").await), ((40, Some(40)), (40, Some(40))));
    let different: BTreeSet<_> = keys.iter().map(|key| *key.as_bytes()).collect();
    assert!(keys.len() >= 8 && different.len() == keys.len(), "{keys:?}");
}

#[tokio::test(start_paused = true)]
async fn batch_keys_that_are_seeded_replay_and_lanes_share_none() {
    let seeded = |keys| Config { batch_keys: BatchKeys::Seeded(keys), ..config() };
    let (_, one) = two_workers(seeded(5)).await;
    let (first, again) = one.split_at(one.len() / 2);
    assert_eq!(first, again, "one seed, so the second worker draws what the first one drew");
    assert_eq!(first.iter().map(|key| *key.as_bytes()).collect::<BTreeSet<_>>().len(), first.len(), "{first:?}");
    assert_ne!(two_workers(seeded(6)).await.1, one);
}
