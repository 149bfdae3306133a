//! Events over HTTP: the response is the ack. `POST /v1/events` answers when the effect is durable, and 503 when the
//! sender must send again, which is always safe.

use super::{ConnectError, Delivery, Source, SourceError, Stream};
use crate::ack::{Ack, SettleMany, Settlement};
use crate::adapter_url::{AdapterUrl, Known};
use crate::event::Poison;
use crate::held::Held;
use async_trait::async_trait;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::json;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, Semaphore, mpsc};

/// The largest body. A request of more is answered 413.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Bytes of all bodies that wait for their answer; more is answered 503. In KiB, the unit of its semaphore.
const MAX_WAITING_KIB: usize = 256 << 10;

/// Events that wait for the worker to take them.
const QUEUE_EVENTS: usize = 10_000;

/// How long a request waits to become durable before it is answered 503. Most clients give up after 60 s.
const DEADLINE: Duration = Duration::from_secs(30);

const KNOWN: &[Known] = &[Known::new("deadline_s", "1 to 86400")];

/// The HTTP source. [`Source::routes`] is what the worker's HTTP face mounts.
pub struct Http {
    shared: Arc<Shared>,
    incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<Delivery>>>,
}

struct Shared {
    queue: mpsc::Sender<Delivery>,
    open_streams: AtomicUsize,
    waiting_kib: Semaphore,
    deadline: Duration,
}

impl Http {
    /// Reads `http:` with the option `deadline_s`, seconds that a request may wait.
    ///
    /// # Errors
    /// When the URL has anything else.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        let url = AdapterUrl::parse(url)?;
        url.placeless("write --source http: and give the address with --http ADDR")?;
        let options = url.options(KNOWN)?;
        Ok(Self::new(options.seconds("deadline_s", 1..=86_400)?.unwrap_or(DEADLINE)))
    }

    /// A source whose requests wait at most `deadline`.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        let (queue, incoming) = mpsc::channel(QUEUE_EVENTS);
        let shared =
            Shared { queue, open_streams: AtomicUsize::new(0), waiting_kib: Semaphore::new(MAX_WAITING_KIB), deadline };
        Self { shared: Arc::new(shared), incoming: Arc::new(tokio::sync::Mutex::new(incoming)) }
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

    fn routes(&self, _: &Arc<Held>) -> Option<Router> {
        let events = post(post_events).layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES));
        Some(Router::new().route("/v1/events", events).with_state(Arc::clone(&self.shared)))
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        self.shared.open_streams.fetch_add(1, Ordering::AcqRel);
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

/// One request and what became of its events.
struct Request {
    unsettled: AtomicU32,
    dropped: AtomicU32,
    poison: Mutex<Vec<(u32, Poison)>>,
    finished: Notify,
}

impl Request {
    fn new(events: u32) -> Arc<Self> {
        Arc::new(Self {
            unsettled: AtomicU32::new(events),
            dropped: AtomicU32::new(0),
            poison: Mutex::default(),
            finished: Notify::new(),
        })
    }

    fn one_less(&self) {
        if self.unsettled.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finished.notify_one();
        }
    }

    /// The poison lines, or `None` when some event must be sent again.
    fn outcome(&self) -> Option<Vec<(u32, Poison)>> {
        let all_settled = self.unsettled.load(Ordering::Acquire) == 0 && self.dropped.load(Ordering::Acquire) == 0;
        all_settled.then(|| {
            let mut poison = std::mem::take(&mut *self.poison.lock().unwrap_or_else(PoisonError::into_inner));
            poison.sort_unstable_by_key(|(line, _)| *line);
            poison
        })
    }
}

impl SettleMany for Request {
    fn settled(&self, line: u32, how: &Settlement) {
        if let Settlement::Quarantined(poison) = how {
            self.poison.lock().unwrap_or_else(PoisonError::into_inner).push((line, poison.clone()));
        }
        self.one_less();
    }

    fn dropped(&self, _: u32) {
        self.dropped.fetch_add(1, Ordering::AcqRel);
        self.one_less();
    }
}

async fn post_events(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let kib = declared.unwrap_or(MAX_BODY_BYTES).min(MAX_BODY_BYTES).div_ceil(1 << 10).max(1);
    // At most MAX_BODY_BYTES / 1 KiB, which fits.
    let Ok(_held) = shared.waiting_kib.try_acquire_many(kib as u32) else {
        return try_again("too many requests are waiting");
    };
    let body = match axum::body::to_bytes(body, MAX_BODY_BYTES).await {
        Ok(body) => body,
        Err(_) => return (StatusCode::PAYLOAD_TOO_LARGE, "a body has at most 16 MiB\n").into_response(),
    };
    let (events, many) = events_of(&headers, &body);
    let Ok(number) = u32::try_from(events.len()) else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "too many lines\n").into_response();
    };
    if number == 0 {
        return (StatusCode::BAD_REQUEST, "the body has no event\n").into_response();
    }
    let request = Request::new(number);
    let waited = tokio::time::timeout(shared.deadline, hand_over(&shared, &request, events)).await;
    match (waited, request.outcome()) {
        (Ok(()), Some(poison)) if many => {
            let poison: Vec<_> =
                poison.iter().map(|(line, why)| json!({"line": line, "reason": why.to_string()})).collect();
            Json(json!({"received": number, "poison": poison})).into_response()
        }
        (Ok(()), Some(poison)) => match poison.first() {
            None => StatusCode::NO_CONTENT.into_response(),
            Some((_, why)) => (StatusCode::BAD_REQUEST, Json(json!({"reason": why.to_string()}))).into_response(),
        },
        _ => try_again("not durable yet"),
    }
}

/// Queues the events and waits until each is settled or dropped.
async fn hand_over(shared: &Shared, request: &Arc<Request>, events: Vec<(u32, Bytes)>) {
    let received_at = SystemTime::now();
    for (line, payload) in events {
        let ack = Ack::of_many(request.clone(), line);
        let delivery = Delivery { payload, received_at, meta: None, ack, share: None };
        if shared.open_streams.load(Ordering::Acquire) == 0 {
            // The worker does not take events: dropping says so.
            continue;
        }
        // A closed queue drops the delivery, and that says so too.
        let _ = shared.queue.send(delivery).await;
    }
    request.finished.notified().await;
}

fn try_again(why: &str) -> Response {
    let body = Json(json!({"reason": why, "do": "send the same again; events are counted once"}));
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, body).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The events of a body with their line numbers, and whether it is answered as many. The content type decides; where
/// it does not say, a body is one event unless it is no JSON value as a whole and has several lines.
fn events_of(headers: &HeaderMap, body: &Bytes) -> (Vec<(u32, Bytes)>, bool) {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let lines = || -> Vec<(u32, Bytes)> {
        let numbered = (1_u32..).zip(body.split(|byte| *byte == b'\n'));
        let filled = numbered.filter(|(_, line)| !line.trim_ascii().is_empty());
        filled.map(|(number, line)| (number, body.slice_ref(line))).collect()
    };
    let one = || if body.trim_ascii().is_empty() { vec![] } else { vec![(1, body.clone())] };
    if ["ndjson", "jsonl", "json-seq", "jsonlines"].iter().any(|name| kind.contains(name)) {
        return (lines(), true);
    }
    if kind.contains("json") || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        return (one(), false);
    }
    let lines = lines();
    if lines.len() > 1 { (lines, true) } else { (one(), false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(content_type: &'static str, body: &'static str) -> (usize, bool) {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let (events, many) = events_of(&headers, &Bytes::from_static(body.as_bytes()));
        (events.len(), many)
    }

    #[test]
    fn the_content_type_tells_one_event_from_many_and_the_body_where_it_does_not() {
        assert_eq!(kind_of("application/json", "{\n}\n"), (1, false));
        assert_eq!(kind_of("application/x-ndjson", "{}\n\n{}\n"), (2, true));
        assert_eq!(kind_of("application/x-www-form-urlencoded", "{\n}"), (1, false));
        assert_eq!(kind_of("text/plain", "{}\n{}"), (2, true));
        assert_eq!(kind_of("text/plain", "rubbish"), (1, false));
        assert_eq!(kind_of("text/plain", " \n"), (0, false));
    }

    #[test]
    fn the_address_belongs_to_another_flag() {
        assert!(Http::connect("http://127.0.0.1:8080").err().expect("refused").to_string().contains("--http ADDR"));
        assert!(Http::connect("http:?deadline_s=0").is_err());
        assert!(Http::connect("http:?speed=1").is_err());
        let http = Http::connect("http:?deadline_s=5").expect("understood");
        assert_eq!(http.max_lease(), Some(Duration::from_secs(5)));
    }
}
