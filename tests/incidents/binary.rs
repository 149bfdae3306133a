//! What somebody sees who runs the worker itself.

use super::*;
use process::Worker as Process;

fn start(place: &Place, more: &[&str]) -> Process {
    let store = format!("firestore://{}?emulator={}", place.address.project(), place.proxy.host());
    Process::start(&[&["--store", &store, "--order", "version"], more].concat())
}

async fn post(worker: &Process, likes: &[String]) -> reqwest::StatusCode {
    let request = reqwest::Client::new().post(format!("{}/v1/events", worker.address));
    let request = request.header("content-type", "application/x-ndjson").body(likes.join("\n"));
    request.send().await.unwrap().status()
}

async fn metrics(worker: &Process) -> String {
    reqwest::get(format!("{}/metrics", worker.address)).await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn duplicates_are_counted_at_each_layer_that_sees_them_incident_10() {
    // The settings are committed before any batch.
    let lose_the_first = |call: &Call<'_>| match (call.method, call.number) {
        ("Commit", 1) => Verdict::Lose(Status::new(14, "unavailable")),
        _ => Verdict::Pass,
    };
    let Some(place) = Place::spoiled(lose_the_first).await else { return };
    let worker = start(&place, &[]);
    // Three in one batch, two of them the same; then the window knows one.
    assert!(post(&worker, &[like(1), like(1), like(2)]).await.is_success());
    assert!(post(&worker, &[like(1)]).await.is_success());
    let seen = metrics(&worker).await;
    for line in [
        "hotcount_deliveries_folded_total 1",
        "hotcount_batches_total{replayed=\"true\"} 1",
        "hotcount_likes_duplicate_total{layer=\"recent\"} 1",
    ] {
        assert!(seen.lines().any(|l| l == line), "{line} in\n{seen}");
    }
    // A worker that remembers nothing asks the membership.
    let another = start(&place, &["--recent-likes", "0"]);
    assert!(post(&another, &[like(2)]).await.is_success());
    let seen = metrics(&another).await;
    assert!(seen.contains("hotcount_likes_duplicate_total{layer=\"membership\"} 1"), "{seen}");
    assert_eq!(count(&*place.store, "p").await, (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_second_signal_ends_a_drain_at_once_incident_45() {
    let hold = |call: &Call<'_>| match (call.method, call.number) {
        // The settings.
        ("Commit", 0) => Verdict::Pass,
        ("Commit", _) => Verdict::HoldRequest,
        _ => Verdict::Pass,
    };
    let Some(place) = Place::spoiled(hold).await else { return };
    let mut worker = start(&place, &["--drain-deadline-s", "10000"]);
    let request = reqwest::Client::new().post(format!("{}/v1/events", worker.address)).body(like(1)).send();
    let request = tokio::spawn(request);
    place.proxy.called("Commit", 2).await;
    worker.signal("TERM");
    soon("it drains", || worker.log().contains("finishing what is under way")).await;
    worker.signal("TERM");
    assert_eq!(worker.wait().code(), Some(3));
    // What it held was never said to be durable.
    assert!(request.await.unwrap().map_or(true, |answer| !answer.status().is_success()));
    assert_eq!(count(&*place.store, "p").await, (0, 0));
}
