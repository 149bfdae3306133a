//! What follows each class of failure, and an outage of the store as a whole.

use super::*;
use hotcount::store::PageSize;

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_recognised_by_the_batch_key() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |_, attempt| match attempt.number {
        1 => Fault::after(ErrorClass::Unknown),
        _ => {
            assert!(attempt.resuming, "the key is read first");
            no_fault()
        }
    });
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    let report = Worker::start(&source, store, config()).finish().await;
    assert_eq!((report.counted.applied, report.counted.duplicates), (1, 0), "the key tells what the first try did");
    assert_eq!(count(&*memory, "p").await, (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn an_outage_stops_pulling_keeps_every_lease_and_dead_letters_nothing() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let start = tokio::time::Instant::now();
    let store = Faulty::new(memory.clone(), move |_, _| {
        if start.elapsed() < Duration::from_secs(600) { Fault::before(ErrorClass::Unknown) } else { no_fault() }
    });
    let worker = Worker::start(&source, store, config());
    for n in 0..10 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    until("the store fails as a whole", || worker.progress.store_failing()).await;
    for n in 10..500 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(source.totals().held <= 50, "the pull that was under way may still end");
    let report = worker.finish().await;
    assert_eq!(source.totals().dropped, 0, "a dropped token is a delivery attempt");
    assert_eq!((report.counted.applied, report.counted.left), (500, 0));
    assert_eq!(count(&*memory, "p").await, (500, Some(500)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_nothing_for_ten_minutes_costs_no_delivery_attempt() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let (start, outage) = (tokio::time::Instant::now(), Duration::from_secs(600));
    let store = Faulty::new(memory.clone(), move |_, _| Fault::slow(outage.saturating_sub(start.elapsed())));
    for n in 0..500 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let worker = Worker::start(&source, store, config());
    tokio::time::sleep(outage - Duration::from_secs(1)).await;
    let totals = source.totals();
    assert_eq!((totals.counted, totals.dropped), (0, 0));
    assert!((40..=50).contains(&totals.held), "{}", totals.held);
    let report = worker.finish().await;
    assert_eq!((source.totals().delivered, source.totals().dropped), (500, 0), "every message was delivered once");
    assert_eq!((report.counted.applied, count(&*memory, "p").await), (500, (500, Some(500))));
}

#[tokio::test(start_paused = true)]
async fn a_like_that_the_store_refuses_is_isolated_and_what_was_folded_into_it_comes_back() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, _| {
        let bad = batch.likes().iter().any(|l| l.event_id() == "e99");
        if bad { Fault::before(ErrorClass::Rejected) } else { no_fault() }
    });
    for n in 0..9 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    source.publish(event(99, "p", "u5", false, 2)).expect("room");
    let report = Worker::start(&source, store, config()).finish().await;
    assert_eq!(report.counted.poison, 1);
    assert_eq!(source.totals().dropped, 1, "the like of u5 was folded into the refused one");
    assert_eq!(count(&*memory, "p").await, (9, Some(9)));
    let kept = memory.quarantined(None, PageSize::entries(10)).await.expect("memory can be read").entries;
    assert!(kept[0].reason.starts_with("store: "), "{}", kept[0].reason);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_a_refused_like_is_looked_up_ends_at_its_deadline() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, _| {
        let bad = batch.likes().iter().any(|l| l.event_id() == "e9");
        if bad { Fault::before(ErrorClass::Rejected) } else { no_fault() }
    });
    for n in [1, 9] {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let worker = Worker::start(&source, store.reading_in(Duration::from_secs(1_000_000)), config());
    until("the healthy like is settled", || source.totals().counted == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = tokio::time::Instant::now();
    let report = worker.stop().await;
    assert_eq!((report.counted.left, source.totals().waiting), (1, 1));
    assert!(asked.elapsed() <= config().drain_timeout + Duration::from_millis(10), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_every_like_stops_the_worker_and_quarantines_nothing() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |_, _| Fault::before(ErrorClass::Rejected));
    for n in 0..10 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let error = Worker::start(&source, store, config()).running.await.expect("no panic").expect_err("stops");
    assert!(matches!(&error, EngineError::Store(e) if e.class == ErrorClass::Fatal), "{error}");
    assert!(memory.quarantined(None, PageSize::entries(10)).await.expect("memory can be read").entries.is_empty());
    assert_eq!((source.totals().counted, source.totals().held), (0, 0), "all come back");
}

#[tokio::test(start_paused = true)]
async fn duplicates_that_need_no_write_are_no_witness_that_the_store_takes_writes() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let already = event(1, "p", "known", true, 1);
    source.publish(already.clone()).expect("room");
    Worker::start(&source, memory.clone(), config()).finish().await;
    // From now on every write is refused, a probe too; a batch of duplicates alone is still answered.
    let source = Messages::default();
    let store = Faulty::new(memory.clone(), |batch, _| {
        let new = batch.likes().iter().any(|like| like.user() != "known");
        if new || batch.likes().is_empty() { Fault::before(ErrorClass::Rejected) } else { no_fault() }
    });
    source.publish(event(2, "p", "new", true, 1)).expect("room");
    let worker = Worker::start(&source, store, Config { recent_likes: Some(0), ..config() });
    let ended = worker.progress.clone();
    for _ in 0..50 {
        source.publish(already.clone()).expect("room");
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let ended_in_time = tokio::time::timeout(Duration::from_secs(3_600), worker.running).await.expect("stops");
    let error = ended_in_time.expect("no panic").expect_err("stops");
    assert!(matches!(&error, EngineError::Store(e) if e.class == ErrorClass::Fatal), "{error}");
    assert!(ended.counted().duplicates > 0, "duplicates were answered meanwhile");
    assert!(memory.quarantined(None, PageSize::entries(10)).await.expect("memory can be read").entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_outage_leaves_a_batch_in_a_few_parts_and_never_hurries() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let start = tokio::time::Instant::now();
    let attempts = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let store = Faulty::new(memory.clone(), move |_, _| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if start.elapsed() < Duration::from_secs(600) { Fault::before(ErrorClass::Unknown) } else { no_fault() }
    });
    for n in 0..100 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let one_batch = Config { batch_writes: Some(102), max_held_deliveries: 200, lanes: Some(1), ..config() };
    let worker = Worker::start(&source, store, one_batch);
    let progress = worker.progress.clone();
    let report = worker.finish().await;
    assert_eq!((report.counted.applied, source.totals().dropped), (100, 0));
    // 100 likes are halved seven times: 50, 25, 12, 6, 3, 2, 1 and 1.
    assert!(progress.commits() <= 8, "{}", progress.commits());
    // Waits grow to 30 s at most, half of that on average: some dozens in ten minutes.
    let attempts = attempts.load(std::sync::atomic::Ordering::Relaxed);
    assert!(attempts < 120, "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn credentials_refused_now_and_then_are_a_refresh_and_refused_always_stop_the_worker() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |_, attempt| match attempt.number {
        1 => Fault::before(ErrorClass::Unauthenticated),
        _ => no_fault(),
    });
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    assert_eq!(Worker::start(&source, store, config()).finish().await.counted.applied, 1);
    let source = Messages::default();
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    let store = Faulty::new(memory, |_, _| Fault::before(ErrorClass::Unauthenticated));
    let error = Worker::start(&source, store, config()).running.await.expect("no panic").expect_err("stops");
    assert!(matches!(error, EngineError::Store(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_is_halved_whatever_code_hides_it() {
    for class in [ErrorClass::DidNotCommit, ErrorClass::Unknown] {
        let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
        let store = Faulty::new(memory.clone(), move |batch, _| {
            if batch.likes().len() > 3 { Fault::before(class.clone()) } else { no_fault() }
        });
        for n in 0..30 {
            source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
        }
        let report = Worker::start(&source, store, config()).finish().await;
        assert_eq!((report.counted.applied, source.totals().dropped), (30, 0));
        assert_eq!(count(&*memory, "p").await, (30, Some(30)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_given_up_at_the_lease_and_its_deliveries_come_back() {
    let source = Messages::new(memory::Config { max_lease: Some(Duration::from_secs(60)), ..Default::default() });
    let memory = Arc::new(Memory::default());
    let start = tokio::time::Instant::now();
    let store = Faulty::new(memory.clone(), move |_, _| {
        if start.elapsed() < Duration::from_secs(700) { Fault::before(ErrorClass::DidNotCommit) } else { no_fault() }
    });
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    let mut config = config();
    config.flush.retry_deadline = Some(config.flush.retry_deadline(Some(Duration::from_secs(60))));
    let worker = Worker::start(&source, store, config);
    until("the like is settled at last", || source.totals().counted == 1).await;
    assert!(source.totals().dropped > 0);
    worker.finish().await;
    assert_eq!(count(&*memory, "p").await, (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_the_batch_key_is_not_taken_for_a_quick_commit() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let shards = Arc::new(Mutex::new(BTreeSet::new()));
    let (seen, mut batches) = (Arc::clone(&shards), 0);
    let store = Faulty::new(memory.clone(), move |_, attempt| {
        if attempt.resuming {
            return no_fault();
        }
        seen.lock().unwrap().insert(attempt.shard);
        batches += 1;
        let lost = if batches % 4 == 0 { Fault::after(ErrorClass::Unknown) } else { no_fault() };
        Fault { delay: Duration::from_millis(100), ..lost }
    });
    for n in 0..600 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let report = Worker::start(&source, store, Config { lanes: Some(1), ..config() }).finish().await;
    assert_eq!((report.counted.applied, count(&*memory, "p").await), (600, (600, Some(600))));
    let shards = shards.lock().unwrap().len();
    assert!(shards <= 5, "one shard and the four that a new lane tries, not {shards}");
}
