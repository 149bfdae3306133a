//! Copies that are made while likes arrive.

use super::files::content;
use super::{apply, batch, count, open, try_open};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hotcount::store::embedded::restore;
use hotcount::store::{Access, Attempt, Counts, Listing, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const MEMBERS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_copy_that_is_made_while_likes_arrive_opens_with_whole_batches_and_all_that_was_answered() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory.path().join("store"), "?memory_bytes=50000").await;
    let (answered, next, allowed): (Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..3 {
        let (store, answered, next) = (Arc::clone(&store), Arc::clone(&answered), Arc::clone(&next));
        let (allowed, stop) = (Arc::clone(&allowed), Arc::clone(&stop));
        lanes.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                // Some batches for each copy: however long a copy takes, there are not many more.
                if next.load(Ordering::Relaxed) >= allowed.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                let number = next.fetch_add(1, Ordering::Relaxed);
                store.apply(&batch(number, MEMBERS), Attempt::first(lane)).await.expect("applied");
                answered.fetch_add(1, Ordering::Release);
            }
        });
    }
    for copy in 0..20 {
        // Some likes between two copies, so that they are of different times, and some while the copy is made.
        allowed.fetch_add(50, Ordering::Relaxed);
        let enough = answered.load(Ordering::Acquire) + 5;
        while answered.load(Ordering::Acquire) < enough {
            tokio::task::yield_now().await;
        }
        let before = answered.load(Ordering::Acquire);
        let into = directory.path().join(format!("copy-{copy}"));
        let copied = restore(&into, store.backup().await.expect("a copy"), |_| {}).await.expect("restored");
        let after = next.load(Ordering::Acquire);

        let read = try_open(&into, "", Access::Read).await.expect("it opens");
        let members = count(&*read, "busy").await as u64;
        assert_eq!(members % MEMBERS as u64, 0, "a batch is there in part");
        let batches = members / MEMBERS as u64;
        assert!(
            (before..=after).contains(&batches),
            "{batches}, but {before} were answered before and {after} begun after"
        );
        assert_eq!(copied.members, members + batches, "each batch has a member of a post of its own");
        let posts = read.posts(Listing::Shards, None, usize::MAX).await.expect("a page");
        assert_eq!(posts.len() as u64, batches + 1);
        read.close().await.unwrap();
        // It is a store of its own.
        let opened = open(&into, "").await;
        apply(&*opened, 1 << 40, MEMBERS).await;
        assert_eq!(count(&*opened, "busy").await as u64, members + MEMBERS as u64);
        opened.close().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    while lanes.join_next().await.is_some() {}
    store.close().await.unwrap();
}

/// A stream of these bytes, in pieces.
fn pieces(bytes: Vec<u8>) -> hotcount::store::Backup {
    let chunks: Vec<Result<Bytes, StoreError>> = bytes.chunks(1_000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
    stream::iter(chunks).boxed()
}

async fn bytes_of(store: &dyn Counts) -> Vec<u8> {
    let chunks: Vec<Bytes> = store.backup().await.unwrap().try_collect().await.unwrap();
    chunks.concat()
}

#[tokio::test]
async fn a_copy_that_breaks_off_or_changes_on_the_way_is_no_store() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory.path().join("store"), "").await;
    for number in 0..5 {
        apply(&*store, number, MEMBERS).await;
    }
    let whole = bytes_of(&*store).await;
    let into = directory.path().join("copy");
    let mut broken: Vec<Vec<u8>> = (0..whole.len()).step_by(333).map(|end| whole[..end].to_vec()).collect();
    for at in (0..whole.len()).step_by(777) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        broken.push(changed);
    }
    broken.push([whole.as_slice(), b"more"].concat());
    for bytes in broken {
        let error = restore(&into, pieces(bytes), |_| {}).await.expect_err("it is not whole").to_string();
        assert!(error.contains("the copy is not whole"), "{error}");
        assert!(!into.exists(), "something is left");
    }
    let copied = restore(&into, pieces(whole), |_| {}).await.unwrap();
    assert_eq!(copied.members, 5 * (MEMBERS as u64 + 1));
    let error = restore(&into, pieces(Vec::new()), |_| {}).await.expect_err("there is something").to_string();
    assert!(error.contains("is not empty"), "{error}");
    assert_eq!(count(&*open(&into, "").await, "busy").await, 5 * MEMBERS as i64);
}

/// As a kill leaves it: everything is there but the name.
#[tokio::test]
async fn a_copy_that_was_killed_is_never_taken_for_a_store() {
    let directory = TempDir::new().unwrap();
    let (store, into) = (directory.path().join("store"), directory.path().join("copy"));
    let open_store = open(&store, "").await;
    apply(&*open_store, 1, 3).await;
    restore(&into, open_store.backup().await.unwrap(), |_| {}).await.unwrap();
    std::fs::rename(into.join("store"), into.join("unfinished")).unwrap();
    let before = content(&into);
    for access in [Access::Create, Access::Change, Access::Read] {
        let error = try_open(&into, "", access).await.err().expect("it is none").to_string();
        assert!(
            error.contains("a copy that did not come to its end") || error.contains("there is no store"),
            "{error}"
        );
    }
    assert!(content(&into) == before);
    let memory = hotcount::connect::store("memory:", &hotcount::store::Options::default()).await.unwrap();
    let error = memory.backup().await.err().expect("it has none").to_string();
    assert!(error.contains("no copy to give"), "{error}");
}
