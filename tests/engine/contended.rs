//! Likes that other workers keep writing: they wait aside, and nobody waits for them.

use super::*;

fn bully(batch: &hotcount::like::batch::Batch) -> Option<usize> {
    batch.likes().iter().position(|like| like.user() == "u3")
}

#[tokio::test(start_paused = true)]
async fn contended_likes_go_on_in_a_batch_of_their_own() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, attempt| match bully(batch) {
        Some(place) if batch.likes().len() > 1 => Fault::before(ErrorClass::Contended(vec![place])),
        Some(_) if attempt.number < 4 => Fault::before(ErrorClass::Contended(vec![0])),
        _ => no_fault(),
    });
    for n in 0..8 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let report = Worker::start(&source, store, config()).finish().await;
    assert_eq!((report.counted.applied, source.totals().dropped), (8, 0));
    assert_eq!(count(&*memory, "p").await, (8, Some(8)));
}

#[tokio::test(start_paused = true)]
async fn a_lane_goes_on_while_a_contended_like_is_tried_again_and_further_ones_fold() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let start = tokio::time::Instant::now();
    let batches = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&batches);
    let store = Faulty::new(memory.clone(), move |batch, _| match bully(batch) {
        Some(place) if start.elapsed() < Duration::from_secs(60) => {
            seen.lock().unwrap().push(batch.likes().len());
            Fault { delay: Duration::from_secs(1), ..Fault::before(ErrorClass::Contended(vec![place])) }
        }
        _ => no_fault(),
    });
    let worker = Worker::start(&source, store, Config { lanes: Some(1), max_held_deliveries: 100, ..config() });
    for n in 0..40 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
        source.publish(event(100 + n, "p", "u3", n % 2 == 0, 2 + n as i64)).expect("room");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until("the others are settled", || source.totals().counted == 39).await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(source.totals().held, 41, "the bully's are held");
    let finished = tokio::time::timeout(Duration::from_secs(3_600), worker.finish()).await;
    let report = finished.expect("what waits aside is settled");
    assert_eq!((source.totals().counted, source.totals().dropped, report.counted.left), (80, 0, 0));
    assert!(report.counted.folded >= 36, "{:?}", report.counted);
    // The last toggle is a removal.
    assert_eq!(count(&*memory, "p").await, (39, Some(39)));
    let batches = batches.lock().unwrap();
    assert_eq!(batches.iter().filter(|likes| **likes > 1).count(), 1, "one batch of others has met it: {batches:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_a_like_that_stays_contended_to_redelivery_at_its_deadline() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, _| {
        bully(batch).map_or_else(no_fault, |place| Fault::before(ErrorClass::Contended(vec![place])))
    });
    let worker = Worker::start(&source, store, config());
    for n in 0..8 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    until("the others are settled", || source.totals().counted == 7).await;
    source.publish(event(9, "p", "u3", false, 2)).expect("room");
    until("the second is held too", || source.totals().held == 2).await;
    let asked = tokio::time::Instant::now();
    let report = worker.stop().await;
    assert!(asked.elapsed() <= config().drain_timeout + Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!((report.counted.left, source.totals().waiting), (2, 2), "they come back");
    assert_eq!(count(&*memory, "p").await, (7, Some(7)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_can_never_work_for_one_like_leaves_it_to_redelivery_and_stops_nobody() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |batch, _| match bully(batch) {
        Some(place) if batch.likes().len() > 1 => Fault::before(ErrorClass::Contended(vec![place])),
        Some(_) => Fault::before(ErrorClass::Fatal),
        None => no_fault(),
    });
    let mut config = config();
    config.flush.retry_deadline = Some(Duration::from_secs(300));
    let worker = Worker::start(&source, store, config);
    for n in 0..8 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    until("it is given up at its deadline", || source.totals().dropped == 1).await;
    assert_eq!((source.totals().counted, source.totals().quarantined), (7, 0));
    assert!(!worker.progress.store_failing());
    let report = worker.stop().await;
    assert_eq!((report.counted.applied, count(&*memory, "p").await), (7, (7, Some(7))));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_is_aside_until_its_deadline() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let contended = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_contended = Arc::clone(&contended);
    let store = Faulty::new(memory.clone(), move |batch, _| match bully(batch) {
        Some(place) if is_contended.load(std::sync::atomic::Ordering::Relaxed) => {
            Fault::before(ErrorClass::Contended(vec![place]))
        }
        _ => no_fault(),
    });
    let worker = Worker::start(&source, store, config());
    for n in 0..8 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    until("the others are settled", || source.totals().counted == 7).await;
    let others_stop = async {
        tokio::time::sleep(config().drain_timeout / 5).await;
        contended.store(false, std::sync::atomic::Ordering::Relaxed);
    };
    let (report, ()) = tokio::join!(worker.stop(), others_stop);
    assert_eq!((report.counted.applied, report.counted.left, source.totals().dropped), (8, 0, 0));
    assert_eq!(count(&*memory, "p").await, (8, Some(8)));
}
