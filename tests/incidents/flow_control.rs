//! Budgets that must come back, whatever becomes of what took them.

use super::*;

#[tokio::test(start_paused = true)]
async fn confirmations_that_never_come_keep_no_place_in_the_budget_incident_20() {
    let queue = queue_of(1_000, Rules { confirms: true, on_ack: |_, _| Fate::Lost, ..Rules::default() });
    let memory = Arc::new(Memory::default());
    let worker = Worker::start(queue.clone(), memory.clone(), Config { recent_likes: Some(2_000), ..config() });
    until("all are settled, a thousand on a budget of fifty", || queue.seen().settled >= 1_000).await;
    assert_eq!(count(&*memory, "p").await, (1_000, 1_000));
    let asked = tokio::time::Instant::now();
    let report = worker.stop().await;
    assert!(asked.elapsed() <= config().drain_timeout + SECOND, "{:?}", asked.elapsed());
    assert_eq!(report.unconfirmed, queue.seen().settled as u64, "nobody ever answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_flow_while_the_stream_is_not_read_incident_21() {
    let Some(wire) = Wire::spoiled(|s| s, |_| Verdict::Pass).await else { return };
    let memory = Arc::new(Memory::default());
    let slow = Faulty::new(Arc::clone(&memory), |batch, _| {
        let last = batch.likes().iter().any(|like| like.user() == "last");
        if last { Fault::slow(SECOND * 10_000) } else { Fault::default() }
    });
    // A budget of ten, which one like that is never committed keeps in part; two hundred wait behind it.
    let config = Config { max_held_deliveries: 10, batch_writes: Some(3), drain_timeout: SECOND, ..config() };
    let worker = Worker::start(wire.source("streams=1").await, slow, config);
    wire.topic.publish_all([event("e", "p", "last", true, 1)].into_iter().chain((0..200).map(like))).await;
    soon("the others are counted", || worker.progress.counted().applied == 200).await;
    // Acknowledgements leave together, so one call may carry all of them.
    wire.proxy.called("Acknowledge", 1).await;
    let report = worker.stop().await;
    assert_eq!((report.counted.applied, report.counted.left), (200, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_dropped_whole_is_a_window_again_incident_24() {
    const WINDOW: usize = 100;
    let Some(wire) = Wire::exactly_once(|_| Verdict::Pass).await else { return };
    let source = wire.source("streams=1&outstanding=100").await;
    let mut stream = source.open(0).await.expect("it opens");
    wire.topic.publish_all((0..WINDOW).map(like)).await;
    for round in 0..3 {
        let mut held = Vec::new();
        while held.len() < WINDOW {
            let pulled = tokio::time::timeout(SECOND * 120, stream.pull(WINDOW)).await;
            held.extend(pulled.expect("it goes on").expect("it is delivered"));
        }
        if round == 2 {
            for delivery in held {
                let confirmed = delivery.ack.settle(&hotcount::source::ack::Settlement::Counted);
                // One that came twice has a new id.
                let _ = confirmed.expect("it is asked for").await;
            }
        }
    }
}
