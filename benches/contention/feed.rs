//! An endless source in this process: the generator's messages, as fast as they are pulled or at a rate.

use async_trait::async_trait;
use bytes::Bytes;
use hotcount::lab::load::{Config, Generator, MAX_EVENTS, Plan, Shape};
use hotcount::source::ack::{Ack, SettleMany, Settlement};
use hotcount::source::{Delivery, Source, SourceError, Stream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// More likes than anybody pulls, each of another user, of so many posts.
pub(crate) fn load(shape: Shape, posts: u64, seed: u64) -> Config {
    Config { shape, posts, messages: MAX_EVENTS, users: u64::from(u32::MAX) - 1, seed, ..Config::default() }
}

/// One stream of messages, shared by all workers.
pub(crate) struct Feed {
    generator: Mutex<Generator<'static>>,
    began: Instant,
    events_per_s: Option<f64>,
}

/// Nobody redelivers here, so tokens have nobody to tell.
struct Nobody;

impl SettleMany for Nobody {
    fn settled(&self, _: u32, _: &Settlement) {}
    fn dropped(&self, _: u32) {}
}

impl Feed {
    /// The messages of `config`; with a rate, none comes before its time.
    pub(crate) fn new(config: Config, events_per_s: Option<f64>) -> Arc<Self> {
        // A benchmark makes a few dozen of them, and the process ends soon.
        let plan: &'static Plan = Box::leak(Box::new(Plan::new(config).expect("such a load can be")));
        Arc::new(Self { generator: Mutex::new(plan.generate()), began: Instant::now(), events_per_s })
    }

    /// When a message is due.
    pub(crate) fn due(&self, number: u64) -> Instant {
        self.events_per_s.map_or(self.began, |rate| self.began + Duration::from_secs_f64(number as f64 / rate))
    }

    /// The next messages that are due, up to `max`; none of them when none is.
    fn take(&self, max: usize) -> Vec<Bytes> {
        let mut generator = self.generator.lock().expect("nobody panics with it");
        let now = Instant::now();
        let (mut bytes, mut ends) = (Vec::with_capacity(max * 160), Vec::with_capacity(max));
        while ends.len() < max && self.due(generator.sent()) <= now {
            generator.write_next(&mut bytes).expect("more messages than anybody pulls");
            ends.push(bytes.len());
        }
        let (bytes, mut from) = (Bytes::from(bytes), 0);
        ends.into_iter().map(|end| bytes.slice(std::mem::replace(&mut from, end)..end)).collect()
    }

    fn next_due(&self) -> Instant {
        self.due(self.generator.lock().expect("nobody panics with it").sent())
    }
}

/// A worker's way to the feed.
pub(crate) struct Worker(pub(crate) Arc<Feed>);

#[async_trait]
impl Source for Worker {
    fn name(&self) -> String {
        "feed".to_owned()
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        Ok(Box::new(Pull(Arc::clone(&self.0), Arc::new(Nobody))))
    }
}

struct Pull(Arc<Feed>, Arc<dyn SettleMany>);

#[async_trait]
impl Stream for Pull {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        loop {
            tokio::time::sleep_until(self.0.next_due()).await;
            let messages = self.0.take(max);
            if !messages.is_empty() {
                let delivery = |payload| Delivery {
                    payload,
                    received_at: SystemTime::UNIX_EPOCH + Duration::from_secs(100 * 365 * 86_400),
                    meta: None,
                    ack: Ack::of_many(Arc::clone(&self.1), 0),
                    share: None,
                };
                return Ok(messages.into_iter().map(delivery).collect());
            }
        }
    }
}
