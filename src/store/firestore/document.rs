//! Documents of the layout: how they are written, and how they are read back.
//!
//! Every document has its version, `v`; one without has version 1. Fields have one meaning for ever: a newer version may add
//! some, and what means something else gets another name. So a reader looks at the fields that it knows, a writer names them
//! in a mask and leaves the others alone, and `count` of a shard is an integer that is only added to in every version. What
//! else a newer document needs is not known here, so it is left to whoever knows.

use super::address::{Address, cell};
use crate::like::event::{Like, MAX_ID_BYTES};
use crate::store::{Applied, StoreError, StoredFault, Undecidable};
use gcloud_sdk::google::firestore::v1::document_transform::FieldTransform;
use gcloud_sdk::google::firestore::v1::document_transform::field_transform::{ServerValue, TransformType};
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{Document, DocumentMask, Precondition, Value, Write};
use gcloud_sdk::prost_types::Timestamp;
use std::collections::HashMap;
use std::time::SystemTime;

/// The version of the layout that an adapter knows: it writes this one, and reads no newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout(pub(super) i64);

impl Layout {
    /// The version as a field of a document that is written whole, or decided from the version that was read.
    pub(super) fn field(self) -> (String, Value) {
        ("v".to_owned(), int(self.0))
    }

    /// The version for a document that is written without having been read: a newer one stays.
    fn at_least(self) -> FieldTransform {
        FieldTransform { field_path: "v".to_owned(), transform_type: Some(TransformType::Maximum(int(self.0))) }
    }

    /// Whether a document can be read by who knows this version.
    pub(super) fn check(self, document: &Document) -> Result<(), StoredFault> {
        match field(document, "v") {
            None => Ok(()),
            Some(ValueType::IntegerValue(v)) if *v > self.0 => Err(StoredFault::Newer(*v)),
            Some(ValueType::IntegerValue(v)) if *v >= 1 => Ok(()),
            Some(_) => Err(wrong(document, "v", "a version")),
        }
    }
}

/// What is known about one membership before it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    /// It was not read; it is taken to be missing, and the commit is refused if it is not.
    Assumed,
    /// It was read, and was missing.
    Missing,
    /// It was read. The write holds only while it is still the version of this time.
    Stored {
        /// The newest like of this member that was seen.
        like: Like,
        /// When it was written.
        update_time: Timestamp,
    },
}

impl Known {
    /// What must hold when the membership is written: a concurrent writer that wrote it first makes the whole commit fail.
    fn precondition(&self) -> Precondition {
        let condition = match self {
            Self::Assumed | Self::Missing => ConditionType::Exists(false),
            Self::Stored { update_time, .. } => ConditionType::UpdateTime(*update_time),
        };
        Precondition { condition_type: Some(condition) }
    }
}

/// The fields of a membership that is written over another, beside the time of the server. `cell` is among them also where
/// it has no value: that deletes it.
const MEMBER_FIELDS: [&str; 7] = ["cell", "eventId", "liked", "order", "post", "user", "v"];

/// The write of the membership that `like` leaves. Fields that somebody else added stay; a removal deletes `cell`.
pub(super) fn write_member(address: &Address, layout: Layout, id: &str, like: &Like, known: &Known) -> Write {
    let mut fields = HashMap::from([
        layout.field(),
        ("post".to_owned(), text(like.post())),
        ("user".to_owned(), text(like.user())),
        ("liked".to_owned(), value(ValueType::BooleanValue(like.liked()))),
        ("order".to_owned(), int(like.order())),
        ("eventId".to_owned(), text(like.event_id())),
    ]);
    if like.liked() {
        fields.insert("cell".to_owned(), text(cell(id, like.post())));
    }
    Write {
        // What must not exist has no fields of others to keep.
        update_mask: matches!(known, Known::Stored { .. }).then(|| mask(&MEMBER_FIELDS)),
        update_transforms: vec![server_time("updatedAt")],
        current_document: Some(known.precondition()),
        operation: Some(Operation::Update(document(address.member(id), fields))),
    }
}

/// The write of a shard: an increment, which needs no knowledge of the count and makes the document when it is missing.
pub(super) fn write_shard(layout: Layout, name: String, delta: i64) -> Write {
    let increment =
        FieldTransform { field_path: "count".to_owned(), transform_type: Some(TransformType::Increment(int(delta))) };
    Write {
        // An empty mask leaves every field but the transformed ones alone; no mask would replace the document.
        update_mask: Some(mask(&[])),
        update_transforms: vec![increment, layout.at_least()],
        current_document: None,
        operation: Some(Operation::Update(document(name, HashMap::new()))),
    }
}

/// The write of a repair shard, which holds only under a condition.
pub(super) fn write_repair(layout: Layout, name: String, count: i64, condition: ConditionType) -> Write {
    Write {
        update_mask: Some(mask(&["count"])),
        update_transforms: vec![layout.at_least()],
        current_document: Some(Precondition { condition_type: Some(condition) }),
        operation: Some(Operation::Update(document(name, HashMap::from([("count".to_owned(), int(count))])))),
    }
}

/// The write of a batch key, which must not exist: whoever commits the batch a second time is refused.
pub(super) fn write_key(layout: Layout, name: String, applied: Applied, posts: usize, expire_at: SystemTime) -> Write {
    let fields = HashMap::from([
        layout.field(),
        ("applied".to_owned(), count(applied.applied)),
        ("duplicates".to_owned(), count(applied.duplicates)),
        ("stale".to_owned(), count(applied.stale)),
        ("posts".to_owned(), count(posts as u64)),
        ("expireAt".to_owned(), time(expire_at)),
    ]);
    Write { update_transforms: vec![server_time("processedAt")], ..create(name, fields) }
}

/// The write of a document that must not exist.
pub(super) fn create(name: String, fields: HashMap<String, Value>) -> Write {
    Write {
        update_mask: None,
        update_transforms: Vec::new(),
        current_document: Some(Precondition { condition_type: Some(ConditionType::Exists(false)) }),
        operation: Some(Operation::Update(document(name, fields))),
    }
}

/// A mask of these fields.
pub(super) fn mask(fields: &[&str]) -> DocumentMask {
    DocumentMask { field_paths: fields.iter().map(|field| (*field).to_owned()).collect() }
}

/// What the batch whose key this is has done to its `likes` likes. That the key is there means that it was committed,
/// whatever is in it: where that cannot be read, nothing is known but that every like of it was decided.
pub(super) fn read_key(document: &Document, likes: usize) -> Applied {
    let number = |field: &str| u64::try_from(int_of(document, field).ok()?).ok();
    let read = || {
        let (applied, duplicates, stale) = (number("applied")?, number("duplicates")?, number("stale")?);
        let sum = applied.checked_add(duplicates)?.checked_add(stale)?;
        (sum == likes as u64).then_some(Applied { applied, duplicates, stale, replayed: true })
    };
    read().unwrap_or(Applied { applied: likes as u64, duplicates: 0, stale: 0, replayed: true })
}

/// The membership that a document holds, which must be that of (`post`, `user`).
pub(super) fn read_member(layout: Layout, document: &Document, post: &str, user: &str) -> Result<Like, StoredFault> {
    layout.check(document)?;
    if text_of(document, "post")? != post {
        return Err(wrong(document, "post", "the post that its id stands for"));
    }
    if text_of(document, "user")? != user {
        return Err(wrong(document, "user", "the user that its id stands for"));
    }
    let event_id = text_of(document, "eventId")?;
    if event_id.len() > MAX_ID_BYTES {
        return Err(wrong(document, "eventId", "the id of an event"));
    }
    let liked = match field(document, "liked") {
        Some(ValueType::BooleanValue(liked)) => *liked,
        _ => return Err(wrong(document, "liked", "true or false")),
    };
    Ok(Like::new(post, user, event_id, liked, int_of(document, "order")?))
}

/// The count that a shard holds, which means the same in every version.
pub(super) fn read_shard(layout: Layout, document: &Document) -> Result<i64, StoredFault> {
    // A newer version that has another `count` is newer first, and spoiled second.
    int_of(document, "count").map_err(|wrong| layout.check(document).err().unwrap_or(wrong))
}

/// The type of one field's value.
pub(super) fn field<'a>(document: &'a Document, name: &str) -> Option<&'a ValueType> {
    document.fields.get(name).and_then(|value| value.value_type.as_ref())
}

/// An integer field.
pub(super) fn int_of(document: &Document, name: &str) -> Result<i64, StoredFault> {
    match field(document, name) {
        Some(ValueType::IntegerValue(number)) => Ok(*number),
        _ => Err(wrong(document, name, "an integer")),
    }
}

/// A string field.
pub(super) fn text_of<'a>(document: &'a Document, name: &str) -> Result<&'a str, StoredFault> {
    match field(document, name) {
        Some(ValueType::StringValue(text)) => Ok(text),
        _ => Err(wrong(document, name, "text")),
    }
}

/// A field that is not what hotcount writes there: something else has written the document.
pub(super) fn wrong(document: &Document, field: &str, wanted: &str) -> StoredFault {
    StoredFault::Unreadable(match document.fields.contains_key(field) {
        true => format!("its field '{field}' is not {wanted}"),
        false => format!("its field '{field}' is missing"),
    })
}

/// A document that cannot be read, for whoever asked for `place`.
pub(super) fn undecidable(place: usize, name: &str, fault: StoredFault) -> Undecidable {
    Undecidable { place, document: short(name).to_owned(), fault }
}

/// The one thing that was asked for cannot be read.
pub(super) fn unreadable(name: &str, fault: StoredFault) -> StoreError {
    StoreError::undecidable(vec![undecidable(0, name, fault)])
}

/// A document's path within its database.
pub(super) fn short(name: &str) -> &str {
    name.split_once("/documents/").map_or(name, |(_, path)| path)
}

/// A document to write.
pub(super) fn document(name: String, fields: HashMap<String, Value>) -> Document {
    Document { name, fields, create_time: None, update_time: None }
}

/// A value of a type.
pub(super) fn value(value_type: ValueType) -> Value {
    Value { value_type: Some(value_type) }
}

/// A string.
pub(super) fn text(text: impl Into<String>) -> Value {
    value(ValueType::StringValue(text.into()))
}

/// A 64-bit integer.
pub(super) fn int(number: i64) -> Value {
    value(ValueType::IntegerValue(number))
}

/// A number of things, which is far below what 63 bits hold.
pub(super) fn count(number: u64) -> Value {
    int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A time, kept to the microsecond.
pub(super) fn time(time: SystemTime) -> Value {
    value(ValueType::TimestampValue(time.into()))
}

fn server_time(field: &str) -> FieldTransform {
    FieldTransform {
        field_path: field.to_owned(),
        transform_type: Some(TransformType::SetToServerValue(ServerValue::RequestTime as i32)),
    }
}
