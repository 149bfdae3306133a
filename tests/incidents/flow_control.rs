//! Budgets that must come back, whatever becomes of what took them.

use super::*;

#[tokio::test(start_paused = true)]
async fn confirmations_that_never_come_keep_no_place_in_the_budget_incident_20() {
    let queue = queue_of(1_000, Rules { confirms: true, on_ack: |_, _| Fate::Lost, ..Rules::default() });
    let memory = Arc::new(Memory::default());
    let worker = Worker::start(queue.clone(), memory.clone(), Config { window_likes: Some(2_000), ..config() });
    until("all are settled, a thousand on a budget of fifty", || queue.seen().settled >= 1_000).await;
    assert_eq!(count(&*memory, "p").await, (1_000, 1_000));
    let asked = tokio::time::Instant::now();
    let report = worker.stop().await;
    assert!(asked.elapsed() <= config().drain_timeout + SECOND, "{:?}", asked.elapsed());
    assert_eq!(report.unconfirmed, queue.seen().settled as u64, "nobody ever answered");
}
