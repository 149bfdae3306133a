//! Documents of the layout: how they are written, and how they are read back.

use super::address::{Address, cell};
use crate::event::{Like, MAX_ID_BYTES};
use crate::store::{Applied, ErrorClass, StoreError};
use gcloud_sdk::google::firestore::v1::document_transform::FieldTransform;
use gcloud_sdk::google::firestore::v1::document_transform::field_transform::{ServerValue, TransformType};
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{Document, DocumentMask, Precondition, Value, Write};
use gcloud_sdk::prost_types::Timestamp;
use std::collections::HashMap;
use std::time::SystemTime;

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
    /// What must hold when the membership is written: a twin that wrote it first makes the whole commit fail.
    fn precondition(&self) -> Precondition {
        let condition = match self {
            Self::Assumed | Self::Missing => ConditionType::Exists(false),
            Self::Stored { update_time, .. } => ConditionType::UpdateTime(*update_time),
        };
        Precondition { condition_type: Some(condition) }
    }
}

/// The write of the membership that `like` leaves. It replaces the whole document, so a removal drops `cell`.
pub(super) fn write_member(address: &Address, id: &str, like: &Like, known: &Known) -> Write {
    let mut fields = HashMap::from([
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
        update_mask: None,
        update_transforms: vec![server_time("updatedAt")],
        current_document: Some(known.precondition()),
        operation: Some(Operation::Update(document(address.member(id), fields))),
    }
}

/// The write of a shard: an increment, which needs no knowledge of the count and makes the document when it is missing.
pub(super) fn write_shard(name: String, delta: i64) -> Write {
    Write {
        // An empty mask leaves every field but the transformed one alone; no mask would replace the document.
        update_mask: Some(DocumentMask { field_paths: Vec::new() }),
        update_transforms: vec![FieldTransform {
            field_path: "count".to_owned(),
            transform_type: Some(TransformType::Increment(int(delta))),
        }],
        current_document: None,
        operation: Some(Operation::Update(document(name, HashMap::new()))),
    }
}

/// The write of a batch key, which must not exist: whoever commits the batch a second time is refused.
pub(super) fn write_key(name: String, applied: Applied, posts: usize, expire_at: SystemTime) -> Write {
    Write {
        update_mask: None,
        update_transforms: vec![server_time("processedAt")],
        current_document: Some(Precondition { condition_type: Some(ConditionType::Exists(false)) }),
        operation: Some(Operation::Update(document(
            name,
            HashMap::from([
                ("applied".to_owned(), count(applied.applied)),
                ("duplicates".to_owned(), count(applied.duplicates)),
                ("stale".to_owned(), count(applied.stale)),
                ("posts".to_owned(), count(posts as u64)),
                ("expireAt".to_owned(), time(expire_at)),
            ]),
        ))),
    }
}

/// The write of a whole document, which holds only under a condition.
pub(super) fn replace_if(condition: ConditionType, name: String, fields: HashMap<String, Value>) -> Write {
    Write {
        update_mask: None,
        update_transforms: Vec::new(),
        current_document: Some(Precondition { condition_type: Some(condition) }),
        operation: Some(Operation::Update(document(name, fields))),
    }
}

/// The outcome that a batch key holds.
pub(super) fn read_key(document: &Document) -> Result<Applied, StoreError> {
    let number = |field: &str| u64::try_from(int_of(document, field)?).map_err(|_| spoiled(document, field));
    Ok(Applied {
        applied: number("applied")?,
        duplicates: number("duplicates")?,
        stale: number("stale")?,
        replayed: true,
    })
}

/// The membership that a document holds, which must be that of (`post`, `user`).
pub(super) fn read_member(document: &Document, post: &str, user: &str) -> Result<Like, StoreError> {
    if text_of(document, "post")? != post {
        return Err(spoiled(document, "post"));
    }
    if text_of(document, "user")? != user {
        return Err(spoiled(document, "user"));
    }
    let event_id = text_of(document, "eventId")?;
    if event_id.len() > MAX_ID_BYTES {
        return Err(spoiled(document, "eventId"));
    }
    let liked = match field(document, "liked") {
        Some(ValueType::BooleanValue(liked)) => *liked,
        _ => return Err(spoiled(document, "liked")),
    };
    Ok(Like::new(post, user, event_id, liked, int_of(document, "order")?))
}

/// The count that a shard holds. Only increments and repairs write it, so anything but an integer comes from outside.
pub(super) fn read_shard(document: &Document) -> Result<i64, StoreError> {
    int_of(document, "count")
}

/// The type of one field's value.
pub(super) fn field<'a>(document: &'a Document, name: &str) -> Option<&'a ValueType> {
    document.fields.get(name).and_then(|value| value.value_type.as_ref())
}

/// An integer field.
pub(super) fn int_of(document: &Document, name: &str) -> Result<i64, StoreError> {
    match field(document, name) {
        Some(ValueType::IntegerValue(number)) => Ok(*number),
        _ => Err(spoiled(document, name)),
    }
}

/// A string field.
pub(super) fn text_of<'a>(document: &'a Document, name: &str) -> Result<&'a str, StoreError> {
    match field(document, name) {
        Some(ValueType::StringValue(text)) => Ok(text),
        _ => Err(spoiled(document, name)),
    }
}

/// A document that something else than this adapter has written. Only the likes that need it are in trouble, so the
/// batch is split until they are alone.
pub(super) fn spoiled(document: &Document, field: &str) -> StoreError {
    StoreError::new(
        ErrorClass::BatchCannotWork,
        format!("the field '{field}' of the document {} is not what hotcount writes there", document.name),
    )
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
