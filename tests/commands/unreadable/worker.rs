//! A worker on both emulators that meets membership documents it cannot read.

use super::*;
use crate::process::{Worker, run, stderr, stdout, until};
use crate::support::publish::Topic;
use hotcount::store::firestore::member_id;
use serde_json::Value as Json;

const HEALTHY: usize = 200;

fn like(post: &str, user: &str) -> String {
    format!(
        r#"{{"eventId":"{post}-{user}","type":"like.added","postId":"{post}","userId":"{user}","occurredAt":"2026-01-01T00:00:00Z"}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn likes_of_memberships_without_user_are_quarantined_with_their_documents_and_the_others_are_counted() {
    let Some(place) = Place::new("erased") else { return };
    let Some(topic) = Topic::new(|subscription| subscription).await else { return };
    let erased = ["u1", "u2"].map(|user| place.address.member(&member_id("p", user)));
    for name in &erased {
        // As an erasure by hand leaves it.
        let fields = [
            ("post", Some(ValueType::StringValue("p".to_owned()))),
            ("liked", Some(ValueType::BooleanValue(false))),
            ("order", Some(ValueType::IntegerValue(0))),
            ("eventId", Some(ValueType::StringValue(String::new()))),
        ];
        place.change(name, &fields).await;
    }
    let source = topic.url("streams=2&extension_s=10");
    let worker = Worker::start(&["--source", &source, "--store", &place.url]);
    // On a quiet topic first: no healthy like is there to show that the store works.
    topic.publish_all([like("p", "u1")]).await;
    let quarantined = || {
        let listed = run(&["quarantine", "list", "--json", "--store", &place.url]);
        assert!(listed.status.success(), "{}", stderr(&listed));
        stdout(&listed).lines().map(|line| serde_json::from_str::<Json>(line).unwrap()).collect::<Vec<_>>()
    };
    until("the quarantine on a quiet topic", 1, || quarantined().len());
    let healthy = (0..HEALTHY).map(|n| like(["p", "q"][n % 2], &format!("healthy-{n}")));
    topic.publish_all([like("p", "u2")].into_iter().chain(healthy)).await;
    for post in ["p", "q"] {
        until("the healthy likes", HEALTHY as i64 / 2, || {
            let shown = run(&["count", post, "--json", "--store", &place.url]);
            serde_json::from_str::<Json>(&stdout(&shown)).unwrap()["count"].as_i64().unwrap()
        });
    }
    until("the quarantine under load", 2, || quarantined().len());
    let reasons: Vec<String> = quarantined().iter().map(|entry| entry["reason"].as_str().unwrap().to_owned()).collect();
    for name in &erased {
        let (_, document) = name.rsplit_once("/documents/").unwrap();
        let named = |reason: &&String| reason.contains(document) && reason.contains("'user'");
        assert_eq!(reasons.iter().filter(named).count(), 1, "{document}: {reasons:?}");
    }
    let ready = reqwest::get(format!("{}/readyz", worker.address)).await.unwrap();
    assert_eq!(ready.text().await.unwrap(), "ready\n");
    let (status, _) = worker.terminate();
    assert!(status.success());
}
