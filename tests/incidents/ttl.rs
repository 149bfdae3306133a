//! Batch keys that are gone, or still there, when nobody expects it.

use super::*;
use gcloud_sdk::google::firestore::v1::run_query_request::QueryType;
use gcloud_sdk::google::firestore::v1::structured_query::CollectionSelector;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{CommitRequest, Document, RunQueryRequest, StructuredQuery, Value, Write};
use gcloud_sdk::prost_types::Timestamp;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::Attempt;
use hotcount::store::firestore::rpc::Rpc;

async fn batch_keys(place: &Place) -> Vec<Document> {
    let from = vec![CollectionSelector { collection_id: "hotcountBatches".to_owned(), all_descendants: false }];
    let query = StructuredQuery { from, ..Default::default() };
    let request = RunQueryRequest {
        parent: place.address.root(),
        query_type: Some(QueryType::StructuredQuery(query)),
        ..Default::default()
    };
    let answers = place.grpc.run_query(request).await.expect("it answers");
    let documents = answers.into_iter().filter_map(|answer| answer.document);
    // The settings are kept beside them, and have no `expireAt`.
    documents.filter(|document| document.fields.contains_key("expireAt")).collect()
}

async fn write(place: &Place, operations: impl Iterator<Item = Operation>) {
    let writes = operations.map(|operation| Write { operation: Some(operation), ..Default::default() }).collect();
    let request = CommitRequest { database: place.address.database_path(), writes, ..Default::default() };
    place.grpc.commit(request).await.expect("it is written");
}

/// A backup of a week and more is delivered again, when every batch key of that time has expired.
async fn again_without_keys(likes: usize) {
    let Some(place) = Place::spoiled(|_| Verdict::Pass).await else { return };
    for applied in [likes as u64, 0] {
        let queue = queue_of(likes, Rules::default());
        queue.finish();
        let report = Worker::start(queue, place.store.clone(), config()).ended().await;
        assert_eq!((report.counted.applied, report.counted.left), (applied, 0));
        let keys = batch_keys(&place).await;
        assert_eq!(keys.is_empty(), applied == 0);
        write(&place, keys.into_iter().map(|key| Operation::Delete(key.name))).await;
    }
    assert_eq!(count(&*place.store, "p").await, (likes as i64, likes as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_like_older_than_every_batch_key_is_known_incident_52() {
    again_without_keys(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_sought_back_past_the_batch_keys_adds_nothing_incident_53() {
    again_without_keys(100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_key_that_has_expired_and_is_still_there_counts_as_there_incident_76() {
    let Some(place) = Place::spoiled(|_| Verdict::Pass).await else { return };
    let batch = Batch::new(BatchKey::from_random(76), vec![Like::new("p", "u", "e", true, 1)]);
    assert_eq!(place.store.apply(&batch, Attempt::first(1)).await.expect("it is applied").applied, 1);
    let mut key = batch_keys(&place).await.remove(0);
    let long_ago = Value { value_type: Some(ValueType::TimestampValue(Timestamp { seconds: 1, nanos: 0 })) };
    key.fields.insert("expireAt".to_owned(), long_ago);
    write(&place, std::iter::once(Operation::Update(key))).await;
    let again = Attempt { number: 2, resuming: true, shard: 1 };
    let answer = place.store.apply(&batch, again).await.expect("it is found");
    assert_eq!((answer.applied, answer.replayed), (1, true));
    assert_eq!(count(&*place.store, "p").await, (1, 1));
}

/// A policy on a field that is no timestamp deletes nothing, and nobody says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_key_expires_at_a_timestamp_later_than_any_retry_incident_74() {
    let Some(place) = Place::spoiled(|_| Verdict::Pass).await else { return };
    let batch = Batch::new(BatchKey::from_random(74), vec![Like::new("p", "u", "e", true, 1)]);
    place.store.apply(&batch, Attempt::first(1)).await.expect("it is applied");
    let key = batch_keys(&place).await.remove(0);
    let time = |field: &str| match &key.fields[field].value_type {
        Some(ValueType::TimestampValue(time)) => time.seconds,
        other => panic!("{field} is {other:?}"),
    };
    assert!(time("expireAt") - time("processedAt") > config().flush.retry_deadline(None).as_secs() as i64);
}
