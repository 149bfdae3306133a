//! Streams that break, and what they have received when they end.

use super::{config, event, until};
use async_trait::async_trait;
use futures::FutureExt;
use hotcount::common::backoff::{Backoff, HEALED_AFTER};
use hotcount::engine::pipeline;
use hotcount::engine::progress::Progress;
use hotcount::source::memory::Memory as Messages;
use hotcount::source::{Delivery, Source, SourceError, Stream};
use hotcount::store::memory::Memory;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A source that brings nothing and whose streams break after so long. It notes when they were opened.
#[derive(Clone)]
struct Breaking {
    after: Duration,
    opened: Arc<Mutex<Vec<Instant>>>,
}

#[async_trait]
impl Source for Breaking {
    fn name(&self) -> String {
        "breaking:".to_owned()
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        self.opened.lock().unwrap().push(Instant::now());
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl Stream for Breaking {
    async fn pull(&mut self, _: usize) -> Result<Vec<Delivery>, SourceError> {
        tokio::time::sleep(self.after).await;
        Err(SourceError { transient: true, message: "UNAVAILABLE".to_owned(), source: None })
    }
}

/// The longest pause between two openings, beside the time for which a stream was open.
async fn longest_pause(after: Duration) -> Duration {
    const TIMES: usize = 40;
    let (progress, shutdown) = (Arc::new(Progress::default()), CancellationToken::new());
    let source = Breaking { after, opened: Arc::default() };
    let store = Arc::new(Memory::default());
    let engine = pipeline::run(Arc::new(source.clone()), store, config(), shutdown.clone().cancelled_owned(), progress);
    let running = tokio::spawn(engine);
    for times in 1..=TIMES {
        until("it is opened again", || source.opened.lock().unwrap().len() >= times).await;
    }
    shutdown.cancel();
    assert!(running.await.expect("no panic").is_ok());
    let opened = source.opened.lock().unwrap();
    opened.windows(2).map(|two| two[1] - two[0] - after).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_that_breaks_now_and_then_is_opened_again_at_once_every_time() {
    let base = Backoff::default().base;
    let pause = longest_pause(HEALED_AFTER + Duration::from_secs(60)).await;
    assert!(pause <= base, "{pause:?}");
    let pause = longest_pause(Duration::from_secs(1)).await;
    assert!(pause > base * 10, "one that breaks all the time is opened later and later: {pause:?}");
}

/// A source whose streams bring nothing and have received everything when they are asked at the end.
struct Late(Messages);

struct LateStream(Box<dyn Stream>);

#[async_trait]
impl Source for Late {
    fn name(&self) -> String {
        self.0.name()
    }

    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError> {
        Ok(Box::new(LateStream(self.0.open(number).await?)))
    }
}

#[async_trait]
impl Stream for LateStream {
    async fn pull(&mut self, _: usize) -> Result<Vec<Delivery>, SourceError> {
        std::future::pending().await
    }

    fn received(&mut self, max: usize) -> Vec<Delivery> {
        self.0.pull(max).now_or_never().and_then(Result::ok).unwrap_or_default()
    }
}

/// What the client has received cannot be told from what the worker holds by the broker: both have cost an attempt.
#[tokio::test(start_paused = true)]
async fn a_shutdown_counts_what_its_streams_have_received_as_far_as_there_is_room() {
    for (published, counted) in [(30, 30), (200, config().max_held_deliveries)] {
        let (messages, progress, shutdown) =
            (Messages::default(), Arc::new(Progress::default()), CancellationToken::new());
        let (source, store) = (Arc::new(Late(messages.clone())), Arc::new(Memory::default()));
        let running = tokio::spawn(pipeline::run(
            source,
            store,
            config(),
            shutdown.clone().cancelled_owned(),
            Arc::clone(&progress),
        ));
        until("it is ready", || progress.not_ready().is_empty()).await;
        for n in 0..published as u64 {
            messages.publish(event(n, "p", &format!("u{n}"), true, 1)).expect("room");
        }
        shutdown.cancel();
        let report = running.await.expect("no panic").expect("it works");
        assert_eq!((report.counted.applied, report.counted.left), (counted as u64, 0));
        assert_eq!(messages.totals().waiting, (published - counted) as u64);
    }
}
