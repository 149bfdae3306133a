//! The kept engine alone: `lsm-tree` with its own table in memory, and a log that is only appended to and synced. What a store
//! on it costs before it does anything of its own; why the store keeps rows in maps instead.

use hotcount::like::batch::Batch;
use lsm_tree::{AbstractTree, Config, SeqNo, SequenceNumberCounter};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes in memory after which they become a table.
const MEMORY_BYTES: u64 = 64 << 20;

/// Fills a new tree in the directory `path`: a read and a write a like and a post, and one sync a batch. Answers how long that
/// took, after proving that the counts are those of the members.
pub(crate) fn fill(path: &Path, batches: &[Batch]) -> Duration {
    let numbers = SequenceNumberCounter::default();
    let tree =
        Config::new(path.join("tree"), numbers.clone(), SequenceNumberCounter::default()).open().expect("opened");
    let mut log = File::create(path.join("log")).expect("created");
    let (mut key, mut frame) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for batch in batches {
        let number = numbers.next();
        frame.clear();
        for likes in batch.by_post() {
            let mut delta = 0_i64;
            for like in likes {
                key.clear();
                key.push(b'm');
                key.extend_from_slice(like.post().as_bytes());
                key.push(0);
                key.extend_from_slice(like.user().as_bytes());
                if tree.get(&key, SeqNo::MAX).expect("read").is_none() {
                    delta += 1;
                    let value = [&like.order().to_le_bytes(), like.event_id().as_bytes()].concat();
                    frame.extend_from_slice(&key);
                    frame.extend_from_slice(&value);
                    tree.insert(key.as_slice(), value, number);
                }
            }
            if delta > 0 {
                let post = [b"c", likes[0].post().as_bytes()].concat();
                let count = tree.get(&post, SeqNo::MAX).expect("read").map_or(0, |value| count_of(&value));
                let value = (count + delta).to_le_bytes();
                frame.extend_from_slice(&value);
                tree.insert(post, value, number);
            }
        }
        log.write_all(&frame).expect("written");
        log.sync_data().expect("durable");
        if tree.active_memtable().size() >= MEMORY_BYTES {
            tree.flush_active_memtable(0).expect("flushed");
        }
    }
    let took = start.elapsed();
    let (mut members, mut counts) = (0, 0);
    for row in tree.iter(SeqNo::MAX, None) {
        let (key, value) = lsm_tree::Guard::into_inner(row).expect("read");
        match key[0] {
            b'm' => members += 1,
            _ => counts += count_of(&value),
        }
    }
    assert_eq!(members, counts);
    took
}

fn count_of(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}
