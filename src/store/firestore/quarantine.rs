//! Poison, kept whole: a document each, continued in `parts` when it is larger than a document may be.

use super::document::{count, document, field, int_of, spoiled, text, text_of, time, value};
use super::read::{ascending, by_name, collection, reference};
use super::{Firestore, MAX_COMMIT_BYTES, MAX_WRITES, failure};
use crate::store::{PageSize, QuarantinePage, Quarantined, StoreError};
use gcloud_sdk::google::firestore::v1::structured_query::Projection;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{ArrayValue, Cursor, Document, MapValue, StructuredQuery, Value, Write};
use gcloud_sdk::prost_types::Timestamp;
use std::collections::HashMap;
use std::time::SystemTime;

/// Bytes of one document's data; a document may have 1,048,487 with its name and its other fields.
const PART_BYTES: usize = 900 << 10;

/// What a write takes beside the bytes that are counted: names of fields, and the document's own.
const WRITE_OVERHEAD_BYTES: usize = 4 << 10;

/// The collection under an entry that continues its payload.
const PARTS: &str = "parts";

/// Entries whose documents are asked for at once: each has up to a mebibyte.
const DOCUMENTS_A_LISTING: usize = 16;

/// What is tried, in errors.
const KEEP: &str = "keep poison";

impl Firestore {
    /// Keeps the entries in their order. Parts come before the entry that needs them, so whoever sees an entry finds all
    /// of it; a crash in between leaves parts that the redelivery writes again.
    pub(super) async fn keep_poison(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        let mut bytes = 0;
        for entry in poison {
            for (write, size) in self.poison_writes(entry) {
                if !writes.is_empty() && (bytes + size > MAX_COMMIT_BYTES || writes.len() == MAX_WRITES) {
                    self.commit_poison(std::mem::take(&mut writes), KEEP).await?;
                    bytes = 0;
                }
                bytes += size;
                writes.push(write);
            }
        }
        if writes.is_empty() { Ok(()) } else { self.commit_poison(writes, KEEP).await }
    }

    async fn commit_poison(&self, writes: Vec<Write>, tried: &'static str) -> Result<(), StoreError> {
        self.commit(writes).await.map_err(|status| failure((status, tried)))
    }

    /// The writes of one entry, each with about its bytes.
    fn poison_writes(&self, entry: &Quarantined) -> Vec<(Write, usize)> {
        let name = self.address.poison(&entry.id);
        let beside = entry.reason.len() + entry.attributes.iter().map(|(k, v)| k.len() + v.len() + 32).sum::<usize>();
        let (inline, rest) = entry.data.split_at(entry.data.len().min(PART_BYTES.saturating_sub(beside)));
        let mut writes: Vec<(Write, usize)> = rest
            .chunks(PART_BYTES)
            .enumerate()
            .map(|(n, part)| {
                let fields = HashMap::from([("data".to_owned(), bytes(part))]);
                (replace(document(part_name(&name, n), fields)), part.len() + WRITE_OVERHEAD_BYTES)
            })
            .collect();
        let fields = HashMap::from([
            ("reason".to_owned(), text(entry.reason.as_str())),
            ("data".to_owned(), bytes(inline)),
            ("size".to_owned(), count(entry.data.len() as u64)),
            ("attributes".to_owned(), pairs(&entry.attributes)),
            ("source".to_owned(), text(entry.source.as_str())),
            ("messageId".to_owned(), optional(entry.message_id.as_deref().map(text))),
            ("publishTime".to_owned(), optional(entry.published_at.map(time))),
            ("receivedAt".to_owned(), time(entry.received_at)),
            ("deliveryAttempt".to_owned(), optional(entry.delivery_attempt.map(|n| count(u64::from(n))))),
        ]);
        writes.push((replace(document(name, fields)), inline.len() + beside + WRITE_OVERHEAD_BYTES));
        writes
    }

    /// Entries of this consumer, in the order of their ids. Their documents come a few at a time, so that a page of large
    /// ones is not read whole before its bytes are counted.
    pub(super) async fn list_poison(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        let prefix = self.address.poison_prefix();
        let mut page = QuarantinePage::default();
        let (mut bytes, mut after) = (0, after.map(str::to_owned));
        while page.entries.len() < size.entries && bytes < size.bytes {
            let wanted = DOCUMENTS_A_LISTING.min(size.entries - page.entries.len());
            let documents = self.poison_documents(after.as_deref(), wanted).await?;
            let last = documents.len() < wanted;
            for document in documents {
                if bytes >= size.bytes {
                    break;
                }
                let id = document.name.strip_prefix(&prefix).ok_or_else(|| spoiled(&document, "id"))?.to_owned();
                let entry = self.read_poison(id, &document).await?;
                bytes += entry.bytes();
                after = Some(entry.id.clone());
                page.entries.push(entry);
            }
            if last && bytes < size.bytes {
                return Ok(page);
            }
        }
        page.next = after;
        Ok(page)
    }

    /// Up to `limit` documents of entries, without their parts.
    async fn poison_documents(&self, after: Option<&str>, limit: usize) -> Result<Vec<Document>, StoreError> {
        let query = StructuredQuery {
            from: collection(self.address.quarantine(), false),
            order_by: vec![ascending(by_name())],
            start_at: Some(Cursor {
                // The bare prefix is a legal name that no entry has.
                values: vec![reference(self.address.poison(after.unwrap_or_default()))],
                before: false,
            }),
            end_at: Some(Cursor { values: vec![reference(self.address.poison_end())], before: true }),
            limit: Some(i32::try_from(limit).unwrap_or(i32::MAX)),
            ..Default::default()
        };
        self.query(self.address.root(), query, None, "list poison").await
    }

    /// One entry of this consumer.
    pub(super) async fn find_poison(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        if !is_entry(id) {
            return Ok(None);
        }
        let name = self.address.poison(id);
        let mut found = self.get(vec![name.clone()], None).await.map_err(failure)?;
        match found.remove(&name) {
            Some(document) => Ok(Some(self.read_poison(id.to_owned(), &document).await?)),
            None => Ok(None),
        }
    }

    /// Deletes entries. An entry and its parts go in one commit: without its parts it could not be read, and without it
    /// nobody would find the parts.
    pub(super) async fn discard_poison(&self, ids: &[String]) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        for id in ids.iter().filter(|id| is_entry(id)) {
            let name = self.address.poison(id);
            let query = StructuredQuery {
                select: Some(Projection { fields: vec![by_name()] }),
                from: collection(PARTS.to_owned(), false),
                ..Default::default()
            };
            // All there are: a payload that was replaced by a shorter one has left more than its size says.
            let parts = self.query(name.clone(), query, None, "list the parts of poison").await?;
            let names = parts.into_iter().map(|part| part.name).chain([name]);
            let deletes: Vec<Write> = names.map(delete).collect();
            if !writes.is_empty() && writes.len() + deletes.len() > MAX_WRITES {
                self.commit_poison(std::mem::take(&mut writes), "delete poison").await?;
            }
            writes.extend(deletes);
        }
        if writes.is_empty() { Ok(()) } else { self.commit_poison(writes, "delete poison").await }
    }

    async fn read_poison(&self, id: String, document: &Document) -> Result<Quarantined, StoreError> {
        let mut data = bytes_of(document)?.to_vec();
        let size = usize::try_from(int_of(document, "size")?).map_err(|_| spoiled(document, "size"))?;
        let parts = size.saturating_sub(data.len()).div_ceil(PART_BYTES);
        for n in 0..parts {
            // One at a time, so that no answer is larger than a document.
            let name = part_name(&document.name, n);
            let mut found = self.get(vec![name.clone()], None).await.map_err(failure)?;
            let part = found.remove(&name).ok_or_else(|| spoiled(document, "size"))?;
            data.extend_from_slice(bytes_of(&part)?);
        }
        if data.len() != size {
            return Err(spoiled(document, "size"));
        }
        Ok(Quarantined {
            id,
            reason: text_of(document, "reason")?.to_owned(),
            data: data.into(),
            attributes: pairs_of(document)?,
            source: text_of(document, "source")?.to_owned(),
            message_id: match field(document, "messageId") {
                Some(ValueType::StringValue(id)) => Some(id.clone()),
                _ => None,
            },
            published_at: time_of(document, "publishTime"),
            received_at: time_of(document, "receivedAt").ok_or_else(|| spoiled(document, "receivedAt"))?,
            delivery_attempt: match field(document, "deliveryAttempt") {
                Some(ValueType::IntegerValue(n)) => u32::try_from(*n).ok(),
                _ => None,
            },
        })
    }
}

/// Part `n` of an entry, counted from 0; the entry's own document holds what comes before it.
fn part_name(entry: &str, n: usize) -> String {
    format!("{entry}/{PARTS}/{n}")
}

/// Whether an entry may have this id; one with a slash would name a document below another entry.
fn is_entry(id: &str) -> bool {
    !id.is_empty() && !id.contains('/')
}

fn delete(name: String) -> Write {
    Write { operation: Some(Operation::Delete(name)), ..Default::default() }
}

/// Writes the whole document, whatever was there: the same poison again is one entry.
fn replace(document: Document) -> Write {
    Write {
        update_mask: None,
        update_transforms: Vec::new(),
        current_document: None,
        operation: Some(Operation::Update(document)),
    }
}

fn bytes(data: &[u8]) -> Value {
    value(ValueType::BytesValue(data.to_vec()))
}

fn optional(there: Option<Value>) -> Value {
    there.unwrap_or_else(|| value(ValueType::NullValue(0)))
}

/// An array of key and value, because a map's keys may be neither empty nor `__x__`.
fn pairs(attributes: &[(String, String)]) -> Value {
    let pair = |(k, v): &(String, String)| {
        let fields = HashMap::from([("key".to_owned(), text(k.as_str())), ("value".to_owned(), text(v.as_str()))]);
        value(ValueType::MapValue(MapValue { fields }))
    };
    value(ValueType::ArrayValue(ArrayValue { values: attributes.iter().map(pair).collect() }))
}

fn pairs_of(document: &Document) -> Result<Vec<(String, String)>, StoreError> {
    let Some(ValueType::ArrayValue(array)) = field(document, "attributes") else {
        return Err(spoiled(document, "attributes"));
    };
    let text_in = |map: &MapValue, name: &str| match map.fields.get(name)?.value_type.as_ref()? {
        ValueType::StringValue(text) => Some(text.clone()),
        _ => None,
    };
    let pair = |value: &Value| match value.value_type.as_ref()? {
        ValueType::MapValue(map) => Some((text_in(map, "key")?, text_in(map, "value")?)),
        _ => None,
    };
    array.values.iter().map(pair).collect::<Option<_>>().ok_or_else(|| spoiled(document, "attributes"))
}

fn bytes_of(document: &Document) -> Result<&[u8], StoreError> {
    match field(document, "data") {
        Some(ValueType::BytesValue(data)) => Ok(data),
        _ => Err(spoiled(document, "data")),
    }
}

fn time_of(document: &Document, name: &str) -> Option<SystemTime> {
    match field(document, name) {
        Some(ValueType::TimestampValue(time)) => SystemTime::try_from(Timestamp::clone(time)).ok(),
        _ => None,
    }
}
