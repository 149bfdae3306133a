//! The way from a publisher to the engine, and what it takes by itself.

use crate::STREAMS;
use crate::support::publish::Topic;
use async_trait::async_trait;
use hotcount::source::memory::{Config, Memory};
use hotcount::source::{Delivery, Source, SourceError, Stream};
use hotcount::telemetry::Latencies;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// When each like is to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) began: Instant,
    pub(crate) per_s: f64,
}

impl Pace {
    pub(crate) fn due(&self, number: u64) -> Instant {
        self.began + Duration::from_secs_f64(number as f64 / self.per_s)
    }

    /// How many are due.
    pub(crate) fn due_by(&self, now: Instant) -> u64 {
        (now.saturating_duration_since(self.began).as_secs_f64() * self.per_s) as u64
    }
}

/// Where likes are published.
#[derive(Clone)]
pub(crate) enum Way {
    InProcess(Memory),
    OverTheEmulator(Arc<Topic>),
}

impl Way {
    pub(crate) async fn in_process() -> (Self, Arc<dyn Source>) {
        let memory = Memory::new(Config { received_at: Arc::new(SystemTime::now), ..Config::default() });
        (Self::InProcess(memory.clone()), Arc::new(memory))
    }

    pub(crate) async fn over_the_emulator() -> (Self, Arc<dyn Source>) {
        let topic = Topic::new(|subscription| subscription).await.expect("the emulator is there");
        let source = hotcount::connect::source(&topic.url(&format!("streams={STREAMS}")))
            .await
            .expect("the subscription is there");
        (Self::OverTheEmulator(Arc::new(topic)), source)
    }

    pub(crate) async fn publish(&self, payloads: Vec<String>) {
        match self {
            Self::InProcess(memory) => {
                for payload in payloads {
                    memory.publish(payload).expect("the line is long enough");
                }
            }
            Self::OverTheEmulator(topic) => topic.publish_all(payloads).await,
        }
    }
}

/// A source that notes how long after its time each like of a post is delivered.
pub(crate) struct Timed {
    inner: Arc<dyn Source>,
    noted: Arc<Noted>,
}

/// What a [`Timed`] source has seen.
pub(crate) struct Noted {
    pace: Pace,
    pub(crate) delivery: Latencies,
    pub(crate) delivered: AtomicU64,
}

impl Timed {
    pub(crate) fn new(inner: Arc<dyn Source>, pace: Pace) -> (Arc<Self>, Arc<Noted>) {
        let noted = Arc::new(Noted { pace, delivery: Latencies::default(), delivered: AtomicU64::new(0) });
        (Arc::new(Self { inner, noted: Arc::clone(&noted) }), noted)
    }
}

#[async_trait]
impl Source for Timed {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn streams(&self) -> usize {
        self.inner.streams()
    }

    fn max_lease(&self) -> Option<Duration> {
        self.inner.max_lease()
    }

    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError> {
        Ok(Box::new(TimedStream { inner: self.inner.open(number).await?, noted: Arc::clone(&self.noted) }))
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct TimedStream {
    inner: Box<dyn Stream>,
    noted: Arc<Noted>,
}

#[async_trait]
impl Stream for TimedStream {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let deliveries = self.inner.pull(max).await?;
        let now = Instant::now();
        for delivery in &deliveries {
            self.noted.delivery.record(now.saturating_duration_since(self.noted.pace.due(number(&delivery.payload))));
        }
        self.noted.delivered.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
        Ok(deliveries)
    }
}

/// Like `number` of `post`.
pub(crate) fn like(post: &str, number: u64) -> String {
    format!(
        r#"{{"userId":"{number:012}","postId":"{post}","type":"like.added","eventId":"{post}-{number}","occurredAt":"2026-01-01T00:00:00Z"}}"#
    )
}

fn number(payload: &[u8]) -> u64 {
    const AT: usize = r#"{"userId":""#.len();
    payload[AT..AT + 12].iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}
