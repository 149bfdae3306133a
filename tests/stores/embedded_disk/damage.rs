//! Damage in what was synced: it is refused with the file and the place, or it does no harm. It is never a smaller count.

use super::files::{Content, content, content_at_rest, restore};
use super::{apply, count, open, try_open};
use hotcount::store::{Access, Listing, Store};
use std::path::Path;
use tempfile::TempDir;

/// All that the store counts.
async fn all(store: &dyn Store) -> Vec<(String, i64)> {
    let mut counts = Vec::new();
    for post in store.posts(Listing::Members, None, 1_000).await.expect("a page") {
        counts.push((post.clone(), count(store, &post).await));
    }
    counts
}

/// A store as a kill leaves it: tables, and a log behind them.
async fn killed(path: &Path, query: &str, batches: u64) -> (Content, Vec<(String, i64)>) {
    let store = open(path, query).await;
    for number in 0..batches {
        apply(&*store, number, 40).await;
    }
    let state = content_at_rest(path);
    let counts = all(&*store).await;
    store.close().await.unwrap();
    (state, counts)
}

/// Opens each damaged state. Answers how many were refused, and how many did no harm.
async fn judge(path: &Path, counts: &[(String, i64)], file: &Path, states: Vec<Content>) -> (usize, usize) {
    let (mut refused, mut harmless) = (0, 0);
    for state in states {
        restore(path, &state);
        match try_open(path, "", Access::Read).await {
            Ok(store) => {
                assert_eq!(all(&*store).await, counts, "{}: opened with other counts", file.display());
                harmless += 1;
            }
            Err(error) => {
                let error = error.to_string();
                let named =
                    error.contains(&path.join("store").display().to_string()) && error.contains("damaged at byte");
                assert!(named && error.contains("hotcount embedded salvage"), "{}: {error}", file.display());
                refused += 1;
            }
        }
        assert!(content(path) == state, "{}: reading changed a byte", file.display());
    }
    (refused, harmless)
}

/// The file with one bit changed in many places, with zeros over each of its pages, cut short, and gone.
fn damaged(state: &Content, file: &Path) -> Vec<Content> {
    let bytes = state[file].clone().unwrap();
    let with = |bytes: Option<Vec<u8>>| {
        let mut state = state.clone();
        match bytes {
            Some(bytes) => drop(state.insert(file.to_owned(), Some(bytes))),
            None => drop(state.remove(file)),
        }
        state
    };
    let mut states = vec![with(None)];
    if bytes.is_empty() {
        return states;
    }
    for at in (0..bytes.len()).step_by((bytes.len() / 40).max(1)) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        states.push(with(Some(bytes)));
    }
    for page in 0..bytes.len().div_ceil(4096) {
        let mut bytes = bytes.clone();
        let end = (page * 4096 + 4096).min(bytes.len());
        bytes[page * 4096..end].fill(0);
        states.push(with(Some(bytes)));
    }
    for end in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        states.push(with(Some(bytes[..end].to_vec())));
    }
    states
}

#[tokio::test]
async fn damage_anywhere_is_refused_with_file_and_place_or_does_no_harm() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    for (query, batches) in [("", 12), ("?memory_bytes=30000", 24)] {
        let _ = std::fs::remove_dir_all(&path);
        let (state, counts) = killed(&path, query, batches).await;
        let files: Vec<_> = state.iter().filter(|(_, bytes)| bytes.is_some()).map(|(name, _)| name.clone()).collect();
        let mut tables = 0;
        for file in files {
            let states = damaged(&state, &file);
            let tried = states.len();
            let (refused, harmless) = judge(&path, &counts, &file, states).await;
            let name = file.to_str().unwrap();
            // What nothing depends on: the lock, the mark beside a whole log, lists of tables that newer ones replaced.
            let folder = file.parent().unwrap();
            let current = state.get(&folder.join("current")).map(|bytes| bytes.as_ref().unwrap()[0]);
            let replaced = current.is_some_and(|n| name.contains("/v") && file != folder.join(format!("v{n}")));
            // A table that is being written, or that a merge has just replaced, is nobody's: without it nothing is missing.
            let mut without = state.clone();
            without.remove(&file);
            let nobodys =
                name.starts_with("store/rows/tables/") && judge(&path, &counts, &file, vec![without]).await == (0, 1);
            tables += usize::from(name.starts_with("store/rows/tables/") && !nobodys);
            let spare = name == "lock" || name == "store/mark" || replaced || nobodys;
            assert!(spare || refused > 0, "{name}: {harmless} of {tried} did no harm");
            if name.starts_with("store/log/") && state[&file].as_ref().unwrap().len() > 4096 {
                assert_eq!(harmless, 0, "{name}: of {tried}");
            }
        }
        assert!(query.is_empty() || tables > 0, "no table holds anything");
    }
}

/// The last batch has nobody after it in the log to vouch for it; the mark does.
#[tokio::test]
async fn one_changed_bit_in_the_last_batch_is_refused_too() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let (state, _) = killed(&path, "", 3).await;
    let log = state.keys().rfind(|name| name.starts_with("store/log/")).unwrap().clone();
    for from_end in [1, 100, 1_000] {
        let mut state = state.clone();
        let bytes = state.get_mut(&log).unwrap().as_mut().unwrap();
        let at = bytes.len() - from_end;
        bytes[at] ^= 4;
        restore(&path, &state);
        for access in [Access::Read, Access::Create] {
            let error = try_open(&path, "", access).await.err().expect("refused").to_string();
            assert!(error.contains("frame 3") && error.contains(log.to_str().unwrap()), "{error}");
        }
        assert!(content(&path) == state);
    }
}
