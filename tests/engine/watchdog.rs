//! What stands still is seen, said, and in the end not waited for.

use super::{Worker, config, event, until};
use crate::faults::{Fault, Faulty};
use async_trait::async_trait;
use hotcount::engine::pipeline::{self, EngineError};
use hotcount::engine::progress::Progress;
use hotcount::source::memory::{Finish, Memory as Messages};
use hotcount::source::{Source, SourceError, Stream};
use hotcount::store::memory::Memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_a_finding_and_then_ends_the_worker_with_nothing_acknowledged() {
    let (source, start) = (Messages::default(), Instant::now());
    let store = Faulty::new(Arc::new(Memory::default()), |_, _| Fault::slow(100 * HOUR));
    let worker = Worker::start(&source, store, config());
    until("it is ready", || worker.progress.not_ready().is_empty()).await;
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    until("it is not ready", || !worker.progress.not_ready().is_empty()).await;
    assert!((30..60).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let reasons = worker.progress.not_ready().join("\n");
    assert!(reasons.contains("waits for the store to answer, for "), "{reasons}");
    let ended = worker.running.await.expect("no panic");
    assert!(matches!(&ended, Err(EngineError::StandsStill(what)) if what.contains("waits for the store")), "{ended:?}");
    assert!((600..700).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(source.totals().counted, 0);
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_that_never_answers_ends_the_worker_though_likes_go_on() {
    let source = Messages::default();
    let store = Faulty::new(Arc::new(Memory::default()), |_, _| Fault::default());
    let worker = Worker::start(&source, store.quarantining(|_| Fault::slow(100 * HOUR)), config());
    source.publish("rubbish").expect("room");
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    let ended = worker.running.await.expect("no panic");
    assert!(matches!(&ended, Err(EngineError::StandsStill(what)) if what.contains("the quarantine")), "{ended:?}");
    assert_eq!((source.totals().counted, source.totals().quarantined), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_does_not_wait_for_ever_for_a_store_that_never_answers() {
    let source = Messages::default();
    let store = Faulty::new(Arc::new(Memory::default()), |_, _| Fault::slow(100 * HOUR));
    let worker = Worker::start(&source, store, config());
    source.publish(event(1, "p", "u", true, 1)).expect("room");
    until("it is taken", || source.totals().held == 1).await;
    source.finish(Finish::AtOnce);
    let ended = worker.running.await.expect("no panic");
    assert!(matches!(ended, Err(EngineError::StandsStill(_))), "{ended:?}");
}

/// A replay whose input has ended while the store is silent.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stopped_after_its_source_has_ended_drains_within_the_deadline() {
    for payload in [event(1, "p", "u", true, 1), "rubbish".to_owned()] {
        let source = Messages::default();
        let store = Faulty::new(Arc::new(Memory::default()), |_, _| Fault::slow(100 * HOUR));
        let worker = Worker::start(&source, store.quarantining(|_| Fault::slow(100 * HOUR)), config());
        source.publish(payload).expect("room");
        until("it is taken", || source.totals().held == 1).await;
        source.finish(Finish::AtOnce);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = Instant::now();
        worker.shutdown.cancel();
        let report = worker.running.await.expect("no panic").expect("it was asked to stop");
        assert_eq!((report.counted.received, report.counted.left), (1, 1));
        assert!(asked.elapsed() <= config().drain_timeout + Duration::from_secs(1), "{:?}", asked.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_slow_and_answers_is_not_taken_for_one_that_stands_still() {
    let source = Messages::default();
    let store = Faulty::new(Arc::new(Memory::default()), |_, _| Fault::slow(Duration::from_secs(25)));
    let worker = Worker::start(&source, store, config());
    for n in 0..400 {
        source.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
    }
    let report = worker.finish().await;
    assert_eq!((report.counted.applied, report.counted.left), (400, 0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_has_nothing_to_do_for_a_day_is_ready() {
    let worker = Worker::start(&Messages::default(), Arc::new(Memory::default()), config());
    tokio::time::sleep(24 * HOUR).await;
    assert_eq!(worker.progress.not_ready(), Vec::<String>::new());
    worker.stop().await;
}

/// A source that has nothing to bring, and answers as told.
struct Quiet(Messages, Arc<AtomicBool>);

#[async_trait]
impl Source for Quiet {
    fn name(&self) -> String {
        self.0.name()
    }

    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError> {
        self.0.open(number).await
    }

    async fn ping(&self) -> Result<(), SourceError> {
        match self.1.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(SourceError { transient: true, message: "no route".to_owned(), source: None }),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_brings_nothing_is_asked_whether_it_answers_and_the_worker_is_ready_when_it_does() {
    let (answers, shutdown) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
    let (source, progress) = (Quiet(Messages::default(), Arc::clone(&answers)), Arc::new(Progress::default()));
    let store = Arc::new(Memory::default());
    let engine =
        pipeline::run(Arc::new(source), store, config(), shutdown.clone().cancelled_owned(), Arc::clone(&progress));
    let running = tokio::spawn(engine);
    until("it is ready", || progress.not_ready().is_empty()).await;
    until("it is not ready", || !progress.not_ready().is_empty()).await;
    assert_eq!(progress.not_ready(), ["the source does not answer: no route"]);
    answers.store(true, Ordering::Release);
    until("it is ready again", || progress.not_ready().is_empty()).await;
    shutdown.cancel();
    assert!(running.await.expect("no panic").is_ok());
}
