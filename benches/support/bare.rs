//! What the Firestore client does alone: it commits. No decoding, no folding, no batch key, no check.

use super::events_of;
use gcloud_sdk::google::firestore::v1::document_transform::FieldTransform;
use gcloud_sdk::google::firestore::v1::document_transform::field_transform::{ServerValue, TransformType};
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{CommitRequest, Document, DocumentMask, Precondition, Value, Write};
use gcloud_sdk::prost_types::Timestamp;
use gcloud_sdk::tonic::Code;
use hotcount::store::firestore::Address;
use hotcount::store::firestore::rpc::{Grpc, Rpc};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Memberships in one commit: what is left of 500 writes beside one increment and one key.
pub(crate) const BATCH: usize = 498;

/// Commits at once; more are slower on the emulator.
pub(crate) const IN_FLIGHT: usize = 2;

/// What is in the documents of the bare loop.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "a benchmark compares with one of them")]
pub(crate) enum Documents {
    /// What identifies a like: five fields, and an empty key.
    Plain,
    /// Every field that the engine writes: the cell, the server's time of the update, and the key's own numbers.
    AsTheEngine,
}

/// Commits `likes` new memberships of one post, blindly. Each of the concurrent loops increments a shard of its own, as
/// the engine's lanes do; on one shard a slow emulator ends commits with a lock timeout. Such a commit is sent again.
pub(crate) async fn commit(address: &Address, likes: usize, documents: Documents) -> Duration {
    let client = Arc::new(Grpc::connect(address).await.expect("the emulator is there"));
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for shard in 0..IN_FLIGHT {
        let (client, next, address) = (Arc::clone(&client), Arc::clone(&next), address.clone());
        tasks.spawn(async move {
            loop {
                let from = next.fetch_add(BATCH, Ordering::Relaxed);
                if from >= likes {
                    return;
                }
                let request = request(&address, shard, from..likes.min(from + BATCH), documents);
                while let Err(status) = client.commit(request.clone()).await {
                    assert_eq!(status.code(), Code::Aborted, "{status}");
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("the task ends");
    }
    start.elapsed()
}

/// Memberships that must not exist, one increment, and a key that must not exist.
fn request(address: &Address, shard: usize, numbers: Range<usize>, documents: Documents) -> CommitRequest {
    let whole = documents == Documents::AsTheEngine;
    let root = address.root();
    let from = numbers.start;
    let delta = numbers.len() as i64;
    let mut writes: Vec<Write> = Vec::with_capacity(numbers.len() + 2);
    let mut key = HashMap::new();
    if whole {
        for field in ["applied", "duplicates", "stale", "posts"] {
            key.insert(field.to_owned(), value(ValueType::IntegerValue(delta)));
        }
        let expires = Timestamp { seconds: 2_000_000_000, nanos: 0 };
        key.insert("expireAt".to_owned(), value(ValueType::TimestampValue(expires)));
    }
    writes.push(create(format!("{root}/bareBatches/{from:032x}"), key, whole.then_some("processedAt")));
    for n in numbers {
        let (post, user, event) = events_of(n);
        let mut fields = HashMap::from([
            ("post".to_owned(), value(ValueType::StringValue(post.to_owned()))),
            ("user".to_owned(), value(ValueType::StringValue(user))),
            ("liked".to_owned(), value(ValueType::BooleanValue(true))),
            ("order".to_owned(), value(ValueType::IntegerValue(n as i64))),
            ("eventId".to_owned(), value(ValueType::StringValue(event))),
        ]);
        // An odd factor spreads the ids, as a hash would.
        let id = (n as u128 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let id = format!("{id:032x}");
        if whole {
            fields.insert("cell".to_owned(), value(ValueType::StringValue(format!("{}:{post}", &id[..1]))));
        }
        writes.push(create(format!("{root}/bareLikes/{id}"), fields, whole.then_some("updatedAt")));
    }
    writes.push(Write {
        update_mask: Some(DocumentMask::default()),
        update_transforms: vec![FieldTransform {
            field_path: "count".to_owned(),
            transform_type: Some(TransformType::Increment(value(ValueType::IntegerValue(delta)))),
        }],
        current_document: None,
        operation: Some(Operation::Update(document(format!("{root}/posts/post-0/bareShards/{shard}"), HashMap::new()))),
    });
    CommitRequest { database: address.database_path(), writes, ..Default::default() }
}

/// A document that must not exist, with the server's time in a field of it where one is named.
fn create(name: String, fields: HashMap<String, Value>, time: Option<&str>) -> Write {
    let transform = time.map(|field| FieldTransform {
        field_path: field.to_owned(),
        transform_type: Some(TransformType::SetToServerValue(ServerValue::RequestTime as i32)),
    });
    Write {
        update_mask: None,
        update_transforms: transform.into_iter().collect(),
        current_document: Some(Precondition { condition_type: Some(ConditionType::Exists(false)) }),
        operation: Some(Operation::Update(document(name, fields))),
    }
}

fn document(name: String, fields: HashMap<String, Value>) -> Document {
    Document { name, fields, create_time: None, update_time: None }
}

fn value(value_type: ValueType) -> Value {
    Value { value_type: Some(value_type) }
}
