//! A setting that makes the store refuse every write: the worker ends with exit code 2 and a sentence, quarantines nothing
//! and acknowledges nothing. The real binary, with a wire to Firestore that answers as the service would.

use crate::process::{Worker, run, stderr};
use crate::support::emulators::{firestore, unique};
use crate::support::proxy::{Proxy, Status, Verdict};
use crate::support::publish::Topic;
use futures::future::join_all;
use hotcount::store::{self, Counts, Depth, PageSize};
use std::time::Duration;

const USERS: usize = 20;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(240);

/// What Firestore answers to each commit, and a word of what to do that the worker's sentence has.
const REFUSALS: [(u16, &str, &str); 7] = [
    (7, "Missing or insufficient permissions.", "roles/datastore.user"),
    (16, "Request had invalid authentication credentials.", "gcloud auth application-default login"),
    (5, "The database does not exist.", "is the database there"),
    (9, "The Cloud Firestore API is not available for Firestore in Datastore Mode.", "in Native mode"),
    (12, "Unknown method.", "is it Firestore"),
    (3, "A document name is not valid.", "refuses every like"),
    (11, "A value is out of range.", "refuses every like"),
];

fn event(user: usize) -> String {
    format!(
        r#"{{"eventId":"e{user}","type":"like.added","postId":"viral","userId":"u{user}","occurredAt":"2026-01-01T00:00:00Z"}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_every_like_stops_the_worker_with_a_sentence_and_nothing_is_lost() {
    let Some(host) = firestore() else { return };
    // The settings, which are committed first, are taken.
    join_all(REFUSALS.map(|refusal| refused(&host, refusal, 1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_take_the_settings_stops_the_worker_with_a_sentence_and_nothing_is_lost() {
    let Some(host) = firestore() else { return };
    let refusals = [REFUSALS[0], (3, "A document name is not valid.", "is its address right")];
    join_all(refusals.map(|refusal| refused(&host, refusal, 0))).await;
}

/// A worker whose commits are answered so from the one with the number `first` on, and one that works after it.
async fn refused(host: &str, (code, says, advice): (u16, &'static str, &str), first: usize) {
    let Some(topic) = Topic::new(|subscription| subscription).await else { return };
    let wire = Proxy::start(host, move |call| match call.method {
        "Commit" if call.number >= first => Verdict::Refuse(Status::new(code, says)),
        _ => Verdict::Pass,
    })
    .await;
    let project = unique("refused");
    let source = topic.url("streams=1&extension_s=10&idle_s=10");
    let worker = started(&source, &format!("firestore://{project}?emulator={}", wire.host())).await;
    topic.publish_all((0..USERS).map(event)).await;
    let (status, log) = tokio::task::spawn_blocking(|| worker.end()).await.unwrap();
    assert_eq!(status.code(), Some(2), "{code}: {log}");
    let sentence = log.lines().find(|line| line.starts_with("error: the store cannot work: "));
    let sentence = sentence.unwrap_or_else(|| panic!("{code}: {log}"));
    assert!(sentence.contains(advice) && sentence.contains(says), "{code}: {sentence}");
    assert_eq!(sentence.matches(says).count(), 1, "{code}: {sentence}");
    assert!(wire.calls("Commit") > first, "{code}: {log}");
    let url = format!("firestore://{project}?emulator={host}");
    let store = hotcount::connect::store(&url, &store::Options::default()).await.unwrap();
    assert!(
        store.quarantined(None, PageSize::entries(10)).await.unwrap().entries.is_empty(),
        "{code}: healthy likes are quarantined"
    );
    assert_eq!(tally(&*store).await, (0, Some(0)), "{code}");
    // Nothing was acknowledged: a worker that works counts all. Many streams, for the emulator goes on for a while giving
    // some messages to the one that is gone.
    let worker = started(&source.replace("streams=1", "streams=32"), &url).await;
    tokio::time::timeout(DEADLINE, async {
        while tally(&*store).await != (USERS as i64, Some(USERS as u64)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{code}: {}", worker.log()));
    assert!(
        store.quarantined(None, PageSize::entries(10)).await.unwrap().entries.is_empty(),
        "{code}: healthy likes are quarantined"
    );
}

async fn started(source: &str, store: &str) -> Worker {
    let arguments = ["--source", source, "--store", store].map(str::to_owned);
    let start = move || Worker::start(&arguments.each_ref().map(String::as_str));
    tokio::task::spawn_blocking(start).await.unwrap()
}

async fn tally(store: &dyn Counts) -> (i64, Option<u64>) {
    let tally = store.tally("viral", Depth::ShardsAndMembers).await.unwrap();
    (tally.count, tally.members)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_a_sentence_before_anything_is_pulled() {
    let Some(host) = firestore() else { return };
    for (code, says, advice) in [
        (5, "The database does not exist.", "gcloud firestore databases create"),
        (9, "It is in Datastore Mode.", "Native mode"),
        (7, "Missing or insufficient permissions.", "roles/datastore.user"),
    ] {
        let wire = Proxy::start(&host, move |call| match call.method {
            "BatchGetDocuments" => Verdict::Refuse(Status::new(code, says)),
            _ => Verdict::Pass,
        })
        .await;
        let store = format!("firestore://{}/wrong?emulator={}", unique("wrong"), wire.host());
        let output = tokio::task::spawn_blocking(move || {
            run(&["run", "--source", "http:", "--http", "127.0.0.1:0", "--store", &store])
        })
        .await
        .unwrap();
        assert_eq!(output.status.code(), Some(2), "{code}: {}", stderr(&output));
        assert!(stderr(&output).contains(advice), "{code}: {}", stderr(&output));
        assert_eq!(wire.calls("Commit"), 0, "{code}");
    }
}
