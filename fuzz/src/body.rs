//! The body of a request to the HTTP source: which events are in it, and how their fates become one answer.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use hotcount::ack::Settlement;
use hotcount::event::Poison;
use hotcount::pipeline::Config;
use hotcount::source::Source;
use hotcount::source::http::Http;
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt;

/// What a sender may say that it sends: one event, many, or nothing that helps.
const KINDS: [(&str, Says); 6] = [
    ("application/json", Says::One),
    ("application/x-ndjson", Says::Many),
    ("application/jsonl; charset=utf-8", Says::Many),
    ("text/plain", Says::Nothing),
    ("", Says::Nothing),
    ("application/x-www-form-urlencoded", Says::Nothing),
];

#[derive(Clone, Copy, PartialEq)]
enum Says {
    One,
    Many,
    Nothing,
}

/// The first byte chooses a content type, the second the fates of the events, and the rest is the body.
pub fn body(data: &[u8]) {
    let [kind, fates, text @ ..] = data else { return };
    let (kind, says) = KINDS[usize::from(*kind) % KINDS.len()];
    let lines: Vec<(usize, &[u8])> = (1..)
        .zip(text.split(|byte| *byte == b'\n'))
        .filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace))
        .collect();
    let one_value = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    let many = says == Says::Many || says == Says::Nothing && !one_value && lines.len() > 1;
    let expected = match lines.len() {
        0 => vec![],
        _ if many => lines,
        _ => vec![(1, text)],
    };
    let fate = |at: usize| match fates.rotate_left((at % 8) as u32) & 7 {
        0 => Fate::Dropped,
        1 | 2 => Fate::Poison,
        _ => Fate::Counted,
    };

    let (status, answer, delivered) = ask(kind, text, fate);
    assert!(delivered.iter().map(Vec::as_slice).eq(expected.iter().map(|(_, line)| *line)), "other events");
    let dropped = (0..expected.len()).any(|at| fate(at) == Fate::Dropped);
    let poison: Vec<usize> = (0..expected.len()).filter(|at| fate(*at) == Fate::Poison).collect();
    if expected.is_empty() {
        assert_eq!(status, StatusCode::BAD_REQUEST);
    } else if dropped {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    } else if many {
        let reason = refusal().to_string();
        let listed: Vec<Value> = poison.iter().map(|at| json!({"line": expected[*at].0, "reason": reason})).collect();
        assert_eq!((status, answer), (StatusCode::OK, json!({"received": expected.len(), "poison": listed})));
    } else {
        let wanted = if poison.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
        assert_eq!(status, wanted);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Counted,
    Poison,
    Dropped,
}

fn refusal() -> Poison {
    Poison::refused_by_store("too large")
}

/// Posts a body to a source whose worker gives every event its fate.
fn ask(kind: &str, text: &[u8], fate: impl Fn(usize) -> Fate) -> (StatusCode, Value, Vec<Vec<u8>>) {
    let request = Request::post("/v1/events").header("content-type", kind).body(Body::from(text.to_vec()));
    super::block_on(async {
        let source = Http::new(Duration::from_secs(60));
        let mut stream = source.open(0).await.expect("it always opens");
        let answer =
            source.routes(&Config::default().held()).expect("it has a route").oneshot(request.expect("a request"));
        let mut answer = std::pin::pin!(answer);
        let mut delivered = Vec::new();
        let response = loop {
            tokio::select! {
                biased;
                deliveries = stream.pull(3) => {
                    for delivery in deliveries.expect("a queue can be read") {
                        match fate(delivered.len()) {
                            Fate::Counted => drop(delivery.ack.settle(&Settlement::Counted)),
                            Fate::Poison => drop(delivery.ack.settle(&Settlement::Quarantined(refusal()))),
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
