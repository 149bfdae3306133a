//! What is wrong with the place that deliveries come from is looked for at the start and every few minutes; what is wrong
//! with a clock shows in the deliveries.

use super::{config, event, until};
use crate::faults::{Fault, Faulty};
use async_trait::async_trait;
use hotcount::engine::pipeline;
use hotcount::engine::progress::Progress;
use hotcount::like::event::OrderPolicy;
use hotcount::source::memory::{Config as MessagesConfig, Memory as Messages};
use hotcount::source::{Finding, Source, SourceError, Stream, Weight};
use hotcount::store::Store;
use hotcount::store::memory::Memory;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a check answers; `None` never answers.
type Answer = Option<Result<Vec<Finding>, String>>;

/// A source that is looked at as told.
struct Looked {
    messages: Messages,
    answer: Arc<Mutex<Answer>>,
}

#[async_trait]
impl Source for Looked {
    fn name(&self) -> String {
        self.messages.name()
    }

    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError> {
        self.messages.open(number).await
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let answer = self.answer.lock().unwrap().clone();
        match answer {
            Some(answer) => answer.map_err(|message| SourceError { transient: true, message, source: None }),
            None => std::future::pending().await,
        }
    }
}

struct Place {
    messages: Messages,
    answer: Arc<Mutex<Answer>>,
    progress: Arc<Progress>,
    shutdown: CancellationToken,
}

impl Place {
    fn start(answer: Answer, store: Arc<dyn Store>) -> Self {
        let (messages, progress, shutdown) =
            (Messages::default(), Arc::new(Progress::default()), CancellationToken::new());
        let answer = Arc::new(Mutex::new(answer));
        let source = Looked { messages: messages.clone(), answer: Arc::clone(&answer) };
        tokio::spawn(pipeline::run(
            Arc::new(source),
            store,
            config(),
            shutdown.clone().cancelled_owned(),
            Arc::clone(&progress),
        ));
        Self { messages, answer, progress, shutdown }
    }

    fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn not_ready(&self) -> Vec<String> {
        self.progress.not_ready()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn finding(weight: Weight) -> Finding {
    Finding { name: "topic", told: "the topic was deleted".to_owned(), weight }
}

#[tokio::test(start_paused = true)]
async fn what_a_check_of_the_source_finds_stands_on_readyz_until_it_is_mended() {
    let place = Place::start(Some(Ok(Vec::new())), Arc::new(Memory::default()));
    until("it is ready", || place.not_ready().is_empty()).await;
    let changed = Instant::now();
    place.answer(Some(Ok(vec![finding(Weight::NothingArrives)])));
    until("it is not ready", || place.not_ready() == ["the topic was deleted"]).await;
    assert!(changed.elapsed() <= Duration::from_secs(300), "{:?}", changed.elapsed());
    // Who cannot look knows nothing better.
    place.answer(Some(Err("no route".to_owned())));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(place.not_ready(), ["the topic was deleted"]);
    let mended = Instant::now();
    place.answer(Some(Ok(Vec::new())));
    until("it is ready again", || place.not_ready().is_empty()).await;
    assert!(mended.elapsed() <= Duration::from_secs(30), "{:?}", mended.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_was_wrong_with_the_source_before_the_start_is_found_at_once() {
    let began = Instant::now();
    let place = Place::start(Some(Ok(vec![finding(Weight::NothingArrives)])), Arc::new(Memory::default()));
    until("it is not ready for this alone", || place.not_ready() == ["the topic was deleted"]).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn advice_about_the_source_leaves_the_worker_ready() {
    let place = Place::start(Some(Ok(vec![finding(Weight::Advice)])), Arc::new(Memory::default()));
    until("it is ready", || place.not_ready().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(place.not_ready(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_check_that_never_answers_hides_nothing_else() {
    let store = Faulty::new(Arc::new(Memory::default()), |_, _| Fault::slow(Duration::from_secs(360_000)));
    let place = Place::start(None, store);
    until("it is ready", || place.not_ready().is_empty()).await;
    place.messages.publish(event(1, "p", "u", true, 1)).expect("room");
    let began = Instant::now();
    until("the store is found", || place.not_ready().join("\n").contains("waits for the store")).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// An event that happened so many minutes after 1970 began, when every message is received.
fn at_minute(n: u64, minute: u64) -> String {
    format!(
        r#"{{"eventId":"e{n}","type":"like.added","postId":"p","userId":"u{n}","occurredAt":"1970-01-01T00:{minute:02}:00Z"}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_slow_makes_the_worker_not_ready_and_names_itself_until_it_is_right() {
    let (progress, shutdown) = (Arc::new(Progress::default()), CancellationToken::new());
    let messages = Messages::new(MessagesConfig::default());
    let config = pipeline::Config { order: OrderPolicy::OccurredAt, ..config() };
    let engine = pipeline::run(
        Arc::new(messages.clone()),
        Arc::new(Memory::default()),
        config,
        shutdown.clone().cancelled_owned(),
        Arc::clone(&progress),
    );
    let running = tokio::spawn(engine);
    until("it is ready", || progress.not_ready().is_empty()).await;
    let settled = |messages: &Messages| messages.totals().counted + messages.totals().quarantined;
    // A healthy start, with a sender here and there whose clock is fast.
    for n in 0..200 {
        messages.publish(at_minute(n, if n % 10 == 0 { 20 } else { 0 })).expect("room");
    }
    until("all are settled", || settled(&messages) == 200).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(progress.not_ready(), Vec::<String>::new());
    for n in 1_000..1_300 {
        messages.publish(at_minute(n, 20)).expect("room");
        until("it is settled", || messages.totals().waiting == 0).await;
    }
    until("it is not ready", || progress.not_ready().join("\n").contains("the clock of this machine is slow")).await;
    for n in 2_000..4_000 {
        messages.publish(at_minute(n, 0)).expect("room");
    }
    until("it is ready again", || progress.not_ready().is_empty()).await;
    shutdown.cancel();
    assert!(running.await.expect("no panic").is_ok());
}
