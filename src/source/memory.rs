//! A source in this process: whoever holds it publishes, its streams deliver.
//!
//! It redelivers what is dropped, as a broker does, and remembers what was settled. It reads no clock: receipt times
//! come from [`Config::received_at`]. Deliveries come in the order of publishing, and a dropped one goes to the end of
//! the line, so that a run with the same calls in the same order replays exactly.

mod queue;

use super::{Delivery, Meta, Source, SourceError, Stream};
use crate::common::sync::Locked;
use crate::source::ack::{Ack, Confirmation, Settle, Settlement};
use async_trait::async_trait;
use bytes::Bytes;
use queue::{Letter, Queue};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;

/// Where receipt times come from.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// What the source is like.
#[derive(Clone)]
pub struct Config {
    /// How many streams it asks for. They share one line.
    pub streams: usize,
    /// Messages that may wait or be held at once; publishing more is refused.
    pub max_messages: usize,
    /// Bytes of payload that may wait or be held at once; publishing more is refused.
    pub max_bytes: usize,
    /// How many settlements are remembered, the newest ones. Counts go on without end.
    pub max_remembered: usize,
    /// How long a delivery may be held, where a test wants to have a limit; nothing here enforces it.
    pub max_lease: Option<Duration>,
    /// When a delivery is received. The default is the Unix epoch, always.
    pub received_at: Clock,
}

impl Default for Config {
    /// One stream; a million messages and 256 MiB, far more than a test holds and less than a small machine has.
    fn default() -> Self {
        Self {
            streams: 1,
            max_messages: 1_000_000,
            max_bytes: 256 << 20,
            max_remembered: 100_000,
            max_lease: None,
            received_at: Arc::new(|| SystemTime::UNIX_EPOCH),
        }
    }
}

/// When the source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// When every message was settled.
    WhenSettled,
    /// At once; what still waits is never delivered.
    AtOnce,
}

/// The line is full. The payload comes back.
#[derive(Debug, thiserror::Error)]
#[error("the source holds as many messages as it may")]
pub struct Full(pub Bytes);

/// A settled message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Which message: what [`Memory::publish`] returned.
    pub number: u64,
    /// How it was settled.
    pub how: Settlement,
}

/// How many messages are where. `published = waiting + held + counted + quarantined`, at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages taken in.
    pub published: u64,
    /// Deliveries made, redeliveries included.
    pub delivered: u64,
    /// Deliveries that were dropped and came back.
    pub dropped: u64,
    /// Messages settled as counted.
    pub counted: u64,
    /// Messages settled as quarantined.
    pub quarantined: u64,
    /// Messages that wait for delivery.
    pub waiting: u64,
    /// Messages delivered and neither settled nor dropped.
    pub held: u64,
}

/// The source, and the handle to publish into it. Clones are the same source.
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    config: Config,
    queue: Mutex<Queue>,
    /// Wakes the streams after every change that may let one of them answer.
    changed: Notify,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Memory {
    /// An empty source.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let queue = Mutex::new(Queue::new(config.max_remembered));
        Self(Arc::new(Shared { config, queue, changed: Notify::new() }))
    }

    /// Publishes a payload of which nothing else is known, and returns the message's number, counted from 0.
    ///
    /// # Errors
    /// When the line is full.
    pub fn publish(&self, payload: impl Into<Bytes>) -> Result<u64, Full> {
        self.take_in(payload.into(), None)
    }

    /// Publishes a payload with what a broker would say about it. The attempt counts up from 1 whatever `meta` says.
    ///
    /// # Errors
    /// When the line is full.
    pub fn publish_with(&self, payload: impl Into<Bytes>, meta: Meta) -> Result<u64, Full> {
        self.take_in(payload.into(), Some(Box::new(meta)))
    }

    /// Ends the source. Publishing is still possible until it has ended.
    pub fn finish(&self, when: Finish) {
        self.0.queue().finish(when);
        self.0.changed.notify_waiters();
    }

    /// The newest settlements, oldest first, as many as are remembered.
    #[must_use]
    pub fn settled(&self) -> Vec<Settled> {
        self.0.queue().settled()
    }

    /// How many messages are where.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.0.queue().totals()
    }

    fn take_in(&self, payload: Bytes, meta: Option<Box<Meta>>) -> Result<u64, Full> {
        let Config { max_messages, max_bytes, .. } = self.0.config;
        let number = self.0.queue().publish(payload, meta, max_messages, max_bytes).map_err(Full)?;
        self.0.changed.notify_waiters();
        Ok(number)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue's methods finish their change before anything in them could panic.
        self.queue.locked()
    }
}

#[async_trait]
impl Source for Memory {
    fn name(&self) -> String {
        "memory:".to_owned()
    }

    fn streams(&self) -> usize {
        self.0.config.streams
    }

    fn max_lease(&self) -> Option<Duration> {
        self.0.config.max_lease
    }

    async fn open(&self, _number: usize) -> Result<Box<dyn Stream>, SourceError> {
        Ok(Box::new(Line(self.0.clone())))
    }
}

struct Line(Arc<Shared>);

#[async_trait]
impl Stream for Line {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        loop {
            // Registered before looking: a message published between the look and the wait would wake nobody.
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let (letters, ended) = self.0.queue().take(max.max(1));
            if ended || !letters.is_empty() {
                return Ok(letters.into_iter().map(|letter| self.deliver(letter)).collect());
            }
            changed.await;
        }
    }
}

impl Line {
    fn deliver(&self, letter: Letter) -> Delivery {
        let mut meta = letter.meta.clone();
        if let Some(meta) = &mut meta {
            meta.attempt = Some(letter.attempt);
        }
        Delivery {
            payload: letter.payload.clone(),
            received_at: (self.0.config.received_at)(),
            meta,
            ack: Ack::one(Box::new(Token { shared: self.0.clone(), letter: Some(letter) })),
            share: None,
        }
    }
}

/// Holds the message until it is settled; a token that is dropped puts it back.
struct Token {
    shared: Arc<Shared>,
    /// `None` once settled.
    letter: Option<Letter>,
}

impl Settle for Token {
    fn settle(mut self: Box<Self>, how: &Settlement) -> Option<Confirmation> {
        if let Some(letter) = self.letter.take() {
            self.shared.queue().settle(&letter, how);
            self.shared.changed.notify_waiters();
        }
        None
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(letter) = self.letter.take() {
            self.shared.queue().put_back(letter);
            self.shared.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
