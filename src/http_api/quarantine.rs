//! The quarantine as JSON.

use super::problem::Fault;
use super::rfc3339;
use crate::store::{self, Quarantined, StoredFault};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Some quarantined deliveries, sorted by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuarantinePage {
    /// The deliveries.
    pub entries: Vec<QuarantineEntry>,
    /// Those that are there and cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableEntry>,
    /// The id after which the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A quarantined delivery that cannot be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnreadableEntry {
    /// Its id in the quarantine.
    pub id: String,
    /// What keeps it from being read.
    #[serde(flatten)]
    pub fault: Fault,
}

impl From<(String, StoredFault)> for UnreadableEntry {
    fn from((id, fault): (String, StoredFault)) -> Self {
        Self { id, fault: fault.into() }
    }
}

impl QuarantinePage {
    /// The page as a store gives it.
    ///
    /// # Errors
    /// When a part of it does not mean what it should.
    pub fn read(self) -> Result<store::QuarantinePage, NotUnderstood> {
        Ok(store::QuarantinePage {
            entries: self.entries.into_iter().map(Quarantined::try_from).collect::<Result<_, _>>()?,
            unreadable: self.unreadable.into_iter().map(|entry| (entry.id, entry.fault.into())).collect(),
            next: self.next,
        })
    }
}

/// A quarantined delivery as JSON. Times are RFC 3339.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuarantineEntry {
    /// Its id in the quarantine.
    pub id: String,
    /// Why it can never succeed.
    pub reason: String,
    /// The message's attributes.
    pub attributes: Vec<Attribute>,
    /// Where it came from.
    pub source: String,
    /// The broker's id, where there is one.
    pub message_id: Option<String>,
    /// When it was published, where that is known.
    pub published_at: Option<String>,
    /// When it was received.
    pub received_at: String,
    /// Which delivery attempt it was, where the broker counts them.
    pub delivery_attempt: Option<u32>,
    /// The payload in base64. The last field, so that a page can be written without having it whole.
    pub data: String,
}

/// One attribute of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A part of an answer that does not mean what it should.
#[derive(Debug, thiserror::Error)]
#[error("{0} of a quarantined delivery is not understood")]
pub struct NotUnderstood(&'static str);

impl QuarantineEntry {
    /// An entry without its payload, and the payload.
    pub(super) fn apart(entry: Quarantined) -> (Self, Bytes) {
        let about = Self {
            id: entry.id,
            reason: entry.reason,
            attributes: entry.attributes.into_iter().map(|(key, value)| Attribute { key, value }).collect(),
            source: entry.source,
            message_id: entry.message_id,
            published_at: entry.published_at.map(rfc3339),
            received_at: rfc3339(entry.received_at),
            delivery_attempt: entry.delivery_attempt,
            data: String::new(),
        };
        (about, entry.data)
    }
}

impl From<Quarantined> for QuarantineEntry {
    fn from(entry: Quarantined) -> Self {
        let (about, data) = Self::apart(entry);
        Self { data: BASE64.encode(&data), ..about }
    }
}

impl TryFrom<QuarantineEntry> for Quarantined {
    type Error = NotUnderstood;

    fn try_from(entry: QuarantineEntry) -> Result<Self, NotUnderstood> {
        let time = |text: &str| {
            OffsetDateTime::parse(text, &Rfc3339).map(SystemTime::from).map_err(|_| NotUnderstood("a time"))
        };
        Ok(Self {
            id: entry.id,
            reason: entry.reason,
            data: BASE64.decode(&entry.data).map_err(|_| NotUnderstood("the payload"))?.into(),
            attributes: entry.attributes.into_iter().map(|a| (a.key, a.value)).collect(),
            source: entry.source,
            message_id: entry.message_id,
            published_at: entry.published_at.as_deref().map(time).transpose()?,
            received_at: time(&entry.received_at)?,
            delivery_attempt: entry.delivery_attempt,
        })
    }
}
