//! A file, or standard input, with one event a line. There is no broker: what is dropped is not delivered again, and
//! the report says so.

use super::{Delivery, Source, SourceError, Stream};
use crate::ack::{Ack, SettleMany, Settlement};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Mutex;

/// Read at once: large enough that system calls do not matter, small enough for the cache.
const BLOCK_BYTES: usize = 256 << 10;

/// The longest line, the largest message that Pub/Sub takes. The rest of a longer one is skipped; its beginning is
/// delivered and turns out to be poison.
const MAX_LINE_BYTES: usize = 10 << 20;

type Reader = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// Lines as deliveries.
pub struct Jsonl {
    name: String,
    reader: Mutex<Option<Reader>>,
}

impl Jsonl {
    /// Reads from anything; `name` stands for it in the quarantine.
    #[must_use]
    pub fn new(name: impl Into<String>, reader: impl AsyncRead + Send + Sync + Unpin + 'static) -> Self {
        Self { name: name.into(), reader: Mutex::new(Some(Box::new(reader))) }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn file(path: &std::path::Path) -> std::io::Result<Self> {
        Ok(Self::new(format!("file:{}", path.display()), tokio::fs::File::open(path).await?))
    }
}

#[async_trait]
impl Source for Jsonl {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        let reader = self.reader.lock().await.take().ok_or_else(|| SourceError {
            transient: false,
            message: format!("{} can be read only once", self.name),
            source: None,
        })?;
        Ok(Box::new(Lines {
            name: self.name.clone(),
            reader,
            read: BytesMut::new(),
            block: Bytes::new(),
            in_long_line: false,
            ended: false,
            nobody: Arc::new(Nobody),
        }))
    }
}

struct Lines {
    name: String,
    reader: Reader,
    /// Read, and not yet known to hold a whole line.
    read: BytesMut,
    /// Whole lines, not yet delivered.
    block: Bytes,
    in_long_line: bool,
    ended: bool,
    nobody: Arc<Nobody>,
}

/// Nobody delivers a line again.
struct Nobody;

impl SettleMany for Nobody {
    fn settled(&self, _: u32, _: &Settlement) {}
    fn dropped(&self, _: u32) {}
}

#[async_trait]
impl Stream for Lines {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        loop {
            let deliveries = self.deliver(max);
            if !deliveries.is_empty() || self.ended {
                return Ok(deliveries);
            }
            self.fill().await?;
        }
    }
}

impl Lines {
    fn deliver(&mut self, max: usize) -> Vec<Delivery> {
        let received_at = SystemTime::now();
        let mut deliveries = Vec::with_capacity(max.min(self.block.len() / 64 + 1));
        while deliveries.len() < max && !self.block.is_empty() {
            let end = memchr::memchr(b'\n', &self.block).unwrap_or(self.block.len());
            let line = self.block.split_to(end);
            if !self.block.is_empty() {
                let _ = self.block.split_to(1);
            }
            if !line.trim_ascii().is_empty() {
                let ack = Ack::of_many(self.nobody.clone(), 0);
                deliveries.push(Delivery { payload: line, received_at, meta: None, ack, share: None });
            }
        }
        deliveries
    }

    /// Reads until there is a whole line, or the end. Cancel safe: what was read stays in `read`.
    async fn fill(&mut self) -> Result<(), SourceError> {
        self.read.reserve(BLOCK_BYTES);
        let searched = self.read.len();
        let bytes = self.reader.read_buf(&mut self.read).await.map_err(|error| SourceError {
            transient: false,
            message: format!("{} cannot be read: {error}", self.name),
            source: Some(Box::new(error)),
        })?;
        let newline = memchr::memrchr(b'\n', &self.read[searched..]).map(|at| searched + at);
        if bytes == 0 {
            self.ended = true;
            self.block = if self.in_long_line { Bytes::new() } else { self.read.split().freeze() };
        } else if let Some(newline) = newline {
            let mut block = self.read.split_to(newline + 1).freeze();
            if std::mem::take(&mut self.in_long_line) {
                let rest = memchr::memchr(b'\n', &block).map_or(block.len(), |at| at + 1);
                let _ = block.split_to(rest);
            }
            self.block = block;
        } else if self.in_long_line {
            self.read.clear();
        } else if self.read.len() > MAX_LINE_BYTES {
            self.in_long_line = true;
            self.block = self.read.split().freeze();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines_of(input: Vec<u8>, max: usize) -> Vec<Bytes> {
        let source = Jsonl::new("test", std::io::Cursor::new(input));
        let mut stream = source.open(0).await.expect("opens once");
        let mut lines = Vec::new();
        loop {
            let deliveries = stream.pull(max).await.expect("a cursor can be read");
            assert!(deliveries.len() <= max);
            if deliveries.is_empty() {
                return lines;
            }
            lines.extend(deliveries.into_iter().map(|d| d.payload));
        }
    }

    #[tokio::test]
    async fn every_line_is_a_delivery_and_empty_ones_are_not() {
        let lines = lines_of(b"a\n\nbc\r\n  \nlast".to_vec(), 2).await;
        assert_eq!(lines, ["a", "bc\r", "last"]);
        assert!(lines_of(Vec::new(), 5).await.is_empty());
    }

    #[tokio::test]
    async fn lines_that_cross_blocks_stay_whole() {
        let long = "x".repeat(BLOCK_BYTES + 7);
        let lines = lines_of(format!("a\n{long}\nb\n").into_bytes(), 100).await;
        assert_eq!(lines, ["a", long.as_str(), "b"]);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_cut_and_the_next_is_whole() {
        let endless = "x".repeat(2 * MAX_LINE_BYTES);
        let lines = lines_of(format!("a\n{endless}\nb\n").into_bytes(), 100).await;
        assert_eq!(lines.len(), 3);
        assert!(lines[1].len() < endless.len());
        assert_eq!(lines[2], "b");
    }
}
