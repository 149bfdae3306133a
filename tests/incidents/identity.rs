//! The same like more than once: from the queue, from the publisher, through two subscriptions.

use super::*;
use hotcount::source::Meta;
use hotcount::store::PageSize;

#[tokio::test(start_paused = true)]
async fn acked_ids_resent_on_the_next_pull_change_no_count_incident_1() {
    let lose_some = |number: usize, attempt| if attempt == 1 && number % 50 == 7 { Fate::Lost } else { Fate::Arrives };
    let queue = queue_of(500, Rules { on_ack: lose_some, ..Rules::default() });
    let store = Arc::new(Memory::default());
    queue.finish();
    let report = Worker::start(queue.clone(), store.clone(), config()).ended().await;
    assert_eq!(queue.seen().delivered, 510);
    assert_eq!((report.counted.applied, report.counted.duplicates), (500, 10));
    assert_eq!(count(&*store, "p").await, (500, 500));
}

/// For a minute each commit takes longer than a lease, so that every delivery held comes again while it is held.
async fn leases_that_end_in_bulk(confirms: bool) {
    let queue = queue_of(3_000, Rules { lease: SECOND * 10, streams: 4, confirms, ..Rules::default() });
    let memory = Arc::new(Memory::default());
    let store = failing(&memory, |at| if at < SECOND * 60 { Fault::slow(SECOND * 25) } else { Fault::default() });
    queue.finish();
    let config = Config { batch_writes: Some(500), max_held_deliveries: 1_000, ..config() };
    let report = Worker::start(queue.clone(), store, config).ended().await;
    let seen = queue.seen();
    assert!(seen.too_late > 500, "leases ran out: {seen:?}");
    assert!(seen.most_held <= 1_000, "copies count in the budget too: {seen:?}");
    assert_eq!((report.counted.applied, report.counted.left), (3_000, 0));
    assert_eq!(report.unconfirmed, if confirms { seen.too_late as u64 } else { 0 });
    assert_eq!(count(&*memory, "p").await, (3_000, 3_000));
}

#[tokio::test(start_paused = true)]
async fn a_backlog_whose_leases_run_out_in_bulk_is_counted_once_incident_2() {
    leases_that_end_in_bulk(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_whose_leases_run_out_in_bulk_is_counted_once_with_exactly_once_delivery_incident_38() {
    leases_that_end_in_bulk(true).await;
}

#[tokio::test(start_paused = true)]
async fn acks_that_wait_past_the_deadline_bring_back_likes_that_count_once_incident_4() {
    let every_other = |number: usize, attempt| match attempt {
        1 if number.is_multiple_of(2) => Fate::Late(SECOND * 12),
        _ => Fate::Arrives,
    };
    let queue = queue_of(200, Rules { lease: SECOND * 10, on_ack: every_other, ..Rules::default() });
    let store = Arc::new(Memory::default());
    queue.finish();
    let report = Worker::start(queue.clone(), store.clone(), config()).ended().await;
    assert!(queue.seen().delivered >= 250, "{:?}", queue.seen());
    assert_eq!(report.counted.applied, 200);
    assert_eq!(count(&*store, "p").await, (200, 200));
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_tries_again_under_a_new_message_id_adds_nothing_incident_5() {
    let (source, store) = (Messages::default(), Arc::new(Memory::default()));
    let say = |payload: String, id: &str| {
        let meta = Meta { message_id: Some(id.to_owned()), ..Meta::default() };
        source.publish_with(payload, meta).expect("room");
    };
    for (id, message) in ["m1", "m2", "m3"].iter().enumerate() {
        say(event("e", "p", "u", true, 1), message);
        // The same event id with another payload: the id decides nothing but a tie of one member.
        say(event("e", "p", &format!("other-{}", id % 2), true, 1), message);
    }
    source.finish(hotcount::source::memory::Finish::WhenSettled);
    let report = Worker::start(source.clone(), store.clone(), config()).ended().await;
    assert_eq!(report.counted.applied, 3);
    assert_eq!(report.counted.folded + report.counted.duplicates, 3);
    assert_eq!(count(&*store, "p").await, (3, 3));
}

#[tokio::test(start_paused = true)]
async fn events_that_share_an_id_across_types_posts_and_users_are_told_apart_incident_6() {
    let (source, store) = (Messages::default(), Arc::new(Memory::default()));
    for (post, user) in [("p", "u"), ("p", "v"), ("q", "u")] {
        source.publish(event("e", post, user, true, 1)).expect("room");
    }
    source.publish(event("e", "p", "u", true, 1).replace("like.added", "share.added")).expect("room");
    source.finish(hotcount::source::memory::Finish::WhenSettled);
    let report = Worker::start(source, store.clone(), config()).ended().await;
    assert_eq!((report.counted.applied, report.counted.poison), (3, 1));
    assert_eq!((count(&*store, "p").await, count(&*store, "q").await), ((2, 2), (1, 1)));
    let kept = store.quarantined(None, PageSize::entries(2)).await.expect("memory can be read").entries;
    assert!(kept[0].reason.starts_with("type: "), "{}", kept[0].reason);
}

/// Workers at once on one store, each with a queue of its own that holds `copies` of the same likes.
async fn same_likes_everywhere(workers: usize, copies: usize) -> (u64, Arc<Memory>) {
    let memory = Arc::new(Memory::default());
    let running: Vec<Worker> = (0..workers)
        .map(|_| {
            let queue = Queue::new(Rules::default());
            (0..copies).for_each(|_| (0..40).for_each(|n| queue.publish(like(n))));
            queue.finish();
            // Slow enough that all of them are under way at once.
            Worker::start(queue, failing(&memory, |_| Fault::slow(SECOND)), config())
        })
        .collect();
    let mut applied = 0;
    for worker in running {
        let report = worker.ended().await;
        assert_eq!(report.counted.left, 0);
        applied += report.counted.applied;
    }
    (applied, memory)
}

#[tokio::test(start_paused = true)]
async fn an_event_handled_seven_times_by_three_workers_at_once_counts_once_incident_7() {
    let (applied, memory) = same_likes_everywhere(3, 7).await;
    assert_eq!((applied, count(&*memory, "p").await), (40, (40, 40)));
}

#[tokio::test(start_paused = true)]
async fn two_subscriptions_with_a_worker_each_do_not_both_add_incident_9() {
    let (applied, memory) = same_likes_everywhere(2, 1).await;
    assert_eq!((applied, count(&*memory, "p").await), (40, (40, 40)));
}
