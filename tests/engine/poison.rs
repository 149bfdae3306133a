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
        if bad { Fault::before(ErrorClass::BatchCannotWork) } else { no_fault() }
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
