//! A worker with the source `http:`. The answer to `POST /v1/events` means that every event is durable or quarantined.

use super::{Accepted, Batch, ConnectError, SendError, Target};
use crate::common::adapter_url::AdapterUrl;
use async_trait::async_trait;
use reqwest::{Client, StatusCode, header};
use serde::Deserialize;
use std::time::Duration;
use url::Url;

/// Messages of one request: as many as one commit of the worker's stores takes.
const BATCH_MESSAGES: usize = 500;

/// How long connecting may take: the worker is near, or it is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take. The worker itself gives up after 30 s, unless it is told otherwise.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running worker.
pub struct Http {
    client: Client,
    events: Url,
    name: String,
}

/// The body of an answer to many events, as far as it matters here.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    poison: Vec<serde::de::IgnoredAny>,
}

impl Http {
    /// The worker at `http://ADDR`. It is not asked anything yet.
    ///
    /// # Errors
    /// When the URL is not `http://ADDR` or no client can be made.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        let worker = AdapterUrl::parse(url)?.worker()?;
        let unusable = |problem| ConnectError { url: worker.to_string(), problem };
        let events = worker.route("/v1/events").map_err(|error| unusable(error.to_string()))?;
        let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT).build();
        let client = client.map_err(|error| unusable(error.to_string()))?;
        Ok(Self { client, events, name: worker.to_string() })
    }
}

#[async_trait]
impl Target for Http {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn batch_messages(&self) -> usize {
        BATCH_MESSAGES
    }

    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError> {
        let request = self
            .client
            .post(self.events.clone())
            .header(header::CONTENT_TYPE, "application/x-ndjson")
            .body(batch.jsonl.clone());
        let answer = request.send().await.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            let message = format!(
                "the worker at {} does not answer: is it running, with --source http: and --http? ({cause})",
                self.name
            );
            SendError::new(true, message)
        })?;
        let status = answer.status();
        if status == StatusCode::OK {
            // An answer that breaks off says nothing, so the batch is sent again.
            let answer: Answer = answer
                .json()
                .await
                .map_err(|error| SendError::new(true, format!("the answer of {} broke off ({error})", self.name)))?;
            return Ok(Accepted { poison: answer.poison.len() as u64 });
        }
        let transient = status.is_server_error()
            || status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::REQUEST_TIMEOUT;
        let what_to_do = match status {
            StatusCode::NOT_FOUND => ": it takes no events, start it with --source http:",
            StatusCode::PAYLOAD_TOO_LARGE => ": send fewer messages at once with --batch",
            StatusCode::SERVICE_UNAVAILABLE => ": it could not make the events durable, its /readyz may say why",
            _ => "",
        };
        Err(SendError::new(transient, format!("the worker at {} answered {status}{what_to_do}", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_address_names_a_worker() {
        assert_eq!(Http::connect("http://127.0.0.1:8080/").expect("an address").name(), "http://127.0.0.1:8080");
        let secret = Http::connect("http://user:secret@localhost:8080").expect("an address").name();
        assert_eq!(secret, "http://localhost:8080");
        for url in ["http:", "https://localhost", "http://localhost/v1/events", "http://localhost?x=1"] {
            assert!(Http::connect(url).is_err(), "{url}");
        }
    }
}
