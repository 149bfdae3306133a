//! Stopping, with acknowledgements on their way.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_under_way_when_a_worker_stops_arrive_and_nothing_comes_back_incident_41() {
    let delay = |call: &Call<'_>| match call.method {
        "Acknowledge" => Verdict::Delay(SECOND * 2),
        _ => Verdict::Pass,
    };
    let Some(wire) = Wire::spoiled(|s| s, delay).await else { return };
    let store = Arc::new(Memory::default());
    // Committed, and the acknowledgements have not arrived.
    let report = wire.worker(200, store.clone()).await.stop().await;
    assert_eq!((report.counted.received, report.counted.left), (200, 0));
    assert_eq!(count(&*store, "p").await, (200, 200));
    wire.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_answers_no_longer_than_its_deadline_and_says_how_many_are_missing_incident_42() {
    let hold = |call: &Call<'_>| match call.method {
        "Acknowledge" => Verdict::HoldAnswer,
        _ => Verdict::Pass,
    };
    let Some(wire) = Wire::exactly_once(hold).await else { return };
    let store = Arc::new(Memory::default());
    let short = Config { drain_timeout: SECOND, ..config() };
    let worker = Worker::start(wire.source("streams=2").await, store.clone(), short);
    wire.topic.publish_all((0..100).map(like)).await;
    soon("each like is written", || worker.progress.counted().applied == 100).await;
    let report = tokio::time::timeout(SECOND * 60, worker.stop()).await.expect("it ends");
    assert_eq!((report.counted.left, report.unconfirmed), (0, 100));
    assert_eq!(count(&*store, "p").await, (100, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_waits_for_messages_stops_at_once_incident_42() {
    let Some(wire) = Wire::spoiled(|s| s, |_| Verdict::Pass).await else { return };
    let store = Arc::new(Memory::default());
    let worker = wire.worker(1, store.clone()).await;
    let report = tokio::time::timeout(SECOND * 60, worker.stop()).await.expect("it ends");
    assert_eq!((report.counted.applied, report.counted.left), (1, 0));
}
