//! The very first open, and what it may leave behind when it is cut short.

use super::files::{content, restore};
use super::{apply, count, open, try_open};
use hotcount::store::Access;
use tempfile::TempDir;

/// A new store is made beside its place and renamed, so whatever a kill or a full disk leaves of it is in `new`: each file
/// may be there whole, in part, empty, or not at all.
#[tokio::test]
async fn a_first_open_that_was_cut_short_anywhere_does_not_stop_the_next() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("some/where/store");
    open(&path, "").await.close().await.unwrap();
    let whole = content(&path);
    let in_new = |name: &std::path::Path| match name.strip_prefix("store") {
        Ok(rest) => std::path::Path::new("new").join(rest),
        Err(_) => name.to_owned(),
    };
    let made: Vec<_> = whole.iter().map(|(name, bytes)| (in_new(name), bytes.clone())).collect();
    let mut states = vec![Default::default()];
    for upto in 1..=made.len() {
        for part in [0, 1, 2] {
            let mut state: std::collections::BTreeMap<_, _> = made[..upto].iter().cloned().collect();
            if let Some(bytes) = state.get_mut(&made[upto - 1].0).and_then(Option::as_mut) {
                bytes.truncate(bytes.len() * part / 2);
            }
            states.push(state);
        }
    }
    for state in states {
        restore(&path, &state);
        let store = open(&path, "").await;
        apply(&*store, 1, 3).await;
        store.close().await.unwrap();
        let store = try_open(&path, "", Access::Read).await.expect("it is there");
        assert_eq!(count(&*store, "busy").await, 3, "{:?}", state.keys());
        assert!(!path.join("new").exists());
    }
}

#[tokio::test]
async fn who_reads_or_changes_makes_no_store_and_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("mistyped");
    for access in [Access::Read, Access::Change] {
        let error = try_open(&path, "", access).await.err().expect("there is none").to_string();
        assert!(error.contains("there is no store") && error.contains("mistyped"), "{error}");
        std::fs::create_dir_all(&path).unwrap();
        let error = try_open(&path, "", access).await.err().expect("there is none").to_string();
        assert!(error.contains("there is no store"), "{error}");
        assert!(content(&path).is_empty());
        std::fs::remove_dir(&path).unwrap();
    }
}

#[tokio::test]
async fn a_store_that_is_read_is_not_changed_by_a_byte_and_cannot_be_written() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let store = open(&path, "?memory_bytes=20000").await;
    for number in 0..30 {
        apply(&*store, number, 20).await;
    }
    // As a crash leaves it: nothing was closed, and the log ends in what was never finished.
    let mut crashed = content(&path);
    let log = crashed.keys().rfind(|name| name.starts_with("store/log")).unwrap().clone();
    crashed.get_mut(&log).unwrap().as_mut().unwrap().extend_from_slice(&[7; 100]);
    // And a table that no list has yet.
    crashed.insert("store/rows/tables/4711".into(), Some(vec![1, 2, 3]));
    store.close().await.unwrap();
    let closed = content(&path);
    for state in [crashed, closed] {
        restore(&path, &state);
        for _ in 0..2 {
            let store = try_open(&path, "", Access::Read).await.expect("it opens");
            let again = try_open(&path, "", Access::Read).await.expect("two may read at once");
            assert_eq!((count(&*store, "busy").await, count(&*again, "post-7").await), (600, 1));
            let error = store.apply(&super::batch(99, 1), hotcount::store::Attempt::first(0)).await.unwrap_err();
            assert!(error.to_string().contains("opened for reading alone"), "{error}");
            let error = try_open(&path, "", Access::Change).await.err().expect("it is being read").to_string();
            assert!(error.contains("another process has it open"), "{error}");
            store.close().await.unwrap();
            again.close().await.unwrap();
        }
        assert_eq!(content(&path).keys().collect::<Vec<_>>(), state.keys().collect::<Vec<_>>());
        assert!(content(&path) == state, "a byte changed");
    }
    let store = try_open(&path, "", Access::Change).await.expect("it opens");
    assert_eq!(count(&*store, "busy").await, 600);
}
