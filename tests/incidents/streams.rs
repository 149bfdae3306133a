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
