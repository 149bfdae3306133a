//! Events over HTTP: the response is the ack. `POST /v1/events` answers when the effect is durable, and 503 when the
//! sender must send again, which is always safe.
//!
//! A body is read piece by piece and cut into events as it comes, and each event counts in the worker's budget from then
//! until it is settled, whatever becomes of its request. While the budget is full nothing more is read.

mod answer;
mod intake;
mod request;
mod unpack;

use super::{ConnectError, Delivery, Meta, RoomTaken, Source, SourceError, Stream};
use crate::common::adapter_url::{AdapterUrl, Known};
use crate::like::event::attributes_of_headers;
use crate::like::framing::Framing;
use crate::like::inflate::Coding;
use crate::source::in_flight::InFlight;
use answer::Refused;
use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::post;
use futures::StreamExt;
use intake::{Intake, Stage};
use request::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use unpack::Unpacking;

/// The largest body. A request of more is answered 413.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Events that wait for the worker to take them.
const QUEUE_EVENTS: usize = 10_000;

/// How long a request waits to become durable before it is answered 503. Most clients give up after 60 s.
const DEADLINE: Duration = Duration::from_secs(30);

/// How long a body may make no progress.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// How long the rest of a body that was refused is read and thrown away: many senders do not look for an answer before
/// they have sent everything, and see a broken connection instead of it.
const DISCARD_WITHIN: Duration = Duration::from_secs(2);

/// How much of it.
const DISCARD_BYTES: usize = 4 * MAX_BODY_BYTES;

/// The most that a compressed body may hold.
const MAX_UNPACKED_BYTES: usize = 64 << 20;

const KNOWN: &[Known] = &[Known::new("deadline_s", "1 to 86400")];

/// The HTTP source. [`Http::routes`] is what the worker's HTTP face mounts.
pub struct Http {
    shared: Arc<Shared>,
    incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<Delivery>>>,
}

struct Shared {
    queue: mpsc::Sender<Delivery>,
    open_streams: AtomicUsize,
    /// Whether a stream was ever open. Before that the worker is starting, and events wait for it.
    opened: AtomicBool,
    deadline: Duration,
}

impl Shared {
    /// Whether somebody takes events, or is about to.
    fn is_served(&self) -> bool {
        self.open_streams.load(Ordering::Acquire) > 0 || !self.opened.load(Ordering::Acquire)
    }
}

/// What the routes share.
struct Door {
    shared: Arc<Shared>,
    held: Arc<InFlight>,
    /// A place for each event that is so large that it is read in many pieces, see [`intake`].
    large: Semaphore,
    /// Room in KiB for what unpacks bodies, see [`unpack`].
    unpacking_kib: Semaphore,
}

impl Http {
    /// Reads `http:` with the option `deadline_s`, seconds that a request may wait.
    ///
    /// # Errors
    /// When the URL has anything else.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        let url = AdapterUrl::parse(url)?;
        url.placeless("write it as http: alone; `hotcount run --http ADDR` takes the address")?;
        let options = url.options(KNOWN)?;
        Ok(Self::new(options.seconds("deadline_s", 1..=86_400)?.unwrap_or(DEADLINE)))
    }

    /// A source whose requests wait at most `deadline`.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        let (queue, incoming) = mpsc::channel(QUEUE_EVENTS);
        let shared = Shared { queue, open_streams: AtomicUsize::new(0), opened: AtomicBool::new(false), deadline };
        Self { shared: Arc::new(shared), incoming: Arc::new(tokio::sync::Mutex::new(incoming)) }
    }

    /// `POST /v1/events`, for the worker's HTTP server. What the requests hold counts in `held`.
    pub fn routes(&self, held: &Arc<InFlight>) -> Router {
        let large = Semaphore::new(intake::large_events_at_once(held.budget().max_bytes()));
        let unpacking_kib = Semaphore::new(unpack::room_kib(held.budget().max_bytes()));
        let door = Door { shared: Arc::clone(&self.shared), held: Arc::clone(held), large, unpacking_kib };
        Router::new().route("/v1/events", post(post_events)).with_state(Arc::new(door))
    }
}

#[async_trait]
impl Source for Http {
    fn name(&self) -> String {
        "http".to_owned()
    }

    /// A sender has given up by then, and sends again.
    fn max_lease(&self) -> Option<Duration> {
        Some(self.shared.deadline)
    }

    fn room_taken(&self) -> RoomTaken {
        RoomTaken::BySource
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        self.shared.open_streams.fetch_add(1, Ordering::AcqRel);
        self.shared.opened.store(true, Ordering::Release);
        Ok(Box::new(Queue { shared: Arc::clone(&self.shared), incoming: Arc::clone(&self.incoming) }))
    }

    /// Nothing will take what still waits: its senders are told to send again.
    async fn close(&self) {
        let mut incoming = self.incoming.lock().await;
        incoming.close();
        while incoming.recv().await.is_some() {}
    }
}

struct Queue {
    shared: Arc<Shared>,
    incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<Delivery>>>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.open_streams.fetch_sub(1, Ordering::AcqRel);
    }
}

#[async_trait]
impl Stream for Queue {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut deliveries = Vec::new();
        self.incoming.lock().await.recv_many(&mut deliveries, max).await;
        Ok(deliveries)
    }
}

async fn post_events(State(door): State<Arc<Door>>, headers: HeaderMap, body: Body) -> Response {
    let mut body = body.into_data_stream();
    let request = Request::new();
    match take_in(&door, &headers, &request, &mut body).await {
        Ok(many) => request
            .outcome()
            .map_or_else(|| Refused::NotDurable.answer(request.received()), |poison| poison.answer(many)),
        Err(refused) => {
            // Somebody who waits to be told to go on has sent nothing.
            if !headers.contains_key(header::EXPECT) {
                let _ = tokio::time::timeout(DISCARD_WITHIN, discard(&mut body)).await;
            }
            refused.answer(request.received())
        }
    }
}

/// Takes the events of a body, and waits until each is settled or dropped. Answers whether it was sent as many.
async fn take_in(
    door: &Door,
    headers: &HeaderMap,
    request: &Arc<Request>,
    body: &mut BodyDataStream,
) -> Result<bool, Refused> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let length: Option<usize> = header(header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
    if length.is_some_and(|bytes| bytes > MAX_BODY_BYTES) {
        return Err(Refused::TooLarge);
    }
    let encoding = header(header::CONTENT_ENCODING).filter(|name| !name.trim().eq_ignore_ascii_case("identity"));
    let coding = match encoding.map(|name| (Coding::named(name), name)) {
        None => None,
        Some((None, other)) => return Err(Refused::Encoding(other.to_owned())),
        Some((coding, _)) => coding,
    };
    let framing = Framing::of(header(header::CONTENT_TYPE).unwrap_or_default());
    let mut intake = Intake::new(door, request, framing, length.filter(|_| coding.is_none()), cloud_event(headers));
    let all = async {
        let mut unpacking = match coding {
            Some(coding) => Some(Unpacking::begin(door, coding).await),
            None => None,
        };
        let mut bytes = 0;
        while let Some(piece) = intake.next(body).await? {
            bytes += piece.len();
            if bytes > MAX_BODY_BYTES {
                return Err(Refused::TooLarge);
            }
            match &mut unpacking {
                Some(unpacking) => unpacking.take(&piece, &mut intake).await?,
                None => intake.take(&piece).await?,
            }
        }
        if let Some(unpacking) = unpacking {
            unpacking.finish(&mut intake).await?;
        }
        intake.finish().await
    };
    match tokio::time::timeout(door.shared.deadline, all).await {
        Ok(Ok(())) => Ok(intake.many()),
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err(match intake.stage() {
            Stage::Reading => Refused::Slow,
            Stage::WaitingForRoom => Refused::NoRoom,
            Stage::Settling => Refused::NotDurable,
        }),
    }
}

/// What the head says of a CloudEvent in binary mode, whose data is the body.
fn cloud_event(headers: &HeaderMap) -> Option<Meta> {
    let attributes = attributes_of_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    (!attributes.is_empty()).then(|| Meta { attributes, ..Meta::default() })
}

/// Reads a body to its end and keeps nothing of it.
async fn discard(body: &mut BodyDataStream) {
    let mut bytes = 0;
    while let Some(Ok(piece)) = body.next().await {
        bytes += piece.len();
        if bytes > DISCARD_BYTES {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
