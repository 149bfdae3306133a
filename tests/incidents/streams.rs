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

/// Whatever the cause: here a broker that takes no acknowledgement for a while, and says nothing.
#[tokio::test(start_paused = true)]
async fn acks_that_have_no_effect_are_a_finding_until_they_have_one() {
    const WITHOUT_EFFECT: usize = 2_000;
    let on_ack = |number: usize, _| if number < WITHOUT_EFFECT { Fate::Lost } else { Fate::Arrives };
    let queue = queue_of(200, Rules { on_ack, ..Rules::default() });
    let store = Arc::new(Memory::default());
    let worker = Worker::start(queue.clone(), store.clone(), Config { max_held_deliveries: 500, ..config() });
    let finding = || worker.progress.not_ready().iter().any(|told| told.contains("acknowledgements have no effect"));
    until("it is found", finding).await;
    assert!(queue.seen().delivered <= 800, "within three rounds: {:?}", queue.seen());
    let (known, again) = (worker.progress.settled_before(), queue.seen().delivered as u64 - 200);
    assert!(known <= again && known * 10 > again * 9, "{known} of {again} are known");
    until("they have an effect", || queue.seen().acknowledged == 200).await;
    // Only deliveries, or that none come, can show that it is over.
    (1_000..3_000).for_each(|n| queue.publish(like(n)));
    until("it is over", || worker.progress.not_ready().is_empty()).await;
    worker.stop().await;
    assert_eq!(count(&*store, "p").await, (2_200, 2_200));
}

/// The size that the service takes is 512 KiB; the client library sends a thousand ids however long they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_that_the_broker_refuses_for_their_size_are_a_finding_on_readyz() {
    let refuse_all = |call: &Call<'_>| match call.method {
        "Acknowledge" => Verdict::Refuse(Status::new(3, "Request payload size exceeds the limit: 524288 bytes.")),
        _ => Verdict::Pass,
    };
    let Some(wire) = Wire::spoiled(|s| s, refuse_all).await else { return };
    let store = Arc::new(Memory::default());
    let worker = wire.worker(60, store.clone()).await;
    soon("it is found", || {
        worker.progress.not_ready().iter().any(|told| told.contains("acknowledgements have no effect"))
    })
    .await;
    assert!(worker.progress.settled_before() >= 60);
    assert_eq!(worker.stop().await.counted.applied, 60);
    assert_eq!(count(&*store, "p").await, (60, 60));
}

#[tokio::test(start_paused = true)]
async fn one_lost_request_of_acks_among_many_is_no_finding() {
    let queue = queue_of(
        2_000,
        Rules { on_ack: |number, _| if number < 100 { Fate::Lost } else { Fate::Arrives }, ..Rules::default() },
    );
    let store = Arc::new(Memory::default());
    let worker = Worker::start(queue.clone(), store, Config { max_held_deliveries: 500, ..config() });
    until("all are acknowledged", || {
        assert_eq!(worker.progress.not_ready().iter().find(|told| told.contains("acknowledgements")), None);
        queue.seen().acknowledged == 2_000
    })
    .await;
    assert!((1..=100).contains(&worker.progress.settled_before()), "{}", worker.progress.settled_before());
    worker.stop().await;
}
