//! The source port: where deliveries come from, and where their ack tokens are made.
//!
//! A source does not know what a like is. An adapter is chosen by URL in [`crate::connect`] and passes the one
//! conformance suite in `tests/pubsub/conformance.rs`.

pub mod ack;
#[cfg(feature = "http")]
pub mod http;
pub mod in_flight;
pub mod jsonl;
pub mod memory;
#[cfg(feature = "pubsub")]
pub mod pubsub;
pub mod settled;

use crate::common::adapter_url::UrlError;
use crate::source::ack::Ack;
use crate::source::in_flight::Share;
use async_trait::async_trait;
use bytes::Bytes;
use std::time::{Duration, SystemTime};

/// What the broker says about a message, beside its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The broker's id; a publisher's retry has a new one.
    pub message_id: Option<String>,
    /// The message's attributes.
    pub attributes: Vec<(String, String)>,
    /// When it was published.
    pub published_at: Option<SystemTime>,
    /// Which delivery attempt this is, where the broker counts them.
    pub attempt: Option<u32>,
}

/// Bytes and an ack token.
#[derive(Debug)]
pub struct Delivery {
    /// The payload: one event, or poison.
    pub payload: Bytes,
    /// When the source received it.
    pub received_at: SystemTime,
    /// What the broker says about it; `None` where there is no broker.
    pub meta: Option<Box<Meta>>,
    /// The right to acknowledge it.
    pub ack: Ack,
    /// Its room in the budget, where the source has taken it: see [`RoomTaken`].
    pub share: Option<Share>,
}

/// Who takes the room in the budget that a delivery needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomTaken {
    /// Whoever pulls: it asks for no more deliveries than there is room for.
    ByPuller,
    /// The source, before a delivery can be pulled: its senders come unasked, and are made to wait while there is none.
    BySource,
}

impl Delivery {
    /// The bytes that it holds beside what every delivery costs: payload, message id, and attributes with their places.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let attribute = |(key, value): &(String, String)| size_of::<(String, String)>() + key.len() + value.len();
        let meta = self.meta.as_deref().map_or(0, |meta| {
            meta.message_id.as_ref().map_or(0, String::len) + meta.attributes.iter().map(attribute).sum::<usize>()
        });
        self.payload.len() + meta
    }

    /// When the message was published, or received where that is not known.
    #[must_use]
    pub fn seen_at(&self) -> SystemTime {
        self.meta.as_ref().and_then(|m| m.published_at).unwrap_or(self.received_at)
    }
}

/// A source's failure.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// Whether opening the stream again may help. If not, the worker stops with this error.
    pub transient: bool,
    /// What happened, and what to do where that is known.
    pub message: String,
    /// The cause, where there is one.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What a finding of [`Source::check`] means for the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Nothing, or nothing new, can arrive while it lasts: the worker is not ready.
    NothingArrives,
    /// Deliveries come, and something will go wrong some day. It is said in the log.
    Advice,
}

/// Something about the place that deliveries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about, such as `topic`. No two findings of one check share it.
    pub name: &'static str,
    /// What was found and what to do, in a sentence.
    pub told: String,
    /// What it means.
    pub weight: Weight,
}

/// Where deliveries come from.
#[async_trait]
pub trait Source: Send + Sync {
    /// Names the source in quarantine and logs, such as `pubsub://project/subscription`.
    fn name(&self) -> String;

    /// How many streams serve it best.
    fn streams(&self) -> usize {
        1
    }

    /// How long a delivery may be held before the source takes it back; `None` for as long as one likes.
    fn max_lease(&self) -> Option<Duration> {
        None
    }

    /// How many deliveries it hands out at once, where it has such a bound: when all of them are held, no more come until one
    /// is settled or dropped. `None` where it has none.
    fn max_outstanding(&self) -> Option<usize> {
        None
    }

    /// Who takes the room for its deliveries.
    fn room_taken(&self) -> RoomTaken {
        RoomTaken::ByPuller
    }

    /// Opens stream `number`, counted from 0. Opened again after a transient error.
    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError>;

    /// Whether the source answers at all. Asked now and then while no delivery comes, for a stream that died in silence
    /// looks like one that has nothing to bring.
    async fn ping(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// What is wrong with the place that deliveries come from. Asked at the start and every few minutes, for somebody else
    /// may change it. What this account may not look at is no finding.
    ///
    /// # Errors
    /// When it cannot be looked at now. What was found before stands.
    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        Ok(Vec::new())
    }

    /// Returns when every settled delivery has been acknowledged as far as the source can tell. Called once, at the end
    /// of a shutdown, after the last token was settled or dropped.
    async fn close(&self) {}
}

/// One stream of deliveries. Dropping it stops pulling; tokens of its deliveries stay valid.
#[async_trait]
pub trait Stream: Send {
    /// The next deliveries, up to `max`, at least one; none means that the source has ended.
    ///
    /// Cancel safe: a call that is dropped before it answers loses no delivery.
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError>;

    /// What has been received already, up to `max`, without waiting. Asked for at the end of a stream, again and again until
    /// there is none: giving it back would cost each message a delivery attempt, counting it costs none. A source that
    /// delivers without an end answers only with what it had received about when it was first asked.
    fn received(&mut self, _max: usize) -> Vec<Delivery> {
        Vec::new()
    }
}

/// A URL that names no source, or a source that cannot be opened. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The scheme is not in the table.
    #[error("no source is called '{0}': use pubsub://PROJECT/SUBSCRIPTION or http:")]
    UnknownScheme(String),
    /// The rest of the URL, or an option in its query, is not understood.
    #[error("the source URL '{url}' is not understood: {problem}")]
    BadUrl {
        /// The URL as it may be shown.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It is understood but does not open.
    #[error("the source {url} cannot be opened: {problem}")]
    Unavailable {
        /// The URL as it may be shown.
        url: String,
        /// What happened and what to do.
        problem: String,
    },
}

impl From<UrlError> for ConnectError {
    fn from(UrlError { url, problem }: UrlError) -> Self {
        Self::BadUrl { url, problem }
    }
}
