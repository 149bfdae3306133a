//! One quarantined delivery as documents: the entry, and the parts that continue its payload.

use super::document::{
    Layout, count, document, field, int_of, mask, short, text, text_of, time, unreadable, value, wrong,
};
use super::{Firestore, failure};
use crate::store::{Quarantined, StoreError, StoredFault};
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{ArrayValue, Document, MapValue, Value, Write};
use gcloud_sdk::prost_types::Timestamp;
use std::collections::HashMap;
use std::time::SystemTime;

/// Bytes of one document's data; a document may have 1,048,487 with its name and its other fields.
const PART_BYTES: usize = 900 << 10;

/// What a write takes beside the bytes that are counted: names of fields, and the document's own.
const WRITE_OVERHEAD_BYTES: usize = 4 << 10;

/// The collection under an entry that continues its payload.
pub(super) const PARTS: &str = "parts";

/// The fields of an entry.
const ENTRY_FIELDS: [&str; 10] = [
    "attributes",
    "data",
    "deliveryAttempt",
    "messageId",
    "publishTime",
    "reason",
    "receivedAt",
    "size",
    "source",
    "v",
];

/// The writes of one entry, each with about its bytes. Parts come before the entry that needs them.
pub(super) fn writes(layout: Layout, name: &str, entry: &Quarantined) -> Vec<(Write, usize)> {
    let beside = entry.reason.len() + entry.attributes.iter().map(|(k, v)| k.len() + v.len() + 32).sum::<usize>();
    let (inline, rest) = entry.data.split_at(entry.data.len().min(PART_BYTES.saturating_sub(beside)));
    let mut writes: Vec<(Write, usize)> = rest
        .chunks(PART_BYTES)
        .enumerate()
        .map(|(n, part)| {
            let fields = HashMap::from([layout.field(), ("data".to_owned(), bytes(part))]);
            (replace(&["data", "v"], document(part_name(name, n), fields)), part.len() + WRITE_OVERHEAD_BYTES)
        })
        .collect();
    let fields = HashMap::from([
        layout.field(),
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
    let write = replace(&ENTRY_FIELDS, document(name.to_owned(), fields));
    writes.push((write, inline.len() + beside + WRITE_OVERHEAD_BYTES));
    writes
}

impl Firestore {
    /// The entry that a document holds, its parts included; the fault where it or one of them cannot be read.
    pub(super) async fn read_poison(
        &self,
        id: String,
        document: &Document,
    ) -> Result<Result<Quarantined, StoredFault>, StoreError> {
        let (mut entry, size) = match head(self.layout, id, document) {
            Ok(head) => head,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut data = Vec::from(std::mem::take(&mut entry.data));
        // One at a time, so that no answer is larger than a document. Each has something, so this ends.
        for n in 0.. {
            if data.len() >= size {
                break;
            }
            let name = part_name(&document.name, n);
            let mut found = self.get(vec![name.clone()], None).await.map_err(failure)?;
            let part = match found.remove(&name) {
                None => Err(StoredFault::Unreadable(format!("its part {n} is missing"))),
                Some(part) => continued(self.layout, n, &part).map(|bytes| data.extend_from_slice(bytes)),
            };
            if let Err(fault) = part {
                return Ok(Err(fault));
            }
        }
        if data.len() > size {
            return Ok(Err(wrong(document, "size", "the size of its payload")));
        }
        entry.data = data.into();
        Ok(Ok(entry))
    }

    /// The same where nothing but this entry was asked for.
    pub(super) async fn read_only_poison(&self, id: &str, document: &Document) -> Result<Quarantined, StoreError> {
        let read = self.read_poison(id.to_owned(), document).await?;
        read.map_err(|fault| unreadable(&document.name, fault))
    }
}

/// What an entry's own document says, with the first of its payload, and the size of all of it.
fn head(layout: Layout, id: String, document: &Document) -> Result<(Quarantined, usize), StoredFault> {
    layout.check(document)?;
    let size = int_of(document, "size")?;
    let size = usize::try_from(size).map_err(|_| wrong(document, "size", "a size"))?;
    let entry = Quarantined {
        id,
        reason: text_of(document, "reason")?.to_owned(),
        data: bytes_of(document)?.to_vec().into(),
        attributes: pairs_of(document)?,
        source: text_of(document, "source")?.to_owned(),
        message_id: match field(document, "messageId") {
            Some(ValueType::StringValue(id)) => Some(id.clone()),
            _ => None,
        },
        published_at: time_of(document, "publishTime"),
        received_at: time_of(document, "receivedAt").ok_or_else(|| wrong(document, "receivedAt", "a time"))?,
        delivery_attempt: match field(document, "deliveryAttempt") {
            Some(ValueType::IntegerValue(n)) => u32::try_from(*n).ok(),
            _ => None,
        },
    };
    Ok((entry, size))
}

/// What a part adds to the payload.
fn continued(layout: Layout, n: usize, part: &Document) -> Result<&[u8], StoredFault> {
    let of_the_part = |fault| match fault {
        StoredFault::Unreadable(why) => StoredFault::Unreadable(format!("{} is such that {why}", short(&part.name))),
        newer => newer,
    };
    layout.check(part).and_then(|()| bytes_of(part)).map_err(of_the_part).and_then(|data| match data {
        [] => Err(StoredFault::Unreadable(format!("its part {n} is empty"))),
        data => Ok(data),
    })
}

/// Part `n` of an entry, counted from 0; the entry's own document holds what comes before it.
fn part_name(entry: &str, n: usize) -> String {
    format!("{entry}/{PARTS}/{n}")
}

/// Writes these fields, whatever was there: the same poison again is one entry. Others stay, and mean nothing to a reader
/// of the version that is written with them.
fn replace(fields: &[&str], document: Document) -> Write {
    Write {
        update_mask: Some(mask(fields)),
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

fn pairs_of(document: &Document) -> Result<Vec<(String, String)>, StoredFault> {
    let Some(ValueType::ArrayValue(array)) = field(document, "attributes") else {
        return Err(wrong(document, "attributes", "a list of keys and values"));
    };
    let text_in = |map: &MapValue, name: &str| match map.fields.get(name)?.value_type.as_ref()? {
        ValueType::StringValue(text) => Some(text.clone()),
        _ => None,
    };
    let pair = |value: &Value| match value.value_type.as_ref()? {
        ValueType::MapValue(map) => Some((text_in(map, "key")?, text_in(map, "value")?)),
        _ => None,
    };
    array
        .values
        .iter()
        .map(pair)
        .collect::<Option<_>>()
        .ok_or_else(|| wrong(document, "attributes", "a list of keys and values"))
}

fn bytes_of(document: &Document) -> Result<&[u8], StoredFault> {
    match field(document, "data") {
        Some(ValueType::BytesValue(data)) => Ok(data),
        _ => Err(wrong(document, "data", "bytes")),
    }
}

fn time_of(document: &Document, name: &str) -> Option<SystemTime> {
    match field(document, name) {
        Some(ValueType::TimestampValue(time)) => SystemTime::try_from(Timestamp::clone(time)).ok(),
        _ => None,
    }
}
