//! The real binary: drift that is found and corrected, and the questions that are asked before.
#![cfg(all(feature = "cli", feature = "embedded"))]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

#[path = "support/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]
mod process;

use hotcount::batch::{Batch, BatchKey};
use hotcount::event::Like;
use hotcount::store::{self, Attempt, Options, Repaired, Store};
use process::{Worker, run, stderr, stdout};
use serde_json::{Value, json};
use std::process::Output;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory with an embedded store, which is nobody's until somebody opens it.
struct Place {
    _directory: TempDir,
    store: String,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = format!("embedded:{}", directory.path().join("data").display());
        Self { _directory: directory, store }
    }

    async fn open(&self) -> Arc<dyn Store> {
        store::connect(&self.store, &Options::default()).await.unwrap()
    }

    /// Posts of five members each, whose shards say so much more.
    async fn with_drift(posts: &[(&str, i64)]) -> Self {
        let place = Self::new();
        let store = place.open().await;
        for (n, (post, drift)) in posts.iter().enumerate() {
            let likes = (0..5).map(|user| Like::new(post, &user.to_string(), "e", true, 1)).collect();
            let batch = Batch::new(BatchKey::from_random(n as u128), likes);
            store.apply(&batch, Attempt::first(0)).await.unwrap();
            // A repair that believes a wrong reading makes a drift.
            let mut wrong = store.examine(post).await.unwrap();
            wrong.tally.count -= drift;
            assert_eq!(store.repair(post, &wrong).await.unwrap(), Repaired::Done);
        }
        store.close().await.unwrap();
        place
    }
}

fn lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// The fields of `row` that `expected` has, which must be the same.
fn assert_has(row: &Value, expected: Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{name} of {row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_shown_first_and_corrected_when_told_to() {
    let place = Place::with_drift(&[("a", 2), ("b", 0), ("c", -3)]).await;
    let verify = |flags: &[&str]| run(&[&["verify", "--store", &place.store, "--json"], flags].concat());

    let found = verify(&[]);
    assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
    assert_eq!(*lines(&found).last().unwrap(), json!({"posts": 3, "members": 15, "drifting": 2}));

    let dry = verify(&["--fix", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(1), "{}", stderr(&dry));
    assert_has(&lines(&dry)[0], json!({"post": "a", "drift": 2, "would_correct": -2, "corrected": 0}));
    assert_has(&lines(&dry)[3], json!({"drifting": 2, "corrected": 0, "remaining": 2}));

    let unasked = verify(&["--fix"]);
    assert_eq!(unasked.status.code(), Some(2), "nobody is there to be asked");
    assert!(stderr(&unasked).contains("give --yes to do it, or --dry-run"), "{}", stderr(&unasked));
    assert!(stdout(&unasked).is_empty());

    let fixed = verify(&["--fix", "--yes"]);
    assert_eq!(fixed.status.code(), Some(0), "{}", stderr(&fixed));
    let rows = lines(&fixed);
    assert_has(&rows[0], json!({"post": "a", "count": 7, "drift": 2, "corrected": -2, "refused": 0}));
    assert_has(&rows[0]["now"], json!({"post": "a", "count": 5, "members": 5, "drift": 0}));
    assert_has(&rows[1], json!({"post": "b", "count": 5, "drift": 0}));
    assert_has(&rows[2], json!({"post": "c", "count": 2, "drift": -3, "corrected": 3}));
    assert_has(&rows[3], json!({"posts": 3, "drifting": 2, "corrected": 2, "remaining": 0}));

    let again = verify(&["--fix", "--yes", "--deep"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_has(lines(&again).last().unwrap(), json!({"posts": 3, "drifting": 0, "corrected": 0, "remaining": 0}));
    assert_eq!(verify(&[]).status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_is_repaired_over_http_while_it_counts() {
    let place = Place::with_drift(&[("a", 4)]).await;
    let worker = Worker::start(&["--store", &place.store]);
    let sending = {
        let events = format!("{}/v1/events", worker.address);
        tokio::spawn(async move {
            for user in 100..140 {
                let event = json!({"eventId": "e", "type": "like.added", "postId": "a", "userId": user,
                                   "occurredAt": "2026-01-01T00:00:00Z"});
                let sent = reqwest::Client::new().post(&events).body(event.to_string()).send().await.unwrap();
                assert_eq!(sent.status(), 204);
            }
        })
    };
    let address = worker.address.clone();
    let fixed = tokio::task::spawn_blocking(move || run(&["verify", "--fix", "--yes", "--store", &address])).await;
    let fixed = fixed.unwrap();
    sending.await.unwrap();
    assert_eq!(fixed.status.code(), Some(0), "{}", stderr(&fixed));
    assert!(stdout(&fixed).contains("corrected by -4"), "{}", stdout(&fixed));
    assert!(stderr(&fixed).contains("1 with drift, 1 corrected, 0 left with drift"), "{}", stderr(&fixed));
    let counted = run(&["count", "a", "--verify", "--json", "--store", &worker.address]);
    assert_has(&lines(&counted)[0], json!({"count": 45, "members": 45, "drift": 0}));
}

#[test]
fn flags_of_a_fix_are_refused_without_it() {
    for flag in ["--yes", "--dry-run"] {
        let output = run(&["verify", flag, "--store", "memory:"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("belong to --fix"), "{}", stderr(&output));
    }
    assert!(stdout(&run(&["verify", "--help"])).contains("Exit codes: 0 no drift, or all of it corrected"));
}
