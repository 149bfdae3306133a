//! The body of a request to the HTTP source: which events are in it, and how their fates become one answer.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use hotcount::engine::pipeline::Config;
use hotcount::like::event::Poison;
use hotcount::like::framing::{Framer, Framing, Refusal};
use hotcount::source::Source;
use hotcount::source::ack::Settlement;
use hotcount::source::http::Http;
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt;

/// What a sender may say that it sends: one event, many, or nothing that helps.
const KINDS: [&str; 7] = [
    "application/json",
    "application/x-ndjson",
    "application/jsonl; charset=utf-8",
    "application/json-seq",
    "text/plain",
    "",
    "application/x-www-form-urlencoded",
];

/// Poison that an answer lists.
const MAX_LISTED: usize = 100;

/// The first byte chooses a content type, the second the fates of the events, and the rest is the body.
pub fn body(data: &[u8]) {
    let [kind, fates, text @ ..] = data else { return };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    let (expected, refusal, many) = cut(kind, text);
    let fate = |at: usize| match fates.rotate_left((at % 8) as u32) & 7 {
        0 => Fate::Dropped,
        1 | 2 => Fate::Poison,
        _ => Fate::Counted,
    };

    let (status, answer, delivered) = ask(kind, text, fate);
    if let Some(refusal) = refusal {
        let wanted = match refusal {
            Refusal::Several => StatusCode::BAD_REQUEST,
            _ => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        };
        assert_eq!((status, delivered.len()), (wanted, 0), "nothing is kept");
        return;
    }
    assert!(delivered.iter().eq(expected.iter().map(|(_, event)| event)), "other events");
    let dropped = (0..expected.len()).any(|at| fate(at) == Fate::Dropped);
    let poison: Vec<usize> = (0..expected.len()).filter(|at| fate(*at) == Fate::Poison).collect();
    if expected.is_empty() {
        assert_eq!(status, StatusCode::BAD_REQUEST);
    } else if dropped {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    } else if many {
        let reason = refused().to_string();
        let line = |at: &usize| json!({"line": expected[*at].0, "reason": reason});
        let listed: Vec<Value> = poison.iter().take(MAX_LISTED).map(line).collect();
        let wanted = json!({"received": expected.len(), "poison": listed, "poison_total": poison.len()});
        assert_eq!((status, answer), (StatusCode::OK, wanted));
    } else {
        let wanted = if poison.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
        assert_eq!(status, wanted);
    }
}

/// Events by line.
type Events = Vec<(u32, Vec<u8>)>;

/// The events of a text by line, why it has none, and whether it is many; with all of it there at once.
fn cut(kind: &str, text: &[u8]) -> (Events, Option<Refusal>, bool) {
    let mut framer = Framer::new(Framing::of(kind), 16 << 20);
    framer.push(text);
    framer.finish();
    let records = std::iter::from_fn(|| framer.next_record()).map(|record| (record.line, record.payload.to_vec()));
    let records = records.collect();
    (records, framer.refusal(), framer.many())
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Counted,
    Poison,
    Dropped,
}

fn refused() -> Poison {
    Poison::refused_by_store("too large")
}

/// Posts a body to a source whose worker gives every event its fate.
fn ask(kind: &str, text: &[u8], fate: impl Fn(usize) -> Fate) -> (StatusCode, Value, Vec<Vec<u8>>) {
    let request = Request::post("/v1/events").header("content-type", kind).body(Body::from(text.to_vec()));
    super::block_on(async {
        let source = Http::new(Duration::from_secs(60));
        let mut stream = source.open(0).await.expect("it always opens");
        let answer = source.routes(&Config::default().held()).oneshot(request.expect("a request"));
        let mut answer = std::pin::pin!(answer);
        let mut delivered = Vec::new();
        let response = loop {
            tokio::select! {
                biased;
                deliveries = stream.pull(3) => {
                    for delivery in deliveries.expect("a queue can be read") {
                        match fate(delivered.len()) {
                            Fate::Counted => drop(delivery.ack.settle(&Settlement::Counted)),
                            Fate::Poison => drop(delivery.ack.settle(&Settlement::Quarantined(refused()))),
                            Fate::Dropped => drop(delivery.ack),
                        }
                        delivered.push(delivery.payload.to_vec());
                    }
                }
                response = &mut answer => break response.expect("a router answers"),
            }
        };
        let status = response.status();
        let text = to_bytes(response.into_body(), usize::MAX).await.expect("an answer in memory");
        (status, serde_json::from_slice(&text).unwrap_or_default(), delivered)
    })
}
