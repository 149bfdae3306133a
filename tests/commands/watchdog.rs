//! A wire that dies in silence between the real binary and Google's emulators: it is seen, said and mended, and every
//! like is counted.

use crate::process::{Worker, run, stdout, until};
use crate::support::emulators::{firestore, unique};
use crate::support::proxy::{Proxy, Verdict};
use crate::support::publish::Topic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A worker with a wire on both sides.
struct Place {
    topic: Topic,
    /// Whether Pub/Sub is a black hole.
    dark: Arc<AtomicBool>,
    source_wire: Proxy,
    store_wire: Proxy,
    /// The store without a wire.
    store: String,
    worker: Worker,
}

impl Place {
    async fn new(options: &str) -> Option<Self> {
        let (topic, firestore) = (Topic::new(|subscription| subscription).await?, firestore()?);
        let dark = Arc::new(AtomicBool::new(false));
        let is_dark = Arc::clone(&dark);
        let source_wire = Proxy::start(&topic.host, move |_| match is_dark.load(Ordering::Acquire) {
            true => Verdict::HoldRequest,
            false => Verdict::Pass,
        })
        .await;
        let store_wire = Proxy::start(&firestore, |_| Verdict::Pass).await;
        let store = format!("firestore://{}?emulator={firestore}", unique("watchdog"));
        let source = topic.url(&format!("extension_s=10&{options}")).replace(&topic.host, source_wire.host());
        let behind = store.replace(&firestore, store_wire.host());
        let worker = Worker::start(&["--source", &source, "--store", &behind]);
        Some(Self { topic, dark, source_wire, store_wire, store, worker })
    }

    async fn like(&self, users: std::ops::Range<usize>) {
        self.topic.publish_all(users.map(|user| format!(
            r#"{{"eventId":"e{user}","type":"like.added","postId":"viral","userId":"u{user}","occurredAt":"2026-01-01T00:00:00Z"}}"#
        ))).await;
    }

    /// Waits until the post has so many likes, and no drift.
    fn until_counted(&self, likes: i64) {
        until("the count", (likes, 0), || {
            let output = run(&["count", "viral", "--verify", "--json", "--store", &self.store]);
            let row: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
            (row["count"].as_i64().unwrap(), row["drift"].as_i64().unwrap())
        });
    }

    fn until_logged(&self, what: &str) {
        until(what, true, || self.worker.log().contains(what));
    }

    /// What `/readyz` says.
    fn readiness(&self) -> String {
        let asked =
            async { reqwest::get(format!("{}/readyz", self.worker.address)).await.unwrap().text().await.unwrap() };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(asked))
    }

    fn until_ready(&self, is_so: bool) {
        until("whether it is ready", is_so, || self.readiness() == "ready\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pubsub_that_goes_dark_is_seen_by_readyz_and_served_again_when_it_comes_back() {
    let Some(place) = Place::new("streams=2").await else { return };
    place.like(0..10).await;
    place.until_counted(10);
    place.until_ready(true);
    place.dark.store(true, Ordering::Release);
    place.source_wire.freeze();
    place.until_ready(false);
    assert!(place.readiness().contains("does not answer"), "{}", place.readiness());
    place.until_logged("not ready: the source does not answer");
    place.like(10..20).await;
    place.dark.store(false, Ordering::Release);
    place.until_counted(20);
    place.until_ready(true);
    place.until_logged("streams go to a new connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_connection_is_half_open_goes_to_a_new_one_and_loses_nothing() {
    let Some(place) = Place::new("streams=2&idle_s=10").await else { return };
    place.like(0..10).await;
    place.until_counted(10);
    place.source_wire.freeze();
    place.like(10..20).await;
    place.until_counted(20);
    place.until_logged("streams go to a new connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_connection_is_half_open_is_seen_by_readyz_and_its_batches_are_counted_once() {
    let Some(place) = Place::new("streams=2").await else { return };
    place.like(0..10).await;
    place.until_counted(10);
    place.until_ready(true);
    place.store_wire.freeze();
    place.like(10..20).await;
    place.until_ready(false);
    assert!(place.readiness().contains("the store"), "{}", place.readiness());
    place.until_counted(20);
    place.until_ready(true);
    let (status, printed) = place.worker.terminate();
    assert_eq!(status.code(), Some(0), "{printed}");
}
