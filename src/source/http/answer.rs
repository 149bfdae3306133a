//! What a request is answered.

use super::request::Outcome;
use super::{MAX_BODY_BYTES, MAX_UNPACKED_BYTES};
use crate::like::framing::Refusal;
use crate::telemetry::Metric;
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

impl Outcome {
    /// All is durable: 204 or 400 for one event, 200 and the poison for many.
    pub(super) fn answer(&self, many: bool) -> Response {
        let listed = self.first.iter().map(|(line, why)| json!({"line": line, "reason": why.to_string()}));
        match (many, self.first.first()) {
            (true, _) => {
                let poison: Vec<Value> = listed.collect();
                Json(json!({"received": self.received, "poison": poison, "poison_total": self.total})).into_response()
            }
            (false, None) => StatusCode::NO_CONTENT.into_response(),
            (false, Some((_, why))) => {
                (StatusCode::BAD_REQUEST, Json(json!({"reason": why.to_string()}))).into_response()
            }
        }
    }
}

/// Why a request is not answered as one whose events are all durable.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is nothing in it.
    NoEvent,
    /// It is not what its head says, or not what this source reads.
    Form(Refusal),
    /// Its encoding is not known here.
    Encoding(String),
    /// It is larger than a body may be.
    TooLarge,
    /// It ended before its end, or its chunks are not what they should be.
    Broken(String),
    /// It did not come in time.
    Slow,
    /// There was no room for it before its deadline.
    NoRoom,
    /// Some of its events were not durable before its deadline, or were dropped.
    NotDurable,
}

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoEvent | Self::Form(Refusal::Several) | Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Form(_) | Self::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoom | Self::NotDurable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Its name in the metric.
    fn why(&self) -> &'static str {
        match self {
            Self::NoEvent | Self::Form(_) => "form",
            Self::Encoding(_) => "encoding",
            Self::TooLarge => "size",
            Self::Broken(_) => "broken",
            Self::Slow => "slow",
            Self::NoRoom => "room",
            Self::NotDurable => "not_durable",
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::NoEvent => "the body has no event".to_owned(),
            Self::Form(refusal) => refusal.to_string(),
            Self::Encoding(name) => {
                format!("the Content-Encoding '{}' is not known here; gzip and zstd are", name.escape_debug())
            }
            Self::TooLarge => {
                let (mib, unpacked) = (MAX_BODY_BYTES >> 20, MAX_UNPACKED_BYTES >> 20);
                format!(
                    "a body has at most {mib} MiB, and {unpacked} MiB unpacked; send the events in several requests"
                )
            }
            Self::Broken(problem) => format!("the body ended before its end, or is broken: {problem}"),
            Self::Slow => "the body did not come in time".to_owned(),
            Self::NoRoom => "there was no room for the events: the store or the quarantine is behind".to_owned(),
            Self::NotDurable => "the events are not durable yet".to_owned(),
        }
    }

    /// The answer, to a request of which so many events were `received`: they may be counted, and nobody waits for them.
    pub(super) fn answer(&self, received: usize) -> Response {
        Metric::RefusedRequests.add_labelled("why", self.why(), 1);
        let mut body = json!({"error": self.sentence()});
        let again = matches!(self, Self::Slow | Self::NoRoom | Self::NotDurable);
        if again {
            body["do"] = "send the same again; events are counted once".into();
        } else if received > 0 {
            body["do"] = "some of the events may be counted; send all of them again, they are counted once".into();
        }
        if received > 0 {
            body["received"] = received.into();
        }
        let mut answer = (self.status(), Json(body)).into_response();
        let mut set = |name: HeaderName, value| answer.headers_mut().insert(name, HeaderValue::from_static(value));
        match self {
            _ if again => set(header::RETRY_AFTER, "1"),
            Self::Encoding(_) => set(header::ACCEPT_ENCODING, "gzip, zstd"),
            _ => None,
        };
        answer
    }
}
