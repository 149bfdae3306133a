//! Poison as a store keeps it, and the pages in which it is read.

use super::StoredFault;
use bytes::Bytes;
use std::time::SystemTime;

/// One poison delivery on its way into the quarantine.
#[derive(Clone, Debug)]
pub struct Quarantined {
    /// Names the entry: the same delivery quarantined twice is one entry. See [`quarantine_id`].
    pub id: String,
    /// Why it can never succeed; the text names the field.
    pub reason: String,
    /// The payload, whole.
    pub data: Bytes,
    /// The message's attributes.
    pub attributes: Vec<(String, String)>,
    /// The source's name, such as `pubsub://project/subscription`.
    pub source: String,
    /// The broker's id of the message, where it has one.
    pub message_id: Option<String>,
    /// When the message was published, where that is known.
    pub published_at: Option<SystemTime>,
    /// When it was received.
    pub received_at: SystemTime,
    /// Which delivery attempt this was, where the broker counts them.
    pub delivery_attempt: Option<u32>,
}

impl Quarantined {
    /// The bytes of its payload and its attributes: what it costs to hold, beside its fixed size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len() + self.attributes.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }
}

/// The first 32 hex digits of SHA-256 over the source's name and message id, or over the payload where there is no
/// message id. A colon and the source's length keep two pairs apart.
#[must_use]
pub fn quarantine_id(source: &str, message_id: Option<&str>, payload: &[u8]) -> String {
    match message_id {
        Some(id) => hex_of_sha256(&[source.len().to_string().as_bytes(), b":", source.as_bytes(), b":", id.as_bytes()]),
        None => hex_of_sha256(&[payload]),
    }
}

/// The first 32 hex digits of SHA-256 over `parts`, one after the other.
#[must_use]
pub fn hex_of_sha256(parts: &[&[u8]]) -> String {
    use sha2::{Digest, Sha256};
    use std::fmt::Write;
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    let digest = hash.finalize();
    digest.iter().take(16).fold(String::with_capacity(32), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// How much of the quarantine is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Entries at most; at least 1.
    pub entries: usize,
    /// Bytes of payloads and attributes after which the page ends. It always has its first entry, however large.
    pub bytes: usize,
}

impl PageSize {
    /// Up to `entries`, and about 16 MiB: one entry of the largest kind, or many small ones.
    #[must_use]
    pub fn entries(entries: usize) -> Self {
        Self { entries, bytes: 16 << 20 }
    }
}

/// A part of the quarantine, sorted by id.
#[derive(Clone, Debug, Default)]
pub struct QuarantinePage {
    /// The entries.
    pub entries: Vec<Quarantined>,
    /// Entries that are there and cannot be read, by id.
    pub unreadable: Vec<(String, StoredFault)>,
    /// The id after which the next page begins; `None` when this is the last.
    pub next: Option<String>,
}
