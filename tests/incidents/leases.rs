//! Leases that end while a like is held.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_linger_and_a_commit_longer_than_the_deadline_only_bring_copies_incident_11() {
    // The queue says nothing about its deadline, so the settings are not refused.
    let queue = queue_of(200, Rules { lease: SECOND * 10, ..Rules::default() });
    let memory = Arc::new(Memory::default());
    let store = failing(&memory, |at| if at < SECOND * 100 { Fault::slow(SECOND * 30) } else { Fault::default() });
    queue.finish();
    let config = Config { linger: SECOND * 10, max_held_deliveries: 500, batch_writes: Some(500), ..config() };
    let worker = Worker::start(queue.clone(), store, config);
    until("the first commit", || worker.progress.commits() > 0).await;
    let report = worker.ended().await;
    assert!(queue.seen().too_late >= 200, "{:?}", queue.seen());
    assert_eq!((report.counted.applied, report.counted.left), (200, 0));
    assert_eq!(count(&*memory, "p").await, (200, 200));
}

/// A checkpoint of 35 minutes under a lease of 30.
#[tokio::test(start_paused = true)]
async fn a_store_slower_than_the_lease_stops_pulling_and_does_not_multiply_the_load_incident_12() {
    const LEASE: Duration = Duration::from_secs(30 * 60);
    let queue = queue_of(1_000, Rules { lease: LEASE, max_lease: Some(LEASE), ..Rules::default() });
    let memory = Arc::new(Memory::default());
    let store = failing(&memory, |at| {
        let slow = at < Duration::from_secs(4 * 3_600);
        if slow { Fault::slow(Duration::from_secs(35 * 60)) } else { Fault::default() }
    });
    queue.finish();
    let mut config = config();
    config.flush.retry_deadline = Config::retry_deadline_for(Some(LEASE));
    let report = Worker::start(queue.clone(), store, config).ended().await;
    let seen = queue.seen();
    assert!(report.counted.left > 0, "the first were given up at their lease: {seen:?}");
    // Four hours are nine rounds of the deadline of 27 minutes; each takes no more than the budget.
    assert!(seen.most_held <= 50 && seen.delivered <= 1_000 + 10 * 50, "{seen:?}");
    assert_eq!(count(&*memory, "p").await, (1_000, 1_000));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_held_past_its_max_lease_is_let_go_or_settled_as_a_duplicate_incident_16() {
    let queue = queue_of(1, Rules { lease: SECOND * 60, max_lease: Some(SECOND * 60), ..Rules::default() });
    let memory = Arc::new(Memory::default());
    // The first commit takes effect, and the worker does not hear of it before the lease ends.
    let mut calls = 0;
    let store = Faulty::new(Arc::clone(&memory), move |_, _| {
        calls += 1;
        match calls {
            1 => Fault::after(ErrorClass::Unknown),
            2 => Fault::slow(SECOND * 55),
            _ => Fault::default(),
        }
    });
    queue.finish();
    let mut config = config();
    config.flush.retry_deadline = Config::retry_deadline_for(Some(SECOND * 60));
    let report = Worker::start(queue.clone(), store, config).ended().await;
    assert_eq!((report.counted.received, report.counted.left), (2, 1));
    assert_eq!((report.counted.duplicates, queue.seen().acknowledged), (1, 1));
    assert_eq!(count(&*memory, "p").await, (1, 1));
}
