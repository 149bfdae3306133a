//! What can be read of a damaged store, and what cannot.

use super::files::{Content, content, content_at_rest, restore};
use super::{apply, count, open, try_open};
use hotcount::store::embedded::{Damage, Salvaged, compact, salvage};
use hotcount::store::{Access, Listing, Store};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BATCHES: u64 = 24;
const MEMBERS: usize = 40;
const TABLES: &str = "store/rows/tables";
const LOG: &str = "store/log";

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

/// The files of a store that holds all batches as tables, or without a table of them in its log, and the names of these.
async fn files_of(path: &Path, place: &str) -> (Content, Vec<PathBuf>) {
    let in_tables = place == TABLES;
    let store = open(path, if in_tables { "?memory_bytes=30000" } else { "" }).await;
    for number in 0..BATCHES {
        apply(&*store, number, MEMBERS).await;
    }
    let killed = content_at_rest(path);
    store.close().await.unwrap();
    let files = if in_tables { content(path) } else { killed };
    std::fs::remove_dir_all(path).unwrap();
    let is_there = |(name, bytes): &(&PathBuf, &Option<Vec<u8>>)| bytes.is_some() && name.starts_with(place);
    let there = files.iter().filter(is_there).map(|(name, _)| name.clone()).collect();
    (files, there)
}

fn zeroed(files: &Content, file: &Path, from: usize) -> (Content, Option<PathBuf>) {
    let mut files = files.clone();
    let bytes = files.get_mut(file).unwrap().as_mut().unwrap();
    let end = (from + 512).min(bytes.len());
    bytes[from..end].fill(0);
    (files, Some(file.to_owned()))
}

fn without(files: &Content, file: &Path) -> (Content, Option<PathBuf>) {
    let mut files = files.clone();
    files.remove(file).unwrap();
    (files, Some(file.to_owned()))
}

#[tokio::test]
async fn what_is_readable_is_saved_with_exact_counts_and_the_rest_is_named() {
    let directory = TempDir::new().unwrap();
    let (path, into) = (directory.path().join("store"), directory.path().join("into"));
    let all = BATCHES * (MEMBERS as u64 + 1);
    let (in_tables, tables) = files_of(&path, TABLES).await;
    let (in_log, logs) = files_of(&path, LOG).await;
    let [log] = &logs[..] else { panic!("{logs:?}") };
    let lists = ["store/rows/current", "store/format", "store/mark"].map(Path::new);
    let mut cases = vec![(in_tables.clone(), None), (in_log.clone(), None)];
    cases.extend(tables.iter().map(|table| zeroed(&in_tables, table, 4_200)));
    cases.push(without(&in_tables, &tables[0]));
    cases.extend([zeroed(&in_log, log, 100), zeroed(&in_log, log, 2_000), without(&in_log, log)]);
    cases.extend(lists.iter().map(|list| without(&in_tables, list)));
    for (state, damaged) in cases {
        restore(&path, &state);
        let _ = std::fs::remove_dir_all(&into);
        let (saved, damages) = salvaged(&path, &into).await;
        assert!(content(&path) == state, "the damaged store was changed");
        assert_eq!(saved.damaged, damages.len() as u64);
        match &damaged {
            None => assert_eq!((saved.members, saved.damaged), (all, 0)),
            Some(file) => {
                let is_list = lists.contains(&file.as_path());
                assert!(if is_list { saved.members == all } else { saved.members < all }, "{file:?}: {saved:?}");
                let named = damages.iter().any(|damage| damage.file.starts_with(path.join("store")));
                assert!(named || file.ends_with("mark") || file == log, "{file:?}: {damages:?}");
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
}

#[tokio::test]
async fn compacting_leaves_nothing_of_what_newer_rows_replaced() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_owned();
    let store = open(&path, "?memory_bytes=2000").await;
    for order in 1..30 {
        let like = hotcount::like::event::Like::new("p", "u", &format!("EVENT-{order}-ID"), order % 2 == 1, order);
        let key = hotcount::like::batch::BatchKey::from_random(order as u128);
        let batch = hotcount::like::batch::Batch::new(key, vec![like]);
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
