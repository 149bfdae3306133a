//! The store as a whole: when it fails, when it says "never" for some seconds, and what a fleet agrees on.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

const SECOND: Duration = Duration::from_secs(1);

fn publish(source: &Messages, users: std::ops::Range<u64>) {
    for n in users {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_says_never_to_all_for_some_seconds_costs_nothing() {
    for class in [ErrorClass::Rejected, ErrorClass::Fatal, ErrorClass::Unauthenticated] {
        let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
        let start = tokio::time::Instant::now();
        let says = class.clone();
        let store = Faulty::new(memory.clone(), move |_, _| match start.elapsed() {
            at if (SECOND * 10..SECOND * 30).contains(&at) => Fault::before(says.clone()),
            _ => no_fault(),
        });
        let worker = Worker::start(&source, store, config());
        for n in 0..400 {
            publish(&source, n..n + 1);
            tokio::time::sleep(SECOND / 10).await;
        }
        let report = worker.finish().await;
        assert_eq!((report.counted.applied, report.counted.poison), (400, 0), "{class:?}");
        assert_eq!((source.totals().dropped, source.totals().quarantined), (0, 0), "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_says_never_to_a_share_of_the_commits_gets_nothing_quarantined() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let calls = AtomicU32::new(0);
    let start = tokio::time::Instant::now();
    let store = Faulty::new(memory.clone(), move |_, _| {
        let third = calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
        if third && start.elapsed() < SECOND * 25 { Fault::before(ErrorClass::Rejected) } else { no_fault() }
    });
    let worker = Worker::start(&source, store, config());
    for n in 0..300 {
        publish(&source, n..n + 1);
        tokio::time::sleep(SECOND / 10).await;
    }
    let report = worker.finish().await;
    assert_eq!((report.counted.applied, report.counted.poison, source.totals().dropped), (300, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_like_is_refused_for_good_after_half_a_minute_on_a_quiet_topic_and_at_once_when_it_comes_again() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, _| {
        let bad = batch.likes().iter().any(|like| like.user() == "bad");
        if bad { Fault::before(ErrorClass::Rejected) } else { no_fault() }
    });
    let worker = Worker::start(&source, store, config());
    let sent = tokio::time::Instant::now();
    source.publish(event(1, "p", "bad", true, 1)).expect("room");
    tokio::time::sleep(SECOND * 5).await;
    let beside = tokio::time::Instant::now();
    publish(&source, 10..11);
    until("another like is settled", || source.totals().counted == 1).await;
    assert!(beside.elapsed() < SECOND / 2, "{:?}", beside.elapsed());
    until("it is quarantined, though nobody else commits", || source.totals().quarantined == 1).await;
    assert!((SECOND * 30..SECOND * 60).contains(&sent.elapsed()), "{:?}", sent.elapsed());
    let again = tokio::time::Instant::now();
    source.publish(event(1, "p", "bad", true, 1)).expect("room");
    until("its sender did not hear of it", || source.totals().quarantined == 2).await;
    assert!(again.elapsed() < SECOND * 2, "{:?}", again.elapsed());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_like_that_a_sender_gives_up_after_some_seconds_is_refused_for_good_after_half_a_minute_of_tries() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, _| match batch.likes().is_empty() {
        false => Fault::before(ErrorClass::Rejected),
        true => no_fault(),
    });
    let mut config = config();
    config.flush.retry_deadline = Some(SECOND * 8);
    let worker = Worker::start(&source, store, config);
    let sent = tokio::time::Instant::now();
    source.publish(event(1, "p", "bad", true, 1)).expect("room");
    until("it is quarantined", || source.totals().quarantined == 1).await;
    assert!((SECOND * 30..SECOND * 90).contains(&sent.elapsed()), "{:?}", sent.elapsed());
    assert!(source.totals().dropped >= 3, "{:?}", source.totals());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_every_like_is_believed_after_half_a_minute() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory, |_, _| Fault::before(ErrorClass::Rejected));
    publish(&source, 0..10);
    let began = tokio::time::Instant::now();
    let error = Worker::start(&source, store, config()).running.await.expect("no panic").expect_err("stops");
    assert!(error.to_string().contains("refuses every like"), "{error}");
    assert!((SECOND * 30..SECOND * 70).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_work_is_believed_after_half_a_minute_also_at_the_start() {
    for never_s in [3, 25, 3_600] {
        let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
        let began = tokio::time::Instant::now();
        let store = Faulty::new(memory, move |_, _| match began.elapsed() < SECOND * never_s {
            true => Fault::before(ErrorClass::Fatal),
            false => no_fault(),
        });
        publish(&source, 0..10);
        let worker = Worker::start(&source, store, config());
        if never_s < 30 {
            until("it works", || source.totals().counted == 10).await;
            assert_eq!((worker.stop().await.counted.left, source.totals().dropped), (0, 0));
            continue;
        }
        let error = worker.running.await.expect("no panic").expect_err("stops");
        assert!(matches!(error, EngineError::Store(_)), "{error}");
        assert!((SECOND * 30..SECOND * 70).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_seen_by_a_probe_keeps_batches_whole_and_is_over_within_seconds_of_its_end() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let start = tokio::time::Instant::now();
    let store = Faulty::new(memory.clone(), move |_, _| {
        if start.elapsed() < SECOND * 600 { Fault::before(ErrorClass::Unknown) } else { no_fault() }
    });
    publish(&source, 0..50);
    let worker = Worker::start(&source, store, config());
    until("the store fails as a whole", || worker.progress.store_failing()).await;
    until("all are settled", || source.totals().counted == 50).await;
    assert!(start.elapsed() < SECOND * 631, "a probe waits 30 s at most: {:?}", start.elapsed());
    assert!(worker.progress.commits() <= 6, "batches are as they were, not in parts: {}", worker.progress.commits());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_another_order_than_the_fleet_is_refused_before_it_pulls_anything() {
    let memory = Arc::new(Memory::default());
    let first = Messages::default();
    Worker::start(&first, memory.clone(), config()).finish().await;
    let source = Messages::default();
    publish(&source, 0..1);
    let other = Config { order: hotcount::like::event::OrderPolicy::OccurredAt, ..config() };
    let refused = Worker::start(&source, memory, other).running.await.expect("no panic").expect_err("refused");
    let told = refused.to_string();
    assert!(matches!(refused, EngineError::Settings(_)), "{told}");
    assert!(told.contains("order policy version") && told.contains("order policy occurred-at"), "{told}");
    assert_eq!(source.totals().delivered, 0);
}

#[tokio::test(start_paused = true)]
async fn when_all_that_the_source_hands_out_is_held_nothing_waits_for_company() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let long = Config { linger: SECOND * 20, max_held_deliveries: 12, ..config() };
    let worker = Worker::start(&source, memory.clone(), long);
    // Toggles of one member: they fold, so that no batch is ever full.
    for n in 0..60 {
        source.publish(event(n, "p", "u", n % 2 == 0, n as i64)).expect("room");
    }
    let began = tokio::time::Instant::now();
    // Five times the window; what is left at the end is not all of it, and lingers.
    until("all but the last are settled", || source.totals().counted >= 48).await;
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_drain_is_known_when_it_begins_and_includes_closing() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory, |_, _| Fault::slow(SECOND * 1_000_000));
    let worker = Worker::start(&source, store, config());
    publish(&source, 0..5);
    until("the worker holds them", || source.totals().held == 5).await;
    let asked = tokio::time::Instant::now();
    let report = worker.stop().await;
    let ends_by = report.ends_by.expect("somebody asked");
    assert_eq!(ends_by, asked.into_std() + config().drain_timeout);
    assert_eq!(asked.elapsed(), SECOND * 20, "a fifth is kept for closing source and store");
}
