//! A loss of power: of what was not synced, any page may be missing, and the file may end anywhere.

use super::files::{Random, content, restore};
use super::{apply, count, open, try_open};
use hotcount::store::{Access, Depth};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What a disk writes as one.
const PAGE: usize = 4096;

/// The segment of the log that is written to.
fn segment(path: &Path) -> PathBuf {
    let mut segments: Vec<_> = std::fs::read_dir(path.join("store/log")).unwrap().map(|e| e.unwrap().path()).collect();
    segments.sort();
    segments.pop().unwrap()
}

#[tokio::test]
async fn whatever_pages_a_power_loss_takes_all_that_was_answered_is_there() {
    let directory = TempDir::new().unwrap();
    let (path, image) = (directory.path().join("store"), directory.path().join("image"));
    let mut random = Random(4);
    let store = open(&path, "").await;
    for answered in 1..=8_u64 {
        apply(&*store, answered - 1, 300).await;
        // Everything up to here was synced, for the batch was answered.
        let log = segment(&path);
        let (synced, before) = (std::fs::metadata(&log).unwrap().len() as usize, content(&path));
        // The next batch was written, and the power was lost while it was synced.
        apply(&*store, answered, 300).await;
        let written = std::fs::read(&log).unwrap();
        let name = log.strip_prefix(&path).unwrap();
        for round in 0..12 {
            let mut bytes = written.clone();
            bytes.truncate(synced + random.below(written.len() - synced + 1));
            let first = synced / PAGE;
            for page in first..bytes.len().div_ceil(PAGE) {
                if random.below(2) == 0 {
                    let end = (page * PAGE + PAGE).min(bytes.len());
                    bytes[(page * PAGE).max(synced)..end].fill(0);
                }
            }
            let mut state = before.clone();
            state.insert(name.to_owned(), Some(bytes));
            // The mark is written without a sync: it may be any of the older ones, or torn.
            let mark = state.get_mut(Path::new("store/mark")).unwrap().as_mut().unwrap();
            match round % 3 {
                0 => mark.clear(),
                1 => mark.truncate(random.below(mark.len() + 1)),
                _ => {}
            }
            restore(&image, &state);
            let whole = {
                let read = try_open(&image, "", Access::Read).await.expect("it opens for reading");
                count(&*read, "busy").await
            };
            let opened = open(&image, "").await;
            let kept = count(&*opened, "busy").await;
            assert_eq!(kept, whole);
            let answered = answered as i64;
            assert!([300 * answered, 300 * (answered + 1)].contains(&kept), "{kept} of {answered} batches");
            // It goes on, and is whole after that too.
            apply(&*opened, 100, 10).await;
            opened.close().await.unwrap();
            let read = try_open(&image, "", Access::Read).await.expect("it opens again");
            assert_eq!(count(&*read, "busy").await, kept + 10);
            let tally = read.tally("post-100", Depth::Shards).await.unwrap();
            assert_eq!(tally.count, 1);
        }
    }
}
