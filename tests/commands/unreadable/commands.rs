//! `count`, `verify` and `quarantine`, on the store itself and through a worker.

use super::*;
use crate::process::{Worker, run, stderr, stdout};
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{Attempt, Quarantined};
use serde_json::Value as Json;
use std::process::Output;
use std::time::{Duration, UNIX_EPOCH};

fn lines(output: &Output) -> Vec<Json> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// Runs a command and asserts its exit code.
fn expect(code: i32, arguments: &[&str]) -> Output {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}:\n{}{}", stdout(&output), stderr(&output));
    output
}

async fn add(store: &Arc<dyn Store>, post: &str, members: u32) {
    let likes = (0..members).map(|n| Like::new(post, &n.to_string(), "e", true, 1)).collect();
    let batch = Batch::new(BatchKey::from_random(rand::random()), likes);
    store.apply(&batch, Attempt::first(1)).await.expect("it is applied");
}

/// Posts `a` and `c` are healthy; a shard of `b` has no count.
async fn with_a_spoiled_shard(name: &str) -> Option<Place> {
    let place = Place::new(name)?;
    let store = place.store().await;
    for (post, members) in [("a", 2), ("b", 3), ("c", 4)] {
        add(&store, post, members).await;
    }
    place.change(&place.address.shard("b", "9"), &[("note", Some(ValueType::BooleanValue(true)))]).await;
    Some(place)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_cannot_be_read_is_a_finding_that_names_the_document_and_the_others_are_shown() {
    let Some(place) = with_a_spoiled_shard("spoiled-post").await else { return };
    let worker = Worker::start(&["--store", &place.url]);
    for store in [&place.url, &worker.address] {
        let shown: [&[&str]; 5] = [
            &["count", "a", "b", "c", "--store", store],
            &["count", "a", "b", "c", "--verify", "--store", store],
            &["verify", "--store", store],
            &["verify", "--deep", "--store", store],
            &["verify", "--fix", "--yes", "--store", store],
        ];
        for arguments in shown {
            let text = stdout(&expect(1, arguments));
            let row = |post: &str| text.lines().find(|line| line.starts_with(&format!("{post} "))).unwrap_or_default();
            assert!(row("a").contains(" 2 ") && row("c").contains(" 4 "), "{text}");
            let named = row("b").contains("posts/b/hotcountShards/9") && row("b").contains("'count' is missing");
            assert!(named, "{text}");

            let json = lines(&expect(1, &[arguments, &["--json"]].concat()));
            let posts: Vec<&Json> = json.iter().filter(|line| line["post"].is_string()).collect();
            assert_eq!(posts.iter().map(|line| &line["post"]).collect::<Vec<_>>(), ["a", "b", "c"]);
            assert_eq!((&posts[0]["count"], &posts[2]["count"]), (&2.into(), &4.into()));
            assert_eq!(posts[1]["unreadable"][0]["document"], "posts/b/hotcountShards/9", "{json:?}");
            assert!(posts[1]["error"].is_string() && posts[1]["count"].is_null(), "{json:?}");
            if arguments[0] == "verify" {
                let sum = json.last().unwrap();
                assert_eq!((&sum["posts"], &sum["unreadable"], &sum["drifting"]), (&3.into(), &1.into(), &0.into()));
            }
        }
    }
    worker.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_corrected_beside_a_post_that_cannot_be_read() {
    let Some(place) = with_a_spoiled_shard("spoiled-fix").await else { return };
    place.change(&place.address.shard("c", "1"), &[("count", Some(ValueType::IntegerValue(9)))]).await;
    let json = lines(&expect(1, &["verify", "--fix", "--yes", "--json", "--store", &place.url]));
    let sum = json.last().unwrap();
    assert_eq!((&sum["corrected"], &sum["remaining"], &sum["unreadable"]), (&1.into(), &0.into(), &1.into()));
    // Somebody mends the document, and all is well.
    place.change(&place.address.shard("b", "9"), &[("count", Some(ValueType::IntegerValue(0)))]).await;
    expect(0, &["verify", "--deep", "--store", &place.url]);
}

fn poison(id: &str, payload: &str) -> Quarantined {
    Quarantined {
        id: id.to_owned(),
        reason: "version: missing".to_owned(),
        data: payload.to_owned().into(),
        attributes: Vec::new(),
        source: "test:".to_owned(),
        message_id: None,
        published_at: None,
        received_at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        delivery_attempt: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_cannot_be_read_are_listed_stay_when_poison_is_replayed_and_can_be_purged() {
    let Some(place) = Place::new("spoiled-entries") else { return };
    let like = r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u","version":1}"#;
    place.store().await.quarantine(&["a1", "b2", "c3", "d4"].map(|id| poison(id, like))).await.expect("kept");
    place.change(&place.address.poison("b2"), &[("reason", None)]).await;
    place.change(&place.address.poison("c3"), &[("v", Some(ValueType::IntegerValue(2)))]).await;
    let worker = Worker::start(&["--store", &place.url, "--order", "version"]);
    for store in [&place.url, &worker.address] {
        let text = stdout(&expect(1, &["quarantine", "list", "--store", store]));
        assert!(text.contains("b2  cannot be read: its field 'reason' is missing"), "{text}");
        assert!(text.contains("c3  was written by a newer hotcount"), "{text}");
        let json = lines(&expect(1, &["quarantine", "list", "--json", "--store", store]));
        let find = |id: &str| json.iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("{id}: {json:?}"));
        assert_eq!((&find("a1")["reason"], &find("c3")["v"]), (&"version: missing".into(), &2.into()));
        assert!(find("b2")["error"].as_str().unwrap().contains("'reason'"), "{json:?}");
    }
    worker.terminate();

    for selection in [&["--all"][..], &["a1", "b2", "c3", "d4", "e5"][..]] {
        let replay = ["quarantine", "replay", "--yes", "--json", "--order", "version", "--store", &place.url];
        let json = lines(&expect(1, &[&replay[..], selection].concat()));
        let kept: Vec<_> = json.iter().filter(|line| line["outcome"] == "unreadable").map(|line| &line["id"]).collect();
        assert_eq!(kept, ["b2", "c3"], "{json:?}");
        assert!(json.iter().all(|line| line["outcome"] != "unreadable" || line["reason"].is_string()));
        assert_eq!(json.last().unwrap()["unreadable"], 2, "{json:?}");
    }
    expect(0, &["count", "p", "--verify", "--store", &place.url]);

    let purge = ["quarantine", "purge", "--yes", "--json", "--store", &place.url];
    let json = lines(&expect(0, &[&purge[..], &["b2"]].concat()));
    assert_eq!(json[0]["outcome"], "deleted", "{json:?}");
    expect(0, &[&purge[..], &["--all"]].concat());
    let listed = expect(0, &["quarantine", "list", "--store", &place.url]);
    assert_eq!((stdout(&listed).as_str(), stderr(&listed).trim()), ("", "0 entries"));
}
