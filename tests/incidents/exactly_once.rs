//! Exactly-once delivery: acknowledgements are confirmed, and one that is not changes no count.

use super::*;
use std::sync::Mutex;
use wire::{ack_ids, each_failed, extends};

#[tokio::test(start_paused = true)]
async fn an_ack_refused_for_no_reason_brings_back_a_like_that_is_known_incident_39() {
    let now_and_then = |number: usize, _| if number % 100 == 3 { Fate::Refused } else { Fate::Arrives };
    let queue = queue_of(1_000, Rules { confirms: true, on_ack: now_and_then, ..Rules::default() });
    let store = Arc::new(Memory::default());
    queue.finish();
    let report = Worker::start(queue.clone(), store.clone(), config()).ended().await;
    assert_eq!((report.counted.applied, report.counted.duplicates, report.unconfirmed), (1_000, 11, 11));
    assert_eq!(count(&*store, "p").await, (1_000, 1_000));
}

/// Many workers on one backlog, whose acknowledgements are refused at random.
#[tokio::test(start_paused = true)]
async fn many_workers_whose_acks_are_refused_count_each_like_once_incident_37() {
    let every_seventh = |number: usize, _| if number % 7 == 3 { Fate::Refused } else { Fate::Arrives };
    let queue = queue_of(2_000, Rules { confirms: true, on_ack: every_seventh, ..Rules::default() });
    let memory = Arc::new(Memory::default());
    queue.finish();
    let store = failing(&memory, |_| Fault::slow(SECOND));
    let workers: Vec<Worker> = (0..20).map(|_| Worker::start(queue.clone(), store.clone(), config())).collect();
    let (mut applied, mut unconfirmed) = (0, 0);
    for worker in workers {
        let report = worker.ended().await;
        applied += report.counted.applied;
        unconfirmed += report.unconfirmed;
    }
    assert_eq!((applied, count(&*memory, "p").await), (2_000, (2_000, 2_000)));
    assert_eq!(unconfirmed, queue.seen().settled as u64 - 2_000);
    assert!(unconfirmed > 200, "{unconfirmed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_ack_is_confirmed_and_nothing_is_left_on_the_subscription() {
    let Some(wire) = Wire::exactly_once(|_| Verdict::Pass).await else { return };
    let store = Arc::new(Memory::default());
    let report = wire.worker(300, store.clone()).await.stop().await;
    assert_eq!((report.counted.received, report.counted.left, report.unconfirmed), (300, 0, 0));
    assert_eq!(count(&*store, "p").await, (300, 300));
    wire.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ack_ids_that_are_permanently_invalid_are_unconfirmed_and_their_likes_come_back_as_duplicates() {
    let refused = Arc::new(Mutex::new(0));
    let counting = Arc::clone(&refused);
    let wire = Wire::exactly_once(move |call| match call.method {
        "Acknowledge" if call.number == 0 => {
            *counting.lock().unwrap() += ack_ids(call).len();
            Verdict::Refuse(each_failed(call, "PERMANENT_FAILURE_INVALID_ACK_ID"))
        }
        _ => Verdict::Pass,
    });
    let Some(wire) = wire.await else { return };
    let store = Arc::new(Memory::default());
    let worker = wire.worker(100, store.clone()).await;
    let refused = || *refused.lock().unwrap() as u64;
    soon("they come back", || refused() > 0 && worker.progress.counted().duplicates >= refused()).await;
    let report = worker.stop().await;
    assert_eq!((report.unconfirmed, report.counted.left), (refused(), 0));
    assert_eq!(count(&*store, "p").await, (100, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_that_fails_for_a_while_is_sent_again_and_confirmed() {
    let wire = Wire::exactly_once(|call| match call.method {
        "Acknowledge" if call.number == 0 => Verdict::Refuse(each_failed(call, "TRANSIENT_FAILURE_OTHER")),
        "Acknowledge" if call.number < 3 => Verdict::Refuse(Status::new(14, "unavailable")),
        _ => Verdict::Pass,
    });
    let Some(wire) = wire.await else { return };
    let store = Arc::new(Memory::default());
    let report = wire.worker(100, store.clone()).await.stop().await;
    assert!(wire.proxy.calls("Acknowledge") > 3);
    assert_eq!((report.counted.received, report.counted.left, report.unconfirmed), (100, 0, 0));
    assert_eq!(count(&*store, "p").await, (100, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_whose_answer_is_lost_is_confirmed_or_counted_as_unconfirmed_and_adds_nothing() {
    let lost = Arc::new(Mutex::new(0));
    let counting = Arc::clone(&lost);
    let wire = Wire::exactly_once(move |call| match call.method {
        "Acknowledge" if call.number < 2 => {
            *counting.lock().unwrap() += ack_ids(call).len();
            Verdict::Lose(Status::new(14, "unavailable"))
        }
        _ => Verdict::Pass,
    });
    let Some(wire) = wire.await else { return };
    let store = Arc::new(Memory::default());
    let report = wire.worker(100, store.clone()).await.stop().await;
    assert!(wire.proxy.calls("Acknowledge") > 2);
    // Sent again, the broker may or may not know the ids any more.
    assert!(report.unconfirmed <= *lost.lock().unwrap() as u64, "{report:?}");
    assert_eq!((report.counted.received, report.counted.left), (100, 0));
    assert_eq!(count(&*store, "p").await, (100, 100));
}

/// The commit takes longer than the deadline, and no extension reaches the broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_nobody_extends_make_acks_unconfirmed_and_likes_come_back_known_incident_36() {
    let drop_extensions = |call: &Call<'_>| if extends(call) { Verdict::HoldRequest } else { Verdict::Pass };
    let Some(wire) = Wire::exactly_once(drop_extensions).await else { return };
    let memory = Arc::new(Memory::default());
    let store = failing(&memory, |at| if at < SECOND * 10 { Fault::slow(SECOND * 20) } else { Fault::default() });
    let worker = wire.worker(20, store).await;
    soon("acks were too late", || worker.progress.unconfirmed() > 0).await;
    soon("they come back", || worker.progress.counted().duplicates >= worker.progress.unconfirmed()).await;
    assert_eq!(worker.stop().await.counted.left, 0);
    assert_eq!(count(&*memory, "p").await, (20, 20));
}

/// A default of ten seconds that one slow extension outlasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_arrives_after_the_lease_changes_no_count_incident_14() {
    let delay = |call: &Call<'_>| if extends(call) { Verdict::Delay(SECOND * 12) } else { Verdict::Pass };
    let Some(wire) = Wire::exactly_once(delay).await else { return };
    let memory = Arc::new(Memory::default());
    let store = failing(&memory, |at| if at < SECOND * 10 { Fault::slow(SECOND * 15) } else { Fault::default() });
    let worker = wire.worker(20, store).await;
    soon("what came back is known", || {
        worker.progress.counted().duplicates + worker.progress.counted().folded >= worker.progress.unconfirmed()
    })
    .await;
    assert_eq!(worker.stop().await.counted.left, 0);
    assert_eq!(count(&*memory, "p").await, (20, 20));
}
