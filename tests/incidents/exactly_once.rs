//! Exactly-once delivery: acknowledgements are confirmed, and one that is not changes no count.

use super::*;

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
