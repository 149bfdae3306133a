//! What only the embedded store promises: it survives its process, at whatever instruction that ends, and has one owner.

#![expect(clippy::expect_used, reason = "a test ends at its first failure")]

use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{
    Access, Applied, Attempt, Audit, ConnectError, Depth, ErrorClass, Listing, Options, PageSize, Quarantined,
    Repaired, Store,
};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use tempfile::TempDir;

async fn open(path: &Path, query: &str) -> Arc<dyn Store> {
    try_open(path, query).await.expect("the store opens")
}

async fn try_open(path: &Path, query: &str) -> Result<Arc<dyn Store>, ConnectError> {
    hotcount::connect::store(&format!("embedded:{}{query}", path.display()), &Options::default()).await
}

fn batch(key: u128, likes: Vec<Like>) -> Batch {
    Batch::new(BatchKey::from_random(key), likes)
}

fn add(post: &str, user: &str, order: i64) -> Like {
    Like::new(post, user, &format!("event-{order}"), true, order)
}

async fn assert_count(store: &dyn Store, post: &str, count: i64) {
    let tally = store.tally(post, Depth::ShardsAndMembers).await.expect("a tally");
    assert_eq!((tally.count, tally.drift()), (count, Some(0)), "{post}: {tally:?}");
}

#[tokio::test]
async fn what_was_answered_is_there_after_reopening() {
    let directory = TempDir::new().expect("a directory");
    // Once with everything in the log, once with a checkpoint after every batch.
    for (round, query) in ["", "?memory_bytes=1", ""].into_iter().enumerate() {
        let (key, post) = (round as u128, format!("post-{round}"));
        let store = open(directory.path(), query).await;
        let written = batch(key, vec![add(&post, "a", 1), add(&post, "b", 1), add("shared", &post, 1)]);
        let first = store.apply(&written, Attempt::first(1)).await.expect("applied");
        store.apply(&batch(key + 100, vec![add(&post, "b", 2)]), Attempt::first(2)).await.expect("applied");
        store.close().await.expect("closed");

        let store = open(directory.path(), query).await;
        assert_count(&*store, &post, 2).await;
        assert_count(&*store, "shared", round as i64 + 1).await;
        let again = Attempt { number: 2, resuming: true, shard: 5 };
        let second = store.apply(&written, again).await.expect("answered");
        assert_eq!(second, Applied { replayed: true, ..first });
        let stored = store.membership(&post, "b").await.expect("read");
        assert_eq!(stored, Some(add(&post, "b", 2)));
        let listed = store.posts(Listing::Members, None, 10).await.expect("a page");
        assert_eq!(listed.len(), round + 2);
        store.close().await.expect("closed");
    }
}

#[tokio::test]
async fn dropping_the_store_closes_it_as_well() {
    let directory = TempDir::new().expect("a directory");
    for user in ["a", "b", "c"] {
        let store = open(directory.path(), "").await;
        store.apply(&batch(rand::random(), vec![add("p", user, 1)]), Attempt::first(0)).await.expect("applied");
    }
    assert_count(&*open(directory.path(), "").await, "p", 3).await;
}

#[tokio::test]
async fn a_closed_store_refuses_and_says_so() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), "").await;
    store.close().await.expect("closed");
    store.close().await.expect("closing again changes nothing");
    let error = store.apply(&batch(1, vec![add("p", "a", 1)]), Attempt::first(0)).await.expect_err("closed");
    assert_eq!(error.class, ErrorClass::Fatal);
    let error = store.tally("p", Depth::Shards).await.expect_err("closed");
    assert!(error.message.ends_with("is closed"), "{error}");
}

#[tokio::test]
async fn a_second_opener_is_told_to_ask_the_running_worker() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), "").await;
    let error = try_open(directory.path(), "").await.err().expect("it is locked").to_string();
    assert!(error.contains("another process") && error.contains("http://ADDR"), "{error}");
    store.close().await.expect("closed");
    open(directory.path(), "").await;
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused() {
    let directory = TempDir::new().expect("a directory");
    open(directory.path(), "").await.close().await.expect("closed");
    let format = directory.path().join("store/format");
    let text = std::fs::read_to_string(&format).expect("read");
    let (text, _) = text.split_once("check ").expect("it ends with a checksum");
    let text = text.replace("format 2", "format 3");
    let check = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    std::fs::write(&format, format!("{text}check {check:016x}\n")).expect("written");
    let error = try_open(directory.path(), "").await.err().expect("it is newer").to_string();
    assert!(error.contains("newer hotcount (format 3, this one reads 2)"), "{error}");
}

#[tokio::test]
async fn a_store_of_format_1_is_refused_and_left_as_it_is() {
    let directory = TempDir::new().expect("a directory");
    std::fs::create_dir(directory.path().join("keyspaces")).expect("made");
    for access in [Access::Create, Access::Change, Access::Read] {
        let url = format!("embedded:{}", directory.path().display());
        let error =
            hotcount::connect::store(&url, &Options { access, ..Options::default() }).await.err().expect("refused");
        assert!(error.to_string().contains("written by an older hotcount (format 1, this one reads 2)"), "{error}");
    }
}

#[tokio::test]
async fn a_url_that_is_not_understood_says_what_is_wrong() {
    for (url, problem) in [
        ("embedded:", "it has no path"),
        ("embedded:x?memory=1", "no option 'memory'"),
        ("embedded:x?memory_mib=0", "memory_mib must be a number from 1 to 1024"),
        ("embedded:x?cache_mib=many", "cache_mib must be a number from 1 to 1024"),
    ] {
        let error = hotcount::connect::store(url, &Options::default()).await.err().expect(url);
        assert!(matches!(error, ConnectError::BadUrl { .. }), "{error:?}");
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[tokio::test]
async fn two_consumers_share_members_but_neither_batch_keys_nor_quarantine() {
    let directory = TempDir::new().expect("a directory");
    let url = format!("embedded:{}", directory.path().display());
    let poison = Quarantined {
        id: "00".to_owned(),
        reason: "payload: not an event".to_owned(),
        data: "{".into(),
        attributes: Vec::new(),
        source: "test:".to_owned(),
        message_id: None,
        published_at: None,
        received_at: UNIX_EPOCH,
        delivery_attempt: None,
    };
    let written = batch(1, vec![add("p", "a", 1)]);
    for (at, consumer) in ["one", "two"].into_iter().enumerate() {
        let store = hotcount::connect::store(&url, &Options { consumer: consumer.to_owned(), ..Options::default() })
            .await
            .expect("opened");
        assert_eq!(store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries.len(), 0);
        store.quarantine(std::slice::from_ref(&poison)).await.expect("kept");
        let applied = store.apply(&written, Attempt::first(0)).await.expect("applied");
        assert_eq!((applied.replayed, applied.duplicates), (false, at as u64));
        assert_count(&*store, "p", 1).await;
        store.close().await.expect("closed");
    }
}

/// Members that each batch of the killed process adds beside its first.
const MEMBERS: usize = 12;

/// Batch `number` of the killed process: members of its own, an unlike of one of an earlier batch, and a repeat.
fn numbered(number: u64) -> Batch {
    let post = format!("post-{}", number % 3);
    let order = i64::try_from(number).expect("small");
    let mut likes: Vec<Like> = (0..=MEMBERS).map(|i| add(&post, &format!("{number}-{i}"), order)).collect();
    if let Some(earlier) = number.checked_sub(6) {
        likes.push(Like::new(&post, &format!("{earlier}-0"), "gone", false, order));
        likes.push(add(&post, &format!("{earlier}-1"), order - 6));
    }
    batch(u128::from(number), likes)
}

/// A store small enough that checkpoints never end.
const SMALL: &str = "?memory_bytes=6000";

/// Not a test: the process that [`a_process_killed_while_it_applies_keeps_whole_batches_and_all_that_was_answered`]
/// starts and kills. It prints the number of each batch that was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by another test, which kills it"]
async fn the_process_to_be_killed() {
    let Ok(path) = std::env::var("HOTCOUNT_TEST_STORE") else { return };
    let start: u64 = std::env::var("HOTCOUNT_TEST_START").expect("set").parse().expect("a number");
    let store = open(Path::new(&path), SMALL).await;
    let next = Arc::new(AtomicU64::new(start));
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..4 {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        lanes.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                // An end of its own, should nobody kill it.
                if number > start + 100_000 {
                    return;
                }
                store.apply(&numbered(number), Attempt::first(lane)).await.expect("applied");
                let mut out = std::io::stdout().lock();
                writeln!(out, "answered {number}").and_then(|()| out.flush()).expect("printed");
            }
        });
    }
    while lanes.join_next().await.is_some() {}
}

/// Ends the process whatever becomes of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_process_killed_while_it_applies_keeps_whole_batches_and_all_that_was_answered() {
    let directory = TempDir::new().expect("a directory");
    let (mut answered, mut start) = (BTreeSet::new(), 0);
    // Each time killed a little later, on top of what the runs before left.
    for answers in [1, 7, 40, 150, 400] {
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", "--nocapture", "embedded::the_process_to_be_killed"])
            .env("HOTCOUNT_TEST_STORE", directory.path())
            .env("HOTCOUNT_TEST_START", start.to_string())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = Killed(child.expect("started"));
        let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
        let mut number = || loop {
            let line = lines.next()?.ok()?;
            // The harness prints on the same line.
            if let Some((_, number)) = line.split_once("answered ") {
                return number.parse::<u64>().ok();
            }
        };
        for _ in 0..answers {
            answered.insert(number().expect("it answers until it is killed"));
        }
        // SIGKILL. What it had printed before that counts too; a pipe takes a short line whole or not at all.
        child.0.kill().expect("killed");
        while let Some(number) = number() {
            answered.insert(number);
        }
        drop(child);

        let store = open(directory.path(), SMALL).await;
        let last = answered.last().copied().expect("some");
        // Four lanes were at work: batches up to three beyond the last answer may have been committed.
        let end = last + 8;
        let mut kept = BTreeSet::new();
        for number in 0..end {
            let mut found = 0;
            for i in 2..=MEMBERS {
                let post = format!("post-{}", number % 3);
                found += usize::from(store.membership(&post, &format!("{number}-{i}")).await.expect("read").is_some());
            }
            assert!(found == 0 || found == MEMBERS - 1, "batch {number} is there in part: {found}");
            if found > 0 {
                kept.insert(number);
            }
        }
        let lost: Vec<_> = answered.difference(&kept).collect();
        assert!(lost.is_empty(), "answered, but lost: {lost:?}");
        for post in 0..3 {
            let of_post = kept.iter().filter(|&&number| number % 3 == post);
            // Each adds its members; a later one takes the first away, whichever of the two came first.
            let count: i64 = of_post
                .map(|number| {
                    let gone = kept.contains(&(number + 6));
                    let repeated = number.checked_sub(6).is_some_and(|earlier| !kept.contains(&earlier));
                    MEMBERS as i64 + i64::from(!gone) + i64::from(repeated)
                })
                .sum();
            assert_count(&*store, &format!("post-{post}"), count).await;
        }
        store.close().await.expect("closed");
        start = end;
    }
}

#[tokio::test]
async fn a_repair_and_its_version_are_there_after_reopening() {
    let directory = TempDir::new().expect("a directory");
    let mut early = Audit::default();
    for (round, query) in ["", "?memory_bytes=1", ""].into_iter().enumerate() {
        let store = open(directory.path(), query).await;
        store.apply(&batch(round as u128, vec![add("p", &round.to_string(), 1)]), Attempt::first(1)).await.expect("ok");
        // A reading that is wrong by four makes a drift; the next reading corrects it.
        let mut wrong = store.audit("p").await.expect("read");
        assert_eq!(wrong.tally.drift(), Some(0));
        wrong.tally.count += 4;
        assert_eq!(store.repair("p", &wrong).await.expect("answered"), Repaired::Done);
        let seen = store.audit("p").await.expect("read");
        assert_eq!(seen.tally.drift(), Some(-4));
        store.close().await.expect("closed");

        let store = open(directory.path(), query).await;
        assert_eq!(store.audit("p").await.expect("read"), seen);
        assert_eq!(
            store.repair("p", &early).await.expect("answered"),
            if round == 0 { Repaired::Done } else { Repaired::Conflict }
        );
        assert_eq!(store.repair("p", &seen).await.expect("answered"), Repaired::Done);
        assert_count(&*store, "p", round as i64 + 1).await;
        store.close().await.expect("closed");
        early = seen;
    }
}
