//! What a rule sees of a call, and what it may say about it.

use http::{HeaderMap, HeaderValue};
use std::time::Duration;

/// One call on its way.
pub struct Call<'a> {
    /// The last part of its path, such as `Commit`; `HTTP` for a whole connection that is not gRPC.
    pub method: &'a str,
    /// How many calls of the method came before it.
    pub number: usize,
    /// The request, for a call with one request; empty for a stream.
    pub message: &'a [u8],
}

/// A gRPC status.
#[derive(Clone, Debug)]
pub struct Status {
    code: u16,
    text: &'static str,
    details: Option<Vec<u8>>,
}

impl Status {
    pub fn new(code: u16, text: &'static str) -> Self {
        Self { code, text, details: None }
    }

    /// The same with an encoded `google.rpc.Status`.
    pub fn with_details(self, details: Vec<u8>) -> Self {
        Self { details: Some(details), ..self }
    }

    /// The answer of Google's JSON over HTTP, for the codes that a test refuses an administrator with.
    pub(super) fn http(&self) -> String {
        let (number, name) = match self.code {
            5 => (404, "NOT_FOUND"),
            7 => (403, "PERMISSION_DENIED"),
            _ => (503, "UNAVAILABLE"),
        };
        let text = self.text;
        let body = format!(r#"{{"error":{{"code":{number},"message":"{text}","status":"{name}"}}}}"#);
        let length = body.len();
        format!("HTTP/1.1 {number} {name}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    pub(super) fn headers(&self) -> HeaderMap {
        use base64::Engine;
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(self.code));
        headers.insert("grpc-message", HeaderValue::from_static(self.text));
        if let Some(details) = &self.details {
            let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(details);
            headers.insert("grpc-status-details-bin", HeaderValue::from_str(&text).unwrap());
        }
        headers
    }
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Nothing happens to it.
    Pass,
    /// The server never sees it.
    Refuse(Status),
    /// The server does it, and the client is told this instead of the answer.
    Lose(Status),
    /// The server never sees it, and the client hears nothing.
    HoldRequest,
    /// The server does it, and the client hears nothing.
    HoldAnswer,
    /// The server sees it later.
    Delay(Duration),
    /// The server never sees it: the connection breaks.
    Break,
    /// The server does it, and the connection breaks before it answers.
    BreakAfter,
}
