//! The real binary: drift that is found and corrected, and the questions that are asked before.

use crate::process::{Worker, run, stderr, stdout};
#[cfg(feature = "firestore")]
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{Attempt, Options, Quarantined, Repaired, Store};
use serde_json::{Value, json};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
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
        hotcount::connect::store(&self.store, &Options::default()).await.unwrap()
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
            let mut wrong = store.audit(post).await.unwrap();
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
    assert_eq!(*lines(&found).last().unwrap(), json!({"posts": 3, "members": 15, "drifting": 2, "unreadable": 0}));

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

#[cfg(feature = "firestore")]
#[tokio::test(flavor = "multi_thread")]
async fn firestore_is_repaired_and_its_poison_purged_beside_a_running_worker() {
    use crate::support::emulators::{firestore, unique};
    let Some(host) = firestore() else { return };
    let url = format!("firestore://{}?emulator={host}", unique("repair-cli"));
    let worker = Worker::start(&["--store", &url]);
    let post = async |body: String| {
        let events = format!("{}/v1/events", worker.address);
        reqwest::Client::new().post(events).body(body).send().await.unwrap().status().as_u16()
    };
    let like = |user: u32| {
        let at = "2026-01-01T00:00:00Z";
        json!({"eventId": "e", "type": "like.added", "postId": "p", "userId": user, "occurredAt": at}).to_string()
    };
    assert_eq!((post(like(1)).await, post(like(2)).await, post("rubbish".to_owned()).await), (204, 204, 400));
    let store = hotcount::connect::store(&url, &Options::default()).await.unwrap();
    let mut wrong = store.audit("p").await.unwrap();
    wrong.tally.count += 9;
    store.repair("p", &wrong).await.unwrap();

    let fixed = run(&["verify", "--fix", "--yes", "--deep", "--json", "--store", &url]);
    assert_eq!(fixed.status.code(), Some(0), "{}", stderr(&fixed));
    assert_has(&lines(&fixed)[0], json!({"post": "p", "count": -7, "drift": -9, "corrected": 9}));
    assert_eq!(post(like(3)).await, 204);
    let counted = run(&["count", "p", "--verify", "--json", "--store", &worker.address]);
    assert_has(&lines(&counted)[0], json!({"count": 3, "members": 3, "drift": 0}));

    let replayed = run(&["quarantine", "replay", "--all", "--yes", "--json", "--store", &url]);
    assert_eq!(replayed.status.code(), Some(1), "{}", stderr(&replayed));
    assert_has(lines(&replayed).last().unwrap(), json!({"counted": 0, "still_poison": 1}));
    let purged = run(&["quarantine", "purge", "--all", "--yes", "--json", "--store", &url]);
    assert_eq!(lines(&purged).last().unwrap(), &json!({"deleted": 1, "missing": 0}), "{}", stderr(&purged));
    assert!(lines(&run(&["quarantine", "list", "--json", "--store", &worker.address])).is_empty());
}

/// A store that has counted one like and quarantined three deliveries: one that has only a version, rubbish, and one from
/// the future.
fn quarantined() -> (Place, [String; 3]) {
    let place = Place::new();
    let file = place._directory.path().join("events.jsonl");
    let only_a_version = event(2, &json!({"version": 7}));
    let from_the_future = event(3, &json!({"occurredAt": "2199-01-01T00:00:00Z", "version": 1}));
    let fine = event(1, &json!({"occurredAt": "2026-01-01T00:00:00Z"}));
    std::fs::write(&file, [fine.as_str(), &only_a_version, "rubbish", &from_the_future].join("\n")).unwrap();
    assert!(run(&["replay", file.to_str().unwrap(), "--store", &place.store]).status.success());
    let listed = lines(&run(&["quarantine", "list", "--json", "--store", &place.store]));
    let id_of = |reason: &str| {
        let entry = listed.iter().find(|entry| entry["reason"].as_str().unwrap().starts_with(reason));
        entry.unwrap_or_else(|| panic!("{reason} in {listed:?}"))["id"].as_str().unwrap().to_owned()
    };
    let ids = ["occurredAt: missing", "payload: ", "occurredAt: more than ten minutes"].map(id_of);
    (place, ids)
}

fn event(user: u32, rest: &Value) -> String {
    let mut event = json!({"eventId": "e", "type": "like.added", "postId": "p", "userId": user});
    event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    event.to_string()
}

/// Keeps likes in the quarantine, as a version did that could not read them.
fn quarantine_likes(place: &Place, users: std::ops::Range<u32>) -> Vec<String> {
    let poison = users.map(|user| Quarantined {
        id: format!("{user:032x}"),
        reason: "occurredAt: not understood".to_owned(),
        data: event(user, &json!({"occurredAt": "2026-01-01T00:00:00Z"})).into(),
        attributes: Vec::new(),
        source: "test:".to_owned(),
        message_id: None,
        published_at: None,
        received_at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        delivery_attempt: None,
    });
    let poison: Vec<_> = poison.collect();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = hotcount::connect::store(&place.store, &Options::default()).await.unwrap();
        store.quarantine(&poison).await.unwrap();
        store.close().await.unwrap();
    });
    poison.into_iter().map(|entry| entry.id).collect()
}

fn quarantine(place: &Place, arguments: &[&str]) -> Output {
    run(&[&["quarantine"], arguments, &["--store", &place.store, "--json"]].concat())
}

/// The ids that are quarantined.
fn listed(place: &Place) -> Vec<String> {
    lines(&quarantine(place, &["list"])).iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
}

fn counted(place: &Place, post: &str) -> Value {
    lines(&run(&["count", post, "--verify", "--json", "--store", &place.store])).remove(0)
}

#[test]
fn a_replay_of_the_quarantine_counts_what_can_be_counted_now_and_keeps_the_rest() {
    let (place, [only_a_version, rubbish, from_the_future]) = quarantined();
    let mut poison = vec![only_a_version.clone(), rubbish, from_the_future];
    poison.sort();
    let fixed = quarantine_likes(&place, 4..6);
    let before = listed(&place);

    let dry = quarantine(&place, &["replay", "--all", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(1), "{}", stderr(&dry));
    assert_has(lines(&dry).last().unwrap(), json!({"would_count": 2, "counted": 0, "still_poison": 3}));
    assert_eq!(listed(&place), before);
    assert_has(&counted(&place, "p"), json!({"count": 1}));

    let unasked = quarantine(&place, &["replay", "--all"]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(stderr(&unasked).contains("give --yes"), "{}", stderr(&unasked));

    let another_order = quarantine(&place, &["replay", "--all", "--yes", "--order", "version"]);
    assert_eq!(another_order.status.code(), Some(2));
    let said = stderr(&another_order);
    assert!(said.contains("--order occurred-at") && said.contains("--order version"), "{said}");
    assert_eq!(listed(&place), before);

    let nowhere = "00".repeat(16);
    let one = quarantine(&place, &["replay", &fixed[0], &nowhere, "--yes"]);
    assert_eq!(one.status.code(), Some(1), "{}", stderr(&one));
    assert_has(lines(&one).last().unwrap(), json!({"counted": 1, "still_poison": 0, "missing": 1}));
    assert_has(&counted(&place, "p"), json!({"count": 2, "members": 2, "drift": 0}));

    let all = quarantine(&place, &["replay", "--all", "--yes"]);
    assert_eq!(all.status.code(), Some(1), "{}", stderr(&all));
    let rows = lines(&all);
    assert_has(rows.last().unwrap(), json!({"counted": 1, "still_poison": 3, "left": 0, "missing": 0}));
    let row = rows.iter().find(|row| row["id"] == only_a_version.as_str()).unwrap();
    assert_has(row, json!({"outcome": "still_poison", "reason": "occurredAt: missing, and it is the order"}));
    assert_eq!(listed(&place), poison);
    assert_has(&counted(&place, "p"), json!({"count": 3, "members": 3, "drift": 0}));
    let again = quarantine(&place, &["replay", &fixed[1], "--yes"]);
    assert_has(&lines(&again)[0], json!({"id": fixed[1], "outcome": "missing"}));
}

#[test]
fn a_purge_deletes_what_it_is_told_to_and_nothing_else() {
    let (place, [only_a_version, rubbish, from_the_future]) = quarantined();
    let dry = quarantine(&place, &["purge", "--all", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(0), "{}", stderr(&dry));
    assert_has(lines(&dry).last().unwrap(), json!({"would_delete": 3, "missing": 0}));
    let unasked = quarantine(&place, &["purge", &rubbish]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(stderr(&unasked).contains("deletes quarantined deliveries for good"), "{}", stderr(&unasked));
    assert_eq!(listed(&place).len(), 3);

    let one = quarantine(&place, &["purge", &rubbish, "--yes"]);
    assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
    let mut left = vec![only_a_version, from_the_future];
    left.sort();
    assert_eq!(listed(&place), left);
    let again = quarantine(&place, &["purge", &rubbish, "--yes"]);
    assert_eq!(again.status.code(), Some(1));
    assert_has(lines(&again).last().unwrap(), json!({"deleted": 0, "missing": 1}));
    assert_eq!(quarantine(&place, &["purge", "--all", "--yes"]).status.code(), Some(0));
    assert!(listed(&place).is_empty());
    assert_has(&counted(&place, "p"), json!({"count": 1}));
}

#[test]
fn a_quarantine_command_names_entries_and_a_store_that_it_may_change() {
    for command in ["replay", "purge"] {
        let nothing = run(&["quarantine", command, "--store", "memory:", "--yes"]);
        assert_eq!(nothing.status.code(), Some(2));
        assert!(stderr(&nothing).contains("<ID>"), "{}", stderr(&nothing));
        let both = run(&["quarantine", command, "00", "--all", "--store", "memory:", "--yes"]);
        assert_eq!(both.status.code(), Some(2));
        let worker = run(&["quarantine", command, "--all", "--yes", "--store", "http://127.0.0.1:8080"]);
        assert_eq!(worker.status.code(), Some(2));
        assert!(stderr(&worker).contains("name its store in --store"), "{}", stderr(&worker));
    }
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
