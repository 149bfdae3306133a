//! What can be read of a damaged store, and what cannot.

use super::files::{content, restore};
use super::{apply, count, open, try_open};
use hotcount::store::embedded::{Damage, Salvaged, compact, salvage};
use hotcount::store::{Access, Listing, Store};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BATCHES: u64 = 24;
const MEMBERS: usize = 40;

async fn salvaged(path: &Path, into: &Path) -> (Salvaged, Vec<Damage>) {
    let (path, into) = (path.to_owned(), into.to_owned());
    let mut damages = Vec::new();
    let done = tokio::task::spawn_blocking(move || {
        let salvaged = salvage(&path, &into, &mut |damage| damages.push(damage.clone()));
        salvaged.map(|salvaged| (salvaged, damages))
    });
    done.await.unwrap().expect("salvaged")
}

async fn assert_exact(store: &dyn Store) {
    for post in store.posts(Listing::Members, None, 1_000).await.unwrap() {
        count(store, &post).await;
    }
}

#[tokio::test]
async fn what_is_readable_is_saved_with_exact_counts_and_the_rest_is_named() {
    let directory = TempDir::new().unwrap();
    let (path, into) = (directory.path().join("store"), directory.path().join("into"));
    let store = open(&path, "?memory_bytes=30000").await;
    for number in 0..BATCHES {
        apply(&*store, number, MEMBERS).await;
    }
    let state = content(&path);
    store.close().await.unwrap();
    let all = BATCHES * (MEMBERS as u64 + 1);
    let is_table =
        |(name, bytes): &(&PathBuf, &Option<Vec<u8>>)| bytes.is_some() && name.starts_with("store/rows/tables");
    let tables: Vec<PathBuf> = state.iter().filter(is_table).map(|(name, _)| name.clone()).collect();
    let log = state.keys().rfind(|name| name.starts_with("store/log/")).unwrap().clone();
    let zeroed = |file: &Path, from: usize| {
        let mut state = state.clone();
        let bytes = state.get_mut(file).unwrap().as_mut().unwrap();
        let end = (from + 512).min(bytes.len());
        bytes[from..end].fill(0);
        (state, Some(file.to_owned()))
    };
    let without = |file: &str| {
        let mut state = state.clone();
        state.remove(Path::new(file)).unwrap();
        (state, Some(PathBuf::from(file)))
    };
    let mut states = vec![(state.clone(), None)];
    states.extend(tables.iter().map(|table| zeroed(table, 4_200)));
    states.push(zeroed(&log, 100));
    states.push(zeroed(&log, 2_000));
    states.push(without(log.to_str().unwrap()));
    states.push(without(tables[0].to_str().unwrap()));
    states.extend([without("store/rows/current"), without("store/format"), without("store/mark")]);
    let mut mattered = 0;
    for (state, damaged) in states {
        restore(&path, &state);
        let _ = std::fs::remove_dir_all(&into);
        let (saved, damages) = salvaged(&path, &into).await;
        assert!(content(&path) == state, "the damaged store was changed");
        assert_eq!(saved.damaged, damages.len() as u64);
        match &damaged {
            None => assert_eq!((saved.members, saved.damaged), (all, 0)),
            Some(file) => {
                let lists = ["store/rows/current", "store/format", "store/mark"].contains(&file.to_str().unwrap());
                let is_log = *file == log;
                // A table that a merge has just replaced lies there until it is removed, and holds nothing.
                let replaced = tables.contains(file) && saved.members == all && damages.is_empty();
                assert!(
                    if lists || replaced { saved.members == all } else { saved.members < all },
                    "{file:?}: {saved:?}"
                );
                let named = damages.iter().any(|damage| damage.file.starts_with(path.join("store")));
                assert!(named || replaced || file.ends_with("mark") || is_log, "{file:?}: {damages:?}");
                mattered += usize::from(tables.contains(file) && !replaced);
            }
        }
        let store = try_open(&into, "", Access::Change).await.expect("it opens");
        assert_exact(&*store).await;
        // What is missing counts again when it comes again, and nothing twice.
        for number in 0..BATCHES {
            apply(&*store, number + 1_000, 0).await;
            apply(&*store, number, MEMBERS).await;
        }
        assert_eq!(count(&*store, "busy").await, BATCHES as i64 * MEMBERS as i64, "{damaged:?}");
        assert_exact(&*store).await;
        store.close().await.unwrap();
    }
    assert!(mattered > 0, "no table of {} held anything", tables.len());
}

#[tokio::test]
async fn compacting_leaves_nothing_of_what_newer_rows_replaced() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_owned();
    let store = open(&path, "?memory_bytes=2000").await;
    for order in 1..30 {
        let like = hotcount::event::Like::new("p", "u", &format!("EVENT-{order}-ID"), order % 2 == 1, order);
        let key = hotcount::batch::BatchKey::from_random(order as u128);
        let batch = hotcount::batch::Batch::new(key, vec![like]);
        store.apply(&batch, hotcount::store::Attempt::first(0)).await.unwrap();
    }
    let in_use = tokio::task::spawn_blocking({
        let path = path.clone();
        move || compact(&path)
    });
    assert!(in_use.await.unwrap().unwrap_err().to_string().contains("another process has it open"));
    store.close().await.unwrap();
    tokio::task::spawn_blocking({
        let path = path.clone();
        move || compact(&path)
    })
    .await
    .unwrap()
    .unwrap();
    let files = content(&path);
    assert_eq!(super::files::holds(&files, b"EVENT-28-ID"), None);
    assert!(super::files::holds(&files, b"EVENT-29-ID").is_some());
    assert_eq!(count(&*open(&path, "").await, "p").await, 1);
}
