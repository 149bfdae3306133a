//! Leases that end while a like is held.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::extends;

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

/// A store that answers nothing in time for four hours, under a lease of 30 minutes.
#[tokio::test(start_paused = true)]
async fn a_store_slower_than_the_lease_stops_pulling_and_does_not_multiply_the_load_incident_12() {
    const LEASE: Duration = Duration::from_secs(30 * 60);
    let queue = queue_of(1_000, Rules { lease: LEASE, max_lease: Some(LEASE), ..Rules::default() });
    let memory = Arc::new(Memory::default());
    let store = failing(&memory, |at| {
        let away = at < Duration::from_secs(4 * 3_600);
        if away { Fault { delay: SECOND * 60, ..Fault::before(ErrorClass::Unknown) } } else { Fault::default() }
    });
    queue.finish();
    let mut config = config();
    config.flush.retry_deadline = Some(config.flush.retry_deadline(Some(LEASE)));
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
    config.flush.retry_deadline = Some(config.flush.retry_deadline(Some(SECOND * 60)));
    let report = Worker::start(queue.clone(), store, config).ended().await;
    assert_eq!((report.counted.received, report.counted.left), (2, 1));
    assert_eq!((report.counted.duplicates, queue.seen().acknowledged), (1, 1));
    assert_eq!(count(&*memory, "p").await, (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_extended_as_often_as_a_slow_commit_needs_incident_15() {
    let extensions = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&extensions);
    let wire = Wire::exactly_once(move |call| {
        counting.fetch_add(usize::from(extends(call)), Ordering::Relaxed);
        Verdict::Pass
    });
    let Some(wire) = wire.await else { return };
    let memory = Arc::new(Memory::default());
    // Two and a half times the deadline.
    let report = wire.worker(10, failing(&memory, |_| Fault::slow(SECOND * 25))).await.stop().await;
    assert!(extensions.load(Ordering::Relaxed) > 2, "{extensions:?}");
    assert_eq!((report.counted.received, report.counted.applied, report.unconfirmed), (10, 10, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_lands_after_a_drop_keeps_the_like_away_for_no_more_than_a_lease_incident_18() {
    let late = |call: &Call<'_>| if extends(call) { Verdict::Delay(SECOND * 3) } else { Verdict::Pass };
    let Some(wire) = Wire::spoiled(|s| s, late).await else { return };
    let source = wire.source("streams=1").await;
    let mut stream = source.open(0).await.expect("it opens");
    wire.topic.publish(like(1).as_bytes(), &[]).await;
    let first = stream.pull(1).await.expect("it is delivered");
    // The extension is under way when the token is dropped, and arrives after that.
    wire.proxy.called("ModifyAckDeadline", 1).await;
    drop(first);
    wire.proxy.called("ModifyAckDeadline", 2).await;
    let again = tokio::time::timeout(SECOND * 120, stream.pull(1)).await.expect("it comes back");
    assert_eq!(again.expect("it is delivered")[0].payload, like(1));
}

/// On an ordered key the next message waits for the one before it, and its late acknowledgement must not end anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_ack_on_an_ordered_key_changes_no_count_and_stops_nothing_incident_48() {
    use base64::Engine;
    let drop_extensions = |call: &Call<'_>| if extends(call) { Verdict::HoldRequest } else { Verdict::Pass };
    let Some(wire) = Wire::spoiled(|s| s.set_enable_message_ordering(true), drop_extensions).await else { return };
    let memory = Arc::new(Memory::default());
    let store = failing(&memory, |at| if at < SECOND * 10 { Fault::slow(SECOND * 20) } else { Fault::default() });
    let worker = Worker::start(wire.source("streams=2").await, store, config());
    let admin = wire.topic.admin.get_subscription().set_subscription(&wire.topic.subscription_path).send().await;
    let encode = |n| base64::engine::general_purpose::STANDARD.encode(like(n));
    let messages: Vec<_> = (0..10).map(|n| serde_json::json!({"data": encode(n), "orderingKey": "p"})).collect();
    let url = format!("http://{}/v1/{}:publish", wire.topic.host, admin.unwrap().topic);
    let body = serde_json::json!({"messages": messages}).to_string();
    assert!(reqwest::Client::new().post(url).body(body).send().await.unwrap().status().is_success());
    soon("all came back and are known", || worker.progress.counted().duplicates >= 10).await;
    assert_eq!(worker.stop().await.counted.left, 0);
    assert_eq!(count(&*memory, "p").await, (10, 10));
}
