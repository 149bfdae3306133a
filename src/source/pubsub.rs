//! Google Cloud Pub/Sub, or its emulator: `pubsub://PROJECT/SUBSCRIPTION`, see [`Options`] for what may follow.
//!
//! Leases are the client library's: it extends them while a token lives, up to the max lease. A settled token leaves in
//! the next acknowledgement, at most 100 ms later; a dropped one is a nack, and the message comes back after the
//! subscription's retry backoff. Every nack and every lease that runs out is a delivery attempt.

mod access;
mod check;
pub mod dead_letters;
mod failure;
mod options;
pub mod setup;
mod stream;

pub use access::Access;
pub use options::Options;

use super::{ConnectError, Finding, Source, SourceError, Stream};
use crate::common::sync::Locked;
use async_trait::async_trait;
use check::Unseen;
use failure::FailuresInARow;
use futures::FutureExt;
use futures::future::join_all;
use google_cloud_pubsub::client::Subscriber;
use google_cloud_pubsub::subscriber::{MessageStream, ShutdownToken};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;

/// How long `close` waits for acknowledgements to be sent. They need one round trip, 100 ms after the last token; a
/// container has usually 30 s from SIGTERM to SIGKILL, and the flush before this needs its share. What is not sent by
/// then is delivered again and changes no count.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Payload bytes that the service may have out on one stream. 250 likes are about 100 KiB, so the number of
/// messages decides; this bounds a flood of large poison to 256 MiB over 32 streams (the client's own default is 100
/// MiB a stream).
const OUTSTANDING_BYTES: i64 = 8 << 20;

/// The source. Clones of what it opens share it.
pub struct PubSub(Arc<Shared>);

struct Shared {
    options: Options,
    access: Access,
    /// The client that new streams use. Replaced by the first stream that gives up its connection.
    client: tokio::sync::Mutex<Client>,
    open: Mutex<Registry>,
    /// One for each stream number.
    failures: Vec<FailuresInARow>,
    closing: AtomicBool,
    /// Whether Pub/Sub did not answer when it was asked last.
    silent: AtomicBool,
    /// Tells every stream to open anew.
    reopen: watch::Sender<()>,
}

#[derive(Clone)]
struct Client {
    /// Counts connections, so that streams that give up the same one replace it once.
    generation: u64,
    subscriber: Subscriber,
}

/// The shutdown tokens of streams: those that are open, and those that were dropped while deliveries of theirs were
/// held. A retired one stays while a token of it lives or an acknowledgement is on its way, so that there are never more
/// of them than held deliveries, plus those of the last 100 ms.
#[derive(Default)]
struct Registry {
    next: u64,
    open: BTreeMap<u64, ShutdownToken>,
    retired: Vec<ShutdownToken>,
}

impl PubSub {
    /// Reads the URL and looks whether the subscription exists and can be pulled.
    ///
    /// # Errors
    /// When the URL is not understood, Pub/Sub does not answer, or the subscription is missing or is not one that can
    /// be pulled. The text says what to do.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::open(Options::parse(url)?).await
    }

    /// Looks whether the subscription exists and can be pulled. Without an emulator in `options` the variable
    /// `PUBSUB_EMULATOR_HOST` is honoured.
    ///
    /// # Errors
    /// As [`PubSub::connect`].
    pub async fn open(options: Options) -> Result<Self, ConnectError> {
        options.check().map_err(|problem| ConnectError::BadUrl { url: options.name(), problem })?;
        let access = Access::new(options.emulator.as_deref());
        let unavailable = |problem| ConnectError::Unavailable { url: options.name(), problem };
        let seen = look(&options, &access).await.map_err(unavailable)?;
        if !seen {
            tracing::warn!(source = options.name(), "this account may not look at the subscription; pulling tells");
        }
        let subscriber = access.subscriber(options.streams).await;
        let subscriber = subscriber.map_err(|e| unavailable(failure::no_client(&e, &access)))?;
        let began = tokio::time::Instant::now().into_std();
        let failures = (0..options.streams).map(|_| FailuresInARow::new(seen, began)).collect();
        Ok(Self(Arc::new(Shared {
            options,
            access,
            client: tokio::sync::Mutex::new(Client { generation: 0, subscriber }),
            open: Mutex::default(),
            failures,
            closing: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            reopen: watch::Sender::new(()),
        })))
    }
}

/// Looks at the subscription and refuses one that cannot be used. An account that may consume it need not be allowed to
/// look: then its streams will tell, and the answer is `false`.
async fn look(options: &Options, access: &Access) -> Result<bool, String> {
    match check::look(options, access).await {
        Ok(subscription) => {
            let unfit =
                check::cannot_be_pulled(&subscription).or_else(|| check::other_delivery(&subscription, options));
            unfit.map_or(Ok(true), Err)
        }
        Err(Unseen::NotAllowed) => Ok(false),
        Err(Unseen::Missing(told) | Unseen::NoAnswer(told)) => Err(told),
    }
}

#[async_trait]
impl Source for PubSub {
    fn name(&self) -> String {
        self.0.options.name()
    }

    fn max_outstanding(&self) -> Option<usize> {
        let options = &self.0.options;
        Some(options.streams.saturating_mul(options.outstanding as usize))
    }

    fn streams(&self) -> usize {
        self.0.options.streams
    }

    fn max_lease(&self) -> Option<Duration> {
        Some(self.0.options.max_lease)
    }

    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError> {
        if self.0.is_closing() {
            let message = format!("{} was closed", self.name());
            return Err(SourceError { transient: false, message, source: None });
        }
        let client = self.0.client.lock().await.clone();
        Ok(Box::new(stream::PubSubStream::new(self.0.clone(), number, client)))
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        check::check(&self.0.options, &self.0.access).await
    }

    /// Looks at the subscription, on a connection of its own. When Pub/Sub answers again after it did not, every stream
    /// opens anew: the connections of before may be dead, and the client library takes them for quiet. Whatever it says
    /// is an answer.
    async fn ping(&self) -> Result<(), SourceError> {
        let silent = match check::look(&self.0.options, &self.0.access).await {
            Err(Unseen::NoAnswer(message)) => Some(message),
            Ok(_) | Err(Unseen::NotAllowed | Unseen::Missing(_)) => None,
        };
        if self.0.silent.swap(silent.is_some(), Ordering::AcqRel) && silent.is_none() {
            self.0.reopen.send_replace(());
        }
        silent.map_or(Ok(()), |message| Err(SourceError { transient: true, message, source: None }))
    }

    async fn close(&self) {
        self.0.closing.store(true, Ordering::Release);
        let tokens: Vec<ShutdownToken> = {
            let mut registry = self.0.registry();
            let retired = std::mem::take(&mut registry.retired);
            registry.open.values().cloned().chain(retired).collect()
        };
        // Each ends when no delivery of its stream is held any more and its last acks and nacks were answered.
        let all = join_all(tokens.iter().map(ShutdownToken::shutdown));
        if tokio::time::timeout(CLOSE_WITHIN, all).await.is_err() {
            tracing::warn!(
                source = self.name(),
                within_s = CLOSE_WITHIN.as_secs(),
                "not every acknowledgement was sent in time; those deliveries come back and change no count"
            );
        }
    }
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each change under the lock is one insertion or removal; a panic leaves none half done.
        self.open.locked()
    }

    /// Starts a stream of `client`, and keeps what is needed to wait for its acks. It connects at its first poll.
    fn start(&self, client: &Client) -> (u64, MessageStream) {
        let stream = client
            .subscriber
            .subscribe(self.options.subscription_path())
            .set_max_lease(self.options.max_lease)
            .set_max_lease_extension(self.options.extension)
            .set_max_outstanding_messages(self.options.outstanding)
            .set_max_outstanding_bytes(OUTSTANDING_BYTES)
            .build();
        let mut registry = self.registry();
        let id = registry.next;
        registry.next += 1;
        registry.open.insert(id, stream.shutdown_token());
        (id, stream)
    }

    /// The stream `id` is about to be dropped.
    fn retire(&self, id: u64) {
        let mut registry = self.registry();
        if let Some(token) = registry.open.remove(&id) {
            // Asking a retired token costs nothing: its stream is cancelled already.
            registry.retired.retain(|old| old.shutdown().now_or_never().is_none());
            registry.retired.push(token);
        }
    }

    /// A client on another connection than the one of `generation`. Streams that give up the same connection at the
    /// same time get the same new one.
    async fn connect_anew(&self, generation: u64, why: &str) -> Result<Client, SourceError> {
        let mut client = self.client.lock().await;
        if client.generation == generation {
            let subscriber = self.access.subscriber(self.options.streams).await.map_err(|e| SourceError {
                transient: true,
                message: failure::no_client(&e, &self.access),
                source: Some(Box::new(e)),
            })?;
            *client = Client { generation: generation + 1, subscriber };
            tracing::info!(source = self.options.name(), "streams go to a new connection, for {why}");
        }
        Ok(client.clone())
    }
}
