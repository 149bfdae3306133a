//! Poison on its way into the quarantine, and a quarantine that fails.

use super::*;
use hotcount::store::PageSize;

#[tokio::test(start_paused = true)]
async fn a_window_full_of_poison_does_not_stall_the_healthy() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store =
        Faulty::new(memory.clone(), |_, _| no_fault()).quarantining(|_| Fault::before(ErrorClass::DidNotCommit));
    let worker = Worker::start(&source, store, config());
    for n in 0..200 {
        source.publish(format!("poison {n}")).expect("room");
    }
    for n in 0..20 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    until("the healthy are settled", || source.totals().counted == 20).await;
    assert_eq!(source.totals().quarantined, 0, "what cannot be quarantined is not acknowledged");
    let report = worker.stop().await;
    assert_eq!(report.counted.poison, 0);
    assert!(report.counted.left > 0);
}

#[tokio::test(start_paused = true)]
async fn one_entry_that_the_quarantine_refuses_takes_no_other_with_it() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let store = Faulty::new(memory.clone(), |_, _| no_fault()).quarantining(|entries| {
        let bad = entries.iter().any(|entry| &entry.data[..] == b"poison 2");
        if bad { Fault::before(ErrorClass::Rejected) } else { no_fault() }
    });
    for n in 0..5 {
        source.publish(format!("poison {n}")).expect("room");
    }
    let worker = Worker::start(&source, store, config());
    until("the others are kept", || source.totals().quarantined == 4).await;
    assert_eq!(source.totals().counted, 0, "what cannot be quarantined is not acknowledged");
    let report = worker.stop().await;
    assert_eq!(report.counted.poison, 4);
    assert_eq!(memory.quarantined(None, PageSize::entries(10)).await.expect("memory can be read").entries.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn entries_that_are_too_large_together_are_kept_in_parts_whatever_code_hides_it() {
    for class in [ErrorClass::DidNotCommit, ErrorClass::Unknown] {
        let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
        let store = Faulty::new(memory.clone(), |_, _| no_fault())
            .quarantining(move |entries| if entries.len() > 1 { Fault::before(class.clone()) } else { no_fault() });
        for n in 0..5 {
            source.publish(format!("poison {n}")).expect("room");
        }
        let report = Worker::start(&source, store, config()).finish().await;
        assert_eq!((report.counted.poison, report.counted.left), (5, 0));
        assert_eq!(source.totals().dropped, 0, "a dropped token is a delivery attempt");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_with_a_quarantine_that_hangs_or_fails_ends_at_its_deadline_and_says_what_is_left() {
    let faults = [Fault::slow(Duration::from_secs(1_000_000)), Fault::before(ErrorClass::Unknown)];
    for fault in faults {
        let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
        let store = Faulty::new(memory, |_, _| no_fault()).quarantining(move |_| fault.clone());
        let worker = Worker::start(&source, store, config());
        for n in 0..3 {
            source.publish(format!("poison {n}")).expect("room");
        }
        // Long enough for the wait between two attempts to be longer than the drain.
        tokio::time::sleep(Duration::from_secs(300)).await;
        let asked = tokio::time::Instant::now();
        let report = worker.stop().await;
        assert_eq!(report.counted.left, 3);
        assert!(asked.elapsed() <= config().drain_timeout + Duration::from_millis(10), "{:?}", asked.elapsed());
        assert_eq!((source.totals().quarantined, source.totals().waiting), (0, 3), "they come back");
    }
}

#[tokio::test(start_paused = true)]
async fn more_poison_than_the_window_holds_waits_for_room_and_none_of_it_is_dropped() {
    let source = Messages::new(memory::Config { max_messages: 1 << 20, ..Default::default() });
    let memory = Arc::new(Memory::default());
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let store = Faulty::new(memory.clone(), |_, _| no_fault()).quarantining(move |entries| {
        seen.lock().unwrap().push(entries.len());
        Fault::slow(Duration::from_millis(20))
    });
    for n in 0..20_000 {
        source.publish(format!("poison {n}")).expect("room");
    }
    let worker = Worker::start(&source, store, Config { max_held_deliveries: 1_000, ..config() });
    let report = worker.finish().await;
    assert_eq!((report.counted.poison, report.counted.left, source.totals().dropped), (20_000, 0, 0));
    let calls = calls.lock().unwrap().len();
    assert!(calls <= 20_000 / 100, "many are kept with one call: {calls}");
}

#[tokio::test(start_paused = true)]
async fn one_entry_that_hangs_or_fails_holds_no_other_poison() {
    let slow = Fault { delay: Duration::from_secs(60), ..Fault::before(ErrorClass::Unknown) };
    for fault in [slow, Fault::before(ErrorClass::DidNotCommit)] {
        let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
        let store = Faulty::new(memory.clone(), |_, _| no_fault()).quarantining(move |entries| {
            let bad = entries.iter().any(|entry| &entry.data[..] == b"poison 0");
            if bad { fault.clone() } else { no_fault() }
        });
        let worker = Worker::start(&source, store, config());
        source.publish("poison 0").expect("room");
        tokio::time::sleep(Duration::from_secs(300)).await;
        for n in 1..100 {
            let sent = tokio::time::Instant::now();
            source.publish(format!("poison {n}")).expect("room");
            until("it is kept", || source.totals().quarantined == n).await;
            assert!(sent.elapsed() < Duration::from_secs(1), "{n}: {:?}", sent.elapsed());
        }
        assert_eq!(source.totals().dropped, 0, "it waits for its own time");
        assert!(!worker.progress.store_failing());
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_drops_no_poison() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let start = tokio::time::Instant::now();
    let away = move || start.elapsed() < Duration::from_secs(600);
    let fault = move || if away() { Fault::before(ErrorClass::Unknown) } else { no_fault() };
    let store = Faulty::new(memory.clone(), move |_, _| fault()).quarantining(move |_| fault());
    for n in 0..200 {
        source.publish(format!("poison {n}")).expect("room");
    }
    let worker = Worker::start(&source, store, config());
    until("the store fails as a whole", || worker.progress.store_failing()).await;
    let report = worker.finish().await;
    assert_eq!((report.counted.poison, source.totals().dropped), (200, 0), "a dropped token is a delivery attempt");
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_that_takes_nothing_is_a_finding_until_it_does() {
    let (source, memory) = (Messages::default(), Arc::new(Memory::default()));
    let start = tokio::time::Instant::now();
    let store = Faulty::new(memory.clone(), |_, _| no_fault()).quarantining(move |_| {
        if start.elapsed() < Duration::from_secs(30) { Fault::before(ErrorClass::DidNotCommit) } else { no_fault() }
    });
    let worker = Worker::start(&source, store, config());
    for n in 0..200 {
        source.publish(format!("poison {n}")).expect("room");
    }
    until("it is a finding", || worker.progress.not_ready().iter().any(|why| why.contains("quarantined"))).await;
    let report = worker.finish().await;
    assert_eq!(report.counted.poison, 200, "what was left came back");
}
