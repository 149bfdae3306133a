//! Streams that break, and whatever else happens between the worker and the broker.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_is_asked_less_and_less_often_incident_28() {
    let away = |at: Duration| {
        (at < Duration::from_secs(300)).then(|| SourceError {
            transient: true,
            message: "UNAVAILABLE".to_owned(),
            source: None,
        })
    };
    let queue = queue_of(10, Rules { on_open: away, ..Rules::default() });
    let store = Arc::new(Memory::default());
    queue.finish();
    let report = Worker::start(queue.clone(), store.clone(), config()).ended().await;
    let opened = queue.seen().opened;
    // Full jitter up to 30 s: two dozen in five minutes on average.
    assert!((10..100).contains(&opened), "{opened}");
    assert_eq!((report.counted.applied, count(&*store, "p").await), (10, (10, 10)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_refused_once_as_an_invalid_argument_is_opened_again_incident_29() {
    let refuse_the_first = |call: &Call<'_>| match call.method {
        "StreamingPull" if call.number == 0 => Verdict::Refuse(Status::new(3, "invalid argument")),
        _ => Verdict::Pass,
    };
    let Some(wire) = Wire::spoiled(|s| s, refuse_the_first).await else { return };
    let store = Arc::new(Memory::default());
    let report = wire.worker(20, store.clone()).await.stop().await;
    assert!(wire.proxy.calls("StreamingPull") > 1);
    assert_eq!((report.counted.left, count(&*store, "p").await), (0, (20, 20)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_that_a_reconnect_drops_bring_back_likes_that_are_known_incident_31() {
    let hold_the_first = |call: &Call<'_>| match call.method {
        "Acknowledge" if call.number == 0 => Verdict::HoldRequest,
        _ => Verdict::Pass,
    };
    let Some(wire) = Wire::spoiled(|s| s, hold_the_first).await else { return };
    let store = Arc::new(Memory::default());
    let worker = wire.worker(50, store.clone()).await;
    wire.proxy.called("Acknowledge", 1).await;
    wire.proxy.cut();
    // The client sends it again by itself, or the leases end and the likes come back.
    wire.proxy.called("Acknowledge", 2).await;
    let report = worker.stop().await;
    assert_eq!((report.counted.applied, report.counted.left), (50, 0));
    assert_eq!(count(&*store, "p").await, (50, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_cancelled_now_and_then_change_no_count_incident_33() {
    let cancel_some = |call: &Call<'_>| match call.method {
        "Acknowledge" if call.number.is_multiple_of(3) => Verdict::Refuse(Status::new(1, "operation was canceled")),
        _ => Verdict::Pass,
    };
    let Some(wire) = Wire::spoiled(|s| s, cancel_some).await else { return };
    let store = Arc::new(Memory::default());
    let worker = wire.worker(200, store.clone()).await;
    soon("some came back", || worker.progress.counted().duplicates > 0).await;
    assert_eq!(worker.stop().await.counted.left, 0);
    assert_eq!(count(&*store, "p").await, (200, 200));
}
