//! A file, or standard input: events in any of the ways that [`crate::like::framing`] knows, gzip and zstd unpacked. There is no
//! broker: what is dropped is not delivered again, and the report says so.

use super::{Delivery, Source, SourceError, Stream};
use crate::common::sync::Locked;
use crate::like::framing::{Framer, Framing, Record};
use crate::like::inflate::{Coding, Inflate, InflateError};
use crate::source::ack::{Ack, SettleMany, Settlement};
use async_trait::async_trait;
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Mutex, Notify};

/// Read at once: large enough that system calls do not matter, small enough for the cache.
const BLOCK_BYTES: usize = 256 << 10;

/// The longest record, the largest message that Pub/Sub takes. The rest of a longer one is skipped; its beginning is
/// delivered and turns out to be poison.
const MAX_RECORD_BYTES: usize = 10 << 20;

/// Reasons told apart: they carry text from outside.
const MAX_REASONS: usize = 1_000;

type Reader = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// The records of a text as deliveries.
pub struct Jsonl {
    name: String,
    reader: Mutex<Option<Reader>>,
    refusals: Arc<Refusals>,
    is_over: Arc<AtomicBool>,
}

impl Jsonl {
    /// Reads from anything; `name` stands for it in the quarantine.
    #[must_use]
    pub fn new(name: impl Into<String>, reader: impl AsyncRead + Send + Sync + Unpin + 'static) -> Self {
        Self {
            name: name.into(),
            reader: Mutex::new(Some(Box::new(reader))),
            refusals: Arc::default(),
            is_over: Arc::default(),
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn file(path: &std::path::Path) -> std::io::Result<Self> {
        Ok(Self::new(format!("file:{}", path.display()), tokio::fs::File::open(path).await?))
    }

    /// Whether all of it was delivered.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The reason that most records were quarantined for, and how many.
    #[must_use]
    pub fn commonest_refusal(&self) -> Option<(String, u64)> {
        let refusals = self.refusals.0.locked();
        refusals.iter().max_by_key(|(_, times)| **times).map(|(reason, times)| (reason.clone(), *times))
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
        let all_settled = Arc::new(Notify::new());
        Ok(Box::new(Records {
            name: self.name.clone(),
            reader,
            read: BytesMut::new(),
            packing: Packing::Unknown,
            framer: Framer::new(Framing::Objects, MAX_RECORD_BYTES),
            place: Place::Middle,
            is_over: Arc::clone(&self.is_over),
            delivered: Some(Arc::new(Delivered {
                refusals: Arc::clone(&self.refusals),
                all_settled: Arc::clone(&all_settled),
            })),
            all_settled,
            failure: None,
        }))
    }
}

struct Records {
    name: String,
    reader: Reader,
    /// Read, and not yet taken further.
    read: BytesMut,
    packing: Packing,
    framer: Framer,
    place: Place,
    is_over: Arc<AtomicBool>,
    /// `None` after a failure.
    delivered: Option<Arc<Delivered>>,
    all_settled: Arc<Notify>,
    failure: Option<SourceError>,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Middle,
    /// All is read.
    End,
    /// The framer knows that all is read.
    Over,
}

/// What the first bytes say.
enum Packing {
    Unknown,
    Plain,
    Packed(Box<Inflate>),
}

/// Why records were quarantined, and how often.
#[derive(Default)]
struct Refusals(std::sync::Mutex<BTreeMap<String, u64>>);

/// Nobody delivers a record again. All of them are settled or dropped when this is dropped.
struct Delivered {
    refusals: Arc<Refusals>,
    all_settled: Arc<Notify>,
}

impl SettleMany for Delivered {
    fn settled(&self, _: u32, how: &Settlement) {
        let Settlement::Quarantined(poison) = how else { return };
        let mut refusals = self.refusals.0.locked();
        let reason = poison.to_string();
        if refusals.len() < MAX_REASONS || refusals.contains_key(&reason) {
            *refusals.entry(reason).or_default() += 1;
        }
    }

    fn dropped(&self, _: u32) {}
}

impl Drop for Delivered {
    fn drop(&mut self) {
        self.all_settled.notify_one();
    }
}

#[async_trait]
impl Stream for Records {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        while self.failure.is_none() {
            let deliveries = self.deliver(max);
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if self.place == Place::Over {
                self.is_over.store(true, Ordering::Release);
                return Ok(deliveries);
            }
            match self.unpack() {
                Ok(true) => {}
                Ok(false) => {
                    if let Err(error) = self.fill().await {
                        self.fail(error.into());
                    }
                }
                Err(error) => self.fail(error.into()),
            }
        }
        self.all_settled.notified().await;
        Err(self.failure.take().unwrap_or_else(|| ended(&self.name)))
    }
}

fn ended(name: &str) -> SourceError {
    SourceError { transient: false, message: format!("{name} has failed before"), source: None }
}

impl Records {
    fn deliver(&mut self, max: usize) -> Vec<Delivery> {
        let Some(delivered) = &self.delivered else { return Vec::new() };
        let received_at = SystemTime::now();
        let records = std::iter::from_fn(|| self.framer.next_record()).take(max);
        let deliver = |Record { payload, .. }| {
            let ack = Ack::of_many(delivered.clone(), 0);
            Delivery { payload, received_at, meta: None, ack, share: None }
        };
        records.map(deliver).collect()
    }

    /// Moves what was read, or a chunk of what it holds, to the framer, or tells it that there is no more. Answers false when
    /// more must be read first.
    fn unpack(&mut self) -> Result<bool, InflateError> {
        if matches!(self.packing, Packing::Unknown) {
            if self.read.len() < Coding::MARK_BYTES && self.place == Place::Middle {
                return Ok(false);
            }
            self.packing = match Coding::of(&self.read) {
                // Whoever replays a file of their own may have any number of events in it. A record has its limit.
                Some(coding) => Packing::Packed(Box::new(Inflate::new(coding, u64::MAX))),
                None => Packing::Plain,
            };
        }
        let mut moved = !self.read.is_empty();
        match &mut self.packing {
            Packing::Packed(inflate) => {
                if moved {
                    inflate.push(&self.read);
                } else if self.place == Place::End {
                    inflate.finish();
                }
                if let Some(chunk) = inflate.next_chunk()? {
                    self.framer.push(chunk);
                    moved = true;
                }
            }
            Packing::Unknown | Packing::Plain => self.framer.push(&self.read),
        }
        self.read.clear();
        if !moved && self.place == Place::End {
            self.framer.finish();
            self.place = Place::Over;
            moved = true;
        }
        Ok(moved)
    }

    /// Reads a block, or notices the end. Cancel safe: what was read stays in `read`.
    async fn fill(&mut self) -> Result<(), std::io::Error> {
        self.read.reserve(BLOCK_BYTES);
        if self.reader.read_buf(&mut self.read).await? == 0 {
            self.place = Place::End;
        }
        Ok(())
    }

    /// What came before a failure is counted, so it is told when all of that is settled or dropped.
    fn fail(&mut self, error: Box<dyn std::error::Error + Send + Sync>) {
        let message = format!("{} cannot be read further: {error}; what came before is counted", self.name);
        self.failure = Some(SourceError { transient: false, message, source: Some(error) });
        self.delivered = None;
    }
}

#[cfg(test)]
mod tests;
