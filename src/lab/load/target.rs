//! Where a load goes: the port, and the table that opens an adapter by URL.

mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "pubsub")]
mod pubsub;

pub use file::File;
#[cfg(feature = "http")]
pub use http::Http;
#[cfg(feature = "pubsub")]
pub use pubsub::PubSub;

use crate::common::adapter_url::{UrlError, scheme, shown};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it ends in the batch's bytes; a newline follows.
    pub end: usize,
    /// Its number in the stream, counted from 0: what its intended time comes from.
    pub position: u64,
}

/// Messages that are sent together: their bytes as JSONL, and where each is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// One message a line.
    pub jsonl: Bytes,
    /// The messages in order.
    pub parts: Vec<Part>,
}

impl Batch {
    /// The messages without their newlines.
    pub fn messages(&self) -> impl Iterator<Item = Bytes> {
        let starts = std::iter::once(0).chain(self.parts.iter().map(|part| part.end + 1));
        starts.zip(&self.parts).map(|(start, part)| self.jsonl.slice(start..part.end))
    }

    /// Takes the messages at `places`, which are in order, out of the batch. The rest stays.
    #[must_use]
    pub fn only(&self, places: &[usize]) -> Self {
        let mut jsonl = BytesMut::new();
        let mut parts = Vec::with_capacity(places.len());
        let mut wanted = places.iter().copied().peekable();
        for (place, (message, part)) in self.messages().zip(&self.parts).enumerate() {
            if wanted.next_if_eq(&place).is_some() {
                jsonl.extend_from_slice(&message);
                parts.push(Part { end: jsonl.len(), position: part.position });
                jsonl.extend_from_slice(b"\n");
            }
        }
        Self { jsonl: jsonl.freeze(), parts }
    }
}

/// What a target said about a batch that it accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Messages that it called poison; 0 where it cannot know yet.
    pub poison: u64,
}

/// A batch that was not accepted, or not as a whole. Sending again is always safe: events are counted once.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SendError {
    /// Whether sending again may help.
    pub transient: bool,
    /// What happened and what to do, in a sentence.
    pub message: String,
    /// The places of the messages that are not known to be accepted, in order; `None` for all.
    pub left: Option<Vec<usize>>,
}

impl SendError {
    /// A failure of the whole batch.
    pub fn new(transient: bool, message: impl Into<String>) -> Self {
        Self { transient, message: message.into(), left: None }
    }
}

/// Where a load goes.
#[async_trait]
pub trait Target: Send + Sync {
    /// Names it in reports.
    fn name(&self) -> String;

    /// How many messages of one batch suit it.
    fn batch_messages(&self) -> usize;

    /// How many sends may overlap at most.
    fn max_sends(&self) -> usize {
        usize::MAX
    }

    /// Sends a batch, and returns when every message is acknowledged.
    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError>;

    /// Called once, after the last send.
    async fn close(&self) -> Result<(), SendError> {
        Ok(())
    }
}

/// A URL that names no target, or a target that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the target '{url}' cannot be used: {problem}")]
pub struct ConnectError {
    /// As it may be shown.
    pub url: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl From<UrlError> for ConnectError {
    fn from(UrlError { url, problem }: UrlError) -> Self {
        Self { url, problem }
    }
}

/// The table: `pubsub://PROJECT/TOPIC`, `http://ADDR` of a running worker, `-` for standard output, anything else is the
/// path of a file.
///
/// # Errors
/// When the URL is not understood, its adapter is not built in, or the target cannot be opened.
pub async fn connect(url: &str) -> Result<Box<dyn Target>, ConnectError> {
    let bad = |problem: String| ConnectError { url: shown(url), problem };
    match scheme(url).as_str() {
        #[cfg(feature = "http")]
        "http" => Ok(Box::new(Http::connect(url)?)),
        #[cfg(feature = "pubsub")]
        "pubsub" => Ok(Box::new(PubSub::connect(url).await?)),
        _ if url.contains("://") => {
            Err(bad("use pubsub://PROJECT/TOPIC, http://ADDR of a worker, a file, or - for standard output".to_owned()))
        }
        _ if url == "-" => Ok(Box::new(File::stdout())),
        _ => Ok(Box::new(File::create(url.as_ref()).await.map_err(|error| bad(error.to_string()))?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_batch_keeps_bytes_and_positions() {
        let parts = [(1, 10), (4, 11), (6, 12)].map(|(end, position)| Part { end, position });
        let batch = Batch { jsonl: Bytes::from_static(b"a\nbc\nd\n"), parts: parts.into() };
        assert_eq!(batch.messages().collect::<Vec<_>>(), ["a", "bc", "d"]);
        let left = batch.only(&[1, 2]);
        assert_eq!((&left.jsonl[..], left.parts[0].position), (&b"bc\nd\n"[..], 11));
        assert_eq!(left.messages().collect::<Vec<_>>(), ["bc", "d"]);
        assert_eq!(batch.only(&[]), Batch::default());
    }
}
