//! Rows that cannot be read, and rows of a newer version: each concerns its own like, post or entry alone.

#[allow(dead_code, reason = "the store uses all of it")]
#[path = "../../../src/store/embedded/frame.rs"]
mod frame;

use super::{add, apply, batch, count, open};
use frame::{Operation, Tree};
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::store::{Attempt, Depth, ErrorClass, LAYOUT, PageSize, Settings, StoreError, StoredFault, Undecidable};
use std::path::Path;
use tempfile::TempDir;

/// Writes rows into a closed store, as another version or a hand could have.
fn plant(path: &Path, rows: &[(Tree, &[u8], &[u8])]) {
    let format = std::fs::read_to_string(path.join("store/format")).unwrap();
    let salt = format.lines().find_map(|line| line.strip_prefix("salt ")).unwrap();
    let salt = u64::from_str_radix(salt, 16).unwrap();
    let log = std::fs::read_dir(path.join("store/log")).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let first: u64 = log.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let (mut at, mut last) = (0, first - 1);
    while let Some((place, frame)) = frame::next_frame(&bytes, at, salt, last) {
        (at, last) = (place + frame.bytes(), frame.number);
    }
    let at = frame::begin(&mut bytes);
    for &(tree, key, value) in rows {
        frame::push_operation(&mut bytes, Operation { tree, key, value: Some(value) });
    }
    frame::finish(&mut bytes, at, salt, last + 1, last);
    std::fs::write(log, bytes).unwrap();
}

fn undecidable(error: StoreError) -> Vec<Undecidable> {
    match error.class {
        ErrorClass::Undecidable(likes) => {
            assert!(error.message.contains(&likes[0].document), "{}", error.message);
            likes
        }
        other => panic!("{other:?}: {}", error.message),
    }
}

#[tokio::test]
async fn a_membership_that_cannot_be_read_concerns_its_own_like_alone() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), "").await;
    apply(&*store, 1, 5).await;
    store.close().await.unwrap();
    plant(directory.path(), &[(Tree::Rows, b"mbusy\0torn", &[1, 1, 0]), (Tree::Rows, b"mbusy\0later", &[9, 1, 2, 3])]);
    // Once from memory, once from tables.
    for round in 0..2_i64 {
        let store = open(directory.path(), "").await;
        let order = 100 + round;
        let likes = vec![
            add("busy", "a", order),
            add("busy", "later", order),
            add("busy", "torn", order),
            add("x", "a", order),
        ];
        let mixed = Batch::new(BatchKey::from_random(1_000 + round as u128), likes);
        let likes = undecidable(store.apply(&mixed, Attempt::first(1)).await.unwrap_err());
        let found: Vec<_> = likes.iter().map(|like| (like.place, like.document.as_str())).collect();
        let name = |user: &str| format!("the membership of user {user:?} of post \"busy\"");
        assert_eq!(found, [(1, name("later").as_str()), (2, name("torn").as_str())]);
        assert_eq!(likes[0].fault, StoredFault::Newer(9));
        assert!(matches!(&likes[1].fault, StoredFault::Unreadable(_)));
        // Nothing was written, and the others go on without them, the same post included.
        assert_eq!(store.membership("x", "a").await.unwrap().map(|like| like.order()), (round > 0).then_some(100));
        let rest = Batch::new(
            BatchKey::from_random(2_000 + round as u128),
            vec![add("busy", "a", order), add("x", "a", order)],
        );
        assert_eq!(store.apply(&rest, Attempt::first(1)).await.unwrap().applied, 2);
        assert_eq!(count(&*store, "x").await, 1);
        // Reading names what cannot be read, for that post alone.
        assert_eq!(store.tally("busy", Depth::Shards).await.unwrap().count, 6);
        let named = undecidable(store.tally("busy", Depth::ShardsAndMembers).await.unwrap_err());
        assert_eq!((named.len(), named[0].place), (1, 0));
        assert_eq!(undecidable(store.audit("busy").await.unwrap_err()).len(), 1);
        assert_eq!(undecidable(store.membership("busy", "torn").await.unwrap_err())[0].document, name("torn"));
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_counter_that_cannot_be_read_concerns_the_likes_of_its_post_and_shard_alone() {
    let directory = TempDir::new().unwrap();
    open(directory.path(), "").await.close().await.unwrap();
    plant(directory.path(), &[(Tree::Rows, b"ctorn\0\x01\x00\x01", &[1, 2])]);
    let store = open(directory.path(), "").await;
    let likes = vec![add("other", "a", 1), add("torn", "a", 1), add("torn", "b", 1)];
    let both = Batch::new(BatchKey::from_random(1), likes);
    let found = undecidable(store.apply(&both, Attempt::first(1)).await.unwrap_err());
    assert_eq!(found.iter().map(|like| like.place).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(found[0].document, "shard 1 of post \"torn\"");
    assert_eq!(undecidable(store.tally("torn", Depth::Shards).await.unwrap_err()).len(), 1);
    assert_eq!(store.apply(&both, Attempt::first(2)).await.unwrap().applied, 3, "another shard can be read");
    assert_eq!(store.tally("other", Depth::Shards).await.unwrap().count, 1);
}

#[tokio::test]
async fn an_entry_of_the_quarantine_that_cannot_be_read_is_listed_beside_the_others() {
    let directory = TempDir::new().unwrap();
    open(directory.path(), "").await.close().await.unwrap();
    plant(
        directory.path(),
        &[(Tree::Quarantine, b"like-counter\0bb", b"\x01torn"), (Tree::Quarantine, b"like-counter\0cc", b"\x03later")],
    );
    let store = open(directory.path(), "").await;
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = store.quarantined(after.as_deref(), PageSize::entries(1)).await.unwrap();
        assert!(page.entries.len() + page.unreadable.len() <= 1);
        listed.extend(page.unreadable);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), 2);
    assert_eq!((listed[1].0.as_str(), &listed[1].1), ("cc", &StoredFault::Newer(3)));
    assert_eq!(undecidable(store.find_quarantined("bb").await.unwrap_err())[0].place, 0);
    store.discard(&["bb".to_owned(), "cc".to_owned()]).await.unwrap();
    assert!(store.quarantined(None, PageSize::entries(9)).await.unwrap().unreadable.is_empty());
}

#[tokio::test]
async fn what_a_newer_version_added_to_a_row_is_kept_when_the_row_is_written_again() {
    let directory = TempDir::new().unwrap();
    open(directory.path(), "").await.close().await.unwrap();
    let member = [&[1, 1][..], &5_i64.to_le_bytes(), &3_u16.to_le_bytes(), b"oldADDED-TO-MEMBER"].concat();
    let counter = [&[1][..], &1_i64.to_le_bytes(), b"ADDED-TO-COUNTER"].concat();
    plant(directory.path(), &[(Tree::Rows, b"mp\0u", &member), (Tree::Rows, b"cp\0\x01\x00\x01", &counter)]);
    let store = open(directory.path(), "").await;
    assert_eq!(count(&*store, "p").await, 1);
    let removed = hotcount::like::event::Like::new("p", "u", "new", false, 9);
    store.apply(&Batch::new(BatchKey::from_random(1), vec![removed]), Attempt::first(1)).await.unwrap();
    assert_eq!(count(&*store, "p").await, 0);
    store.close().await.unwrap();
    let log = std::fs::read_dir(directory.path().join("store/log")).unwrap().map(|e| e.unwrap().path()).max().unwrap();
    let log = String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned();
    assert!(log.contains("newADDED-TO-MEMBER") && log.contains("ADDED-TO-COUNTER"));
}

#[tokio::test]
async fn the_first_settings_are_kept_for_each_consumer_and_a_probe_writes_only_its_key() {
    let directory = TempDir::new().unwrap();
    let settings = |order: &str| Settings { order: order.to_owned(), identity: "member".to_owned(), layout: LAYOUT };
    for round in 0..2 {
        let store = open(directory.path(), "").await;
        let given = if round == 0 { settings("version") } else { settings("occurred-at") };
        assert_eq!(store.agree(&given).await.unwrap(), settings("version"));
        let key = BatchKey::from_random(7);
        store.probe(key).await.unwrap();
        assert_eq!(
            store.tally("p", Depth::ShardsAndMembers).await.unwrap(),
            hotcount::store::Tally { members: Some(0), ..Default::default() }
        );
        // The key is there: a batch under it is answered as committed.
        let under = Batch::new(key, batch(1, 1).likes().to_vec());
        assert!(store.apply(&under, Attempt::first(1)).await.unwrap().replayed);
        store.close().await.unwrap();
    }
}
