//! What concerns one like alone: a document that cannot be read, one that somebody has locked, a refusal. The others never
//! wait for it, and the worker never takes it for the end of the store.

use super::*;
use hotcount::like::batch::Batch;
use hotcount::store::{StoredFault, Undecidable};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const SECOND: Duration = Duration::from_secs(1);

/// Batches that hold everything which is published at once.
fn one_batch() -> Config {
    Config { batch_writes: Some(122), max_held_deliveries: 300, lanes: Some(1), ..config() }
}

fn place_of(batch: &Batch, user: &str) -> Option<usize> {
    batch.likes().iter().position(|like| like.user() == user)
}

fn undecidable(places: impl IntoIterator<Item = usize>, fault: &StoredFault) -> Fault {
    let one = |place| Undecidable { place, document: "likes/7d2d".to_owned(), fault: fault.clone() };
    Fault::before(ErrorClass::Undecidable(places.into_iter().map(one).collect()))
}

fn unreadable() -> StoredFault {
    StoredFault::Unreadable("user: missing".to_owned())
}

fn publish(source: &Messages, users: std::ops::Range<u64>) {
    for n in users {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
}

#[tokio::test(start_paused = true)]
async fn a_like_whose_document_cannot_be_read_is_quarantined_with_its_name_and_the_others_go_on_at_once() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let store = Faulty::new(memory.clone(), move |batch, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let places: Vec<_> = ["u3", "u50"].iter().filter_map(|user| place_of(batch, user)).collect();
        if places.is_empty() { no_fault() } else { undecidable(places, &unreadable()) }
    });
    publish(&source, 0..100);
    // Folded into the one that cannot be decided: it comes back, and is quarantined for itself.
    source.publish(event(200, "p", "u50", false, 2)).expect("room");
    let began = tokio::time::Instant::now();
    let worker = Worker::start(&source, store, one_batch());
    until("the others are settled", || source.totals().counted == 98).await;
    assert!(began.elapsed() < SECOND / 2 && attempts.load(Ordering::Relaxed) == 2, "{:?}", began.elapsed());
    until("both are quarantined", || source.totals().quarantined == 3).await;
    let report = worker.stop().await;
    assert_eq!((report.counted.poison, report.counted.applied, source.totals().dropped), (3, 98, 1));
    assert_eq!(count(&*memory, "p").await, (98, Some(98)));
    for entry in memory.quarantined(None, PageSize::entries(10)).await.expect("memory can be read").entries {
        assert_eq!(entry.reason, "store: likes/7d2d cannot be read: user: missing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_like_of_a_newer_document_is_left_to_redelivery_with_a_finding_and_without_hurry() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let (attempts, newer) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(true)));
    let (counted, is_newer) = (Arc::clone(&attempts), Arc::clone(&newer));
    let store = Faulty::new(memory.clone(), move |batch, _| match place_of(batch, "u3") {
        Some(place) if is_newer.load(Ordering::Relaxed) => {
            counted.fetch_add(1, Ordering::Relaxed);
            undecidable([place], &StoredFault::Newer(2))
        }
        _ => no_fault(),
    });
    publish(&source, 0..100);
    // This source delivers again at once.
    let worker = Worker::start(&source, store, one_batch());
    until("the others are settled", || source.totals().counted == 99).await;
    tokio::time::sleep(SECOND * 600).await;
    let attempts = attempts.load(Ordering::Relaxed);
    assert!((30..=70).contains(&attempts), "once in ten seconds, not {attempts} times in ten minutes");
    let reasons = worker.progress.not_ready();
    assert!(
        reasons.len() == 1 && reasons[0].contains("likes/7d2d was written by a newer hotcount (v 2"),
        "{reasons:?}"
    );
    assert_eq!((source.totals().quarantined, worker.progress.store_failing()), (0, false));
    newer.store(false, Ordering::Relaxed);
    until("it is counted when it can be", || source.totals().counted == 100).await;
    let over = tokio::time::Instant::now();
    until("the finding ends", || worker.progress.not_ready().is_empty()).await;
    assert!((SECOND * 200..SECOND * 320).contains(&over.elapsed()), "{:?}", over.elapsed());
    worker.stop().await;
    assert_eq!(count(&*memory, "p").await, (100, Some(100)));
}

#[tokio::test(start_paused = true)]
async fn many_likes_of_newer_documents_leave_most_of_the_window_to_the_healthy() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, _| {
        let places: Vec<_> = (0..batch.likes().len()).filter(|n| batch.likes()[*n].user().starts_with("new")).collect();
        if places.is_empty() { no_fault() } else { undecidable(places, &StoredFault::Newer(2)) }
    });
    let worker = Worker::start(&source, store, config());
    for n in 0..200 {
        source.publish(event(n, "p", &format!("new{n}"), true, 1)).expect("room");
    }
    publish(&source, 0..50);
    until("the healthy are settled", || source.totals().counted == 50).await;
    let asked = tokio::time::Instant::now();
    worker.stop().await;
    assert!(asked.elapsed() < SECOND, "a drain does not wait for what it will leave: {:?}", asked.elapsed());
}

/// A store in which somebody has locked the memberships of some users: whatever has them fails after a while.
fn locking(
    memory: &Arc<Memory>,
    locked: &Arc<AtomicBool>,
    is_locked: impl Fn(&str) -> bool + Send + 'static,
    fault: Fault,
) -> Arc<Faulty<Memory>> {
    let locked = Arc::clone(locked);
    Faulty::new(memory.clone(), move |batch, _| {
        let meets = batch.likes().iter().any(|like| is_locked(like.user()));
        if meets && locked.load(Ordering::Relaxed) { fault.clone() } else { no_fault() }
    })
}

#[tokio::test(start_paused = true)]
async fn one_locked_document_holds_its_own_like_alone_and_pauses_nothing() {
    let slow = |class| Fault { delay: SECOND * 20, ..Fault::before(class) };
    for fault in [
        Fault::before(ErrorClass::DidNotCommit),
        Fault::before(ErrorClass::Unknown),
        Fault::before(ErrorClass::Fatal),
        slow(ErrorClass::DidNotCommit),
        slow(ErrorClass::Unknown),
    ] {
        let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
        let locked = Arc::new(AtomicBool::new(true));
        let store = locking(&memory, &locked, |user| user == "u50", fault.clone());
        // It has worked before, so a code that means "never" is not taken for a wrong setting.
        source.publish(event(500, "q", "first", true, 1)).expect("room");
        let worker = Worker::start(&source, store, one_batch());
        until("it works", || source.totals().counted == 1).await;
        let began = tokio::time::Instant::now();
        publish(&source, 0..100);
        until("the healthy of its batch are settled", || source.totals().counted == 100).await;
        // Three rounds of parts; each waits for the lock once.
        let most = fault.delay * 4 + SECOND * 3;
        assert!(began.elapsed() < most, "{fault:?}: {:?}", began.elapsed());
        // Further likes of the member fold, and those of others are not held up.
        for n in 0..20 {
            source.publish(event(1_000 + n, "p", "u50", n % 2 == 0, 2 + n as i64)).expect("room");
            let sent = tokio::time::Instant::now();
            source.publish(event(2_000 + n, "q", &format!("late{n}"), true, 1)).expect("room");
            until("a like beside it is settled", || source.totals().counted == 101 + n).await;
            assert!(sent.elapsed() < SECOND / 2, "{fault:?}, like {n}: {:?}", sent.elapsed());
            assert!(worker.progress.not_ready().is_empty(), "{fault:?}: {:?}", worker.progress.not_ready());
        }
        locked.store(false, Ordering::Relaxed);
        until("it is counted when the lock is gone", || source.totals().counted == 141).await;
        let report = worker.stop().await;
        assert_eq!((report.counted.left, source.totals().dropped, source.totals().quarantined), (0, 0, 0), "{fault:?}");
        // The last toggle is a removal.
        assert_eq!((count(&*memory, "p").await, count(&*memory, "q").await), ((99, Some(99)), (21, Some(21))));
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_quiet_topic_one_locked_document_is_told_from_a_store_that_fails() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let locked = Arc::new(AtomicBool::new(true));
    let store = locking(&memory, &locked, |user| user == "u0", Fault::before(ErrorClass::Unknown));
    let mut config = one_batch();
    config.flush.retry_deadline = Some(SECOND * 120);
    let worker = Worker::start(&source, store, config);
    publish(&source, 0..1);
    let failing = async {
        worker.progress.store_works().await;
        tokio::time::sleep(SECOND * 60).await;
    };
    failing.await;
    assert!(worker.progress.not_ready().is_empty(), "{:?}", worker.progress.not_ready());
    let sent = tokio::time::Instant::now();
    publish(&source, 1..2);
    until("another like is settled", || source.totals().counted == 1).await;
    assert!(sent.elapsed() < SECOND / 2, "{:?}", sent.elapsed());
    until("the locked one is left at its own deadline", || source.totals().dropped == 1).await;
    worker.stop().await;
}

/// Likes a second that are counted while some members of every batch make trouble, or none does. A commit takes 50 ms; one
/// that meets a lock fails after the 20 s that Firestore waits for it.
async fn healthy_rate(trouble: Option<Fault>) -> u64 {
    let source = Messages::new(memory::Config { max_messages: 1 << 20, ..Default::default() });
    let memory = Arc::new(Memory::default());
    let delay = Duration::from_millis(50);
    let store = Faulty::new(memory, move |batch: &Batch, _| {
        let bad = batch.likes().iter().enumerate().filter(|(_, like)| like.user().starts_with("bad"));
        let places: Vec<usize> = bad.map(|(place, _)| place).collect();
        match &trouble {
            Some(_) if places.is_empty() => Fault::slow(delay),
            Some(Fault { error: Some(ErrorClass::Undecidable(_)), .. }) => {
                Fault { delay, ..undecidable(places, &unreadable()) }
            }
            Some(fault) => fault.clone(),
            None => Fault::slow(delay),
        }
    });
    let config = Config { lanes: Some(4), batch_writes: Some(12), max_held_deliveries: 2_000, seed: 1, ..config() };
    let worker = Worker::start(&source, store, config);
    let began = tokio::time::Instant::now();
    let mut sent = 0;
    // More than the lanes can take, as far as the window goes; every hundredth like is of one of six bad members.
    while began.elapsed() < SECOND * 30 {
        while source.totals().waiting < 100 {
            sent += 1;
            let user = if sent % 100 == 0 { format!("bad{}", sent / 100 % 6) } else { format!("u{sent}") };
            source.publish(event(sent, "p", &user, true, sent as i64)).expect("room");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let counted = source.totals().counted;
    worker.running.abort();
    counted
}

#[tokio::test(start_paused = true)]
async fn several_bad_likes_on_every_lane_slow_the_others_by_less_than_a_tenth() {
    let without = healthy_rate(None).await;
    let slow = |class| Fault { delay: SECOND * 20, ..Fault::before(class) };
    for trouble in [
        Fault::before(ErrorClass::Undecidable(Vec::new())),
        Fault::before(ErrorClass::DidNotCommit),
        slow(ErrorClass::DidNotCommit),
        slow(ErrorClass::Unknown),
        Fault::before(ErrorClass::Rejected),
    ] {
        let with = healthy_rate(Some(trouble.clone())).await;
        let share = with as f64 / without as f64;
        println!("{with} likes beside {:?} after {:?}, {without} without: {share:.3}", trouble.error, trouble.delay);
        assert!(share > 0.9, "{share:.3} of what it is without, beside {trouble:?}");
    }
}
