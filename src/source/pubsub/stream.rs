//! One StreamingPull, and the token of each of its deliveries.

use super::super::{Delivery, Meta, SourceError, Stream};
use super::{Client, Shared};
use crate::source::ack::{Ack, AckError, Confirmation, Settle, Settlement};
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::model::Message;
use google_cloud_pubsub::subscriber::MessageStream;
use google_cloud_pubsub::subscriber::handler::Handler;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

/// How many messages a stream that is dropped gives back at once: ten times what the service has out on one by default.
/// What is more comes back when its lease runs out.
const GIVEN_BACK_AT_MOST: usize = 10_000;

/// What the client's stream yields: a message, its last error, or nothing more.
type Item = Option<Result<(Message, Handler), Error>>;

/// A stream of deliveries. Dropping it returns what it had received and not yet delivered; tokens stay valid, for the
/// client goes on extending and acknowledging until the last of them is gone.
pub(super) struct PubSubStream {
    shared: Arc<Shared>,
    number: usize,
    /// The connection it is on.
    generation: u64,
    /// Its place in the registry.
    id: u64,
    state: State,
    /// When a wait that brought nothing gives up the connection. Counted from the wait's own beginning: a caller that
    /// does not pull for long, because it is full, says nothing about the connection.
    idle_at: Instant,
    /// Changes when the streams are to be opened anew.
    reopen: watch::Receiver<()>,
    /// Whether anything was received: until then the client has not even opened it.
    received: bool,
    /// An error that came after deliveries that had to be handed over first.
    broken: Option<SourceError>,
    /// How many more messages are handed over at the end: the service may have no more out, but an emulator may.
    last: usize,
}

/// A wait for a message owns the client's stream, so that a pull which is dropped while it waits drops nothing: the
/// next one waits on. (The client's own wait starts over, and while a stream opens that may be for ever.)
enum State {
    Resting(Box<MessageStream>),
    Waiting(BoxFuture<'static, (Box<MessageStream>, Item)>),
    /// Only while one of the others is being replaced.
    Between,
}

impl PubSubStream {
    pub(super) fn new(shared: Arc<Shared>, number: usize, client: Client) -> Self {
        let (id, stream) = shared.start(&client);
        let idle_at = Instant::now();
        let state = State::Resting(Box::new(stream));
        let reopen = shared.reopen.subscribe();
        let generation = client.generation;
        let last = shared.options.outstanding as usize;
        Self { shared, number, generation, id, state, idle_at, reopen, received: false, broken: None, last }
    }

    /// The next item, or why the connection is to be given up.
    async fn first(&mut self) -> Result<Item, &'static str> {
        if let State::Resting(_) = self.state
            && let State::Resting(mut stream) = std::mem::replace(&mut self.state, State::Between)
        {
            let wait = async move {
                let item = stream.next().await;
                (stream, item)
            };
            self.state = State::Waiting(wait.boxed());
            self.idle_at = Instant::now() + self.shared.options.idle;
        }
        let State::Waiting(wait) = &mut self.state else { return Ok(None) };
        let (stream, item) = tokio::select! {
            biased;
            arrived = wait => arrived,
            () = sleep_until(self.idle_at) => return Err("nothing came for so long that this one may be dead"),
            // The sender lives as long as what is shared.
            _ = self.reopen.changed() => return Err("Pub/Sub answers again and this one may be dead"),
        };
        self.state = State::Resting(stream);
        Ok(item)
    }

    /// What more is there without waiting. Unconstrained, for a task that has spent the runtime's budget for one poll
    /// would see nothing ready; the callers bound how often this is asked.
    fn more(&mut self) -> Option<Item> {
        let State::Resting(stream) = &mut self.state else { return None };
        unconstrained(stream.next()).now_or_never()
    }

    /// Opens the stream anew on a new connection.
    async fn connect_anew(&mut self, why: &str) -> Result<(), SourceError> {
        let client = self.shared.connect_anew(self.generation, why).await?;
        let (id, stream) = self.shared.start(&client);
        self.shared.retire(std::mem::replace(&mut self.id, id));
        self.state = State::Resting(Box::new(stream));
        self.generation = client.generation;
        self.received = false;
        Ok(())
    }

    /// The next of what has arrived and was not pulled.
    fn arrived(&mut self) -> Option<(Message, Handler)> {
        // Reading may open the stream anew, which needs the runtime.
        tokio::runtime::Handle::try_current().ok()?;
        let item = if let State::Waiting(wait) = &mut self.state {
            let (stream, item) = unconstrained(wait).now_or_never()?;
            self.state = State::Resting(stream);
            self.received = true;
            item
        } else if self.received {
            self.more()?
        } else {
            None
        };
        item?.ok()
    }

    /// Takes what has arrived and was not pulled, and drops it: a nack, so that somebody else gets it soon. Left alone it
    /// would stay out until its lease runs out, for this client knows only what was read from the connection.
    fn give_back(&mut self) {
        for _ in 0..GIVEN_BACK_AT_MOST {
            if self.arrived().is_none() {
                break;
            }
        }
    }

    fn judge(&self, error: Error) -> SourceError {
        let Shared { options, access, failures, .. } = &*self.shared;
        failures[self.number % failures.len()].judge(error, Instant::now().into_std(), options, access)
    }
}

#[async_trait]
impl Stream for PubSubStream {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut item = loop {
            if let Some(error) = self.broken.take() {
                return Err(error);
            }
            match self.first().await {
                Ok(item) => break item,
                Err(why) => self.connect_anew(why).await?,
            }
        };
        // No await from here on: what was taken from the client is handed over or dropped by nobody but the caller.
        let received_at = SystemTime::now();
        let mut deliveries = Vec::new();
        loop {
            match item {
                Some(Ok((message, handler))) => deliveries.push(deliver(message, handler, received_at)),
                Some(Err(error)) => self.broken = Some(self.judge(error)),
                None if self.shared.is_closing() => break,
                None => self.broken = Some(ended(self.shared.options.name())),
            }
            if self.broken.is_some() || deliveries.len() >= max.max(1) {
                break;
            }
            match self.more() {
                Some(next) => item = next,
                None => break,
            }
        }
        if deliveries.is_empty() {
            return self.broken.take().map_or(Ok(deliveries), Err);
        }
        self.shared.failures[self.number % self.shared.failures.len()].worked();
        self.received = true;
        Ok(deliveries)
    }

    fn received(&mut self, max: usize) -> Vec<Delivery> {
        let received_at = SystemTime::now();
        let most = max.min(self.last);
        let arrived = std::iter::from_fn(|| self.arrived()).take(most);
        let deliveries: Vec<_> = arrived.map(|(message, handler)| deliver(message, handler, received_at)).collect();
        self.last -= deliveries.len();
        deliveries
    }
}

impl Drop for PubSubStream {
    fn drop(&mut self) {
        self.give_back();
        self.shared.retire(self.id);
    }
}

fn ended(name: String) -> SourceError {
    SourceError { transient: true, message: format!("a stream of {name} ended"), source: None }
}

fn deliver(message: Message, handler: Handler, received_at: SystemTime) -> Delivery {
    let meta = Meta {
        message_id: Some(message.message_id).filter(|id| !id.is_empty()),
        attributes: sorted(message.attributes),
        published_at: message.publish_time.and_then(|time| SystemTime::try_from(time).ok()),
        attempt: handler.delivery_attempt().and_then(|n| u32::try_from(n).ok()),
    };
    Delivery {
        // Copied, for the client's bytes are a slice of the whole response: one small message held for long would keep
        // thousands of others in memory, which nobody counts.
        payload: Bytes::copy_from_slice(&message.data),
        received_at,
        meta: Some(Box::new(meta)),
        ack: Ack::one(Box::new(Token(handler))),
        share: None,
    }
}

/// A map has no order; what is stored and shown should have one.
fn sorted(attributes: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut sorted: Vec<_> = attributes.into_iter().collect();
    sorted.sort_unstable();
    sorted
}

/// Dropping the client's handler is a nack.
struct Token(Handler);

impl Settle for Token {
    fn settle(self: Box<Self>, _how: &Settlement) -> Option<Confirmation> {
        match self.0 {
            Handler::ExactlyOnce(handler) => {
                let mut confirmed =
                    async { handler.confirmed_ack().await.map_err(|e| AckError(e.to_string())) }.boxed();
                // The first poll is what sends it: an acknowledgement does not wait until somebody asks for the answer.
                // The stream's shutdown waits for the answer as long as this future lives.
                match (&mut confirmed).now_or_never() {
                    Some(answer) => Some(std::future::ready(answer).boxed()),
                    None => Some(confirmed),
                }
            }
            handler => {
                handler.ack();
                None
            }
        }
    }
}
