//! Drift that was made from outside, and the one document that corrects it.

use super::*;
use futures::TryStreamExt;
use gcloud_sdk::google::firestore::v1::Value;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use hotcount::read::{reader, repair};
use hotcount::store::{Repair, Repaired};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Commits from outside, past the adapter.
async fn tamper(place: &Place, operations: Vec<Operation>) {
    let write = |operation| Write { operation: Some(operation), ..Default::default() };
    let request = CommitRequest {
        database: place.address().database_path(),
        writes: operations.into_iter().map(write).collect(),
        ..Default::default()
    };
    place.grpc().await.commit(request).await.expect("it is committed");
}

fn shard(place: &Place, post: &str, shard: &str, count: i64) -> Operation {
    let count = Value { value_type: Some(ValueType::IntegerValue(count)) };
    let fields = [("count".to_owned(), count)].into();
    Operation::Update(Document { name: place.address().shard(post, shard), fields, ..Default::default() })
}

async fn correct(store: &Firestore, post: &str) -> repair::Outcome {
    repair::correct(store, post, &mut SmallRng::seed_from_u64(1)).await.expect("it is corrected")
}

#[tokio::test]
async fn a_repair_is_one_document_that_holds_what_the_other_shards_lack() {
    let Some(place) = Place::new("repair") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..5)).await;
    tamper(&place, vec![shard(&place, "post", "1", 2)]).await;
    let outcome = correct(&store, "post").await;
    assert_eq!((outcome.found.drift(), outcome.corrected, outcome.now.drift()), (Some(-3), 3, Some(0)));
    assert_eq!(tally(&store, "post").await, (5, 2, 5));
    // Workers go on with their own shards.
    apply(&store, likes("post", 5..7)).await;
    assert_eq!(tally(&store, "post").await, (7, 2, 7));
    let document = place.find(&place.address().shard("post", "repair")).await.expect("there is a repair shard");
    assert_eq!(format!("{:?}", document.fields["count"].value_type), "Some(IntegerValue(3))");
    assert_eq!(format!("{:?}", document.fields["v"].value_type), "Some(IntegerValue(1))");
    assert_eq!(document.fields.len(), 2);
}

#[tokio::test]
async fn a_repair_whose_answer_was_lost_is_read_again_and_never_doubled() {
    let Some(place) = Place::new("lost-repair") else { return };
    let (store, faults) = place.faulty().await;
    let codes = [Code::Unavailable, Code::DeadlineExceeded, Code::Internal, Code::Unknown, Code::Cancelled];
    for (n, code) in codes.into_iter().chain([Code::Aborted, Code::ResourceExhausted]).enumerate() {
        for when in [When::Before, When::After] {
            // The first repair of a post makes the document, the second changes it.
            let post = format!("post-{n}-{when:?}");
            apply(&store, likes(&post, 0..2)).await;
            for count in [9, -9] {
                tamper(&place, vec![shard(&place, &post, "1", count)]).await;
                faults.fail_next_commit(code, when);
                let outcome = correct(&store, &post).await;
                assert_eq!(outcome.now.drift(), Some(0), "{code:?} {when:?}");
                assert_eq!(outcome.corrected, -outcome.found.drift().unwrap(), "{code:?} {when:?}");
                assert_eq!((tally(&store, &post).await.0, outcome.refused), (2, 0), "{code:?} {when:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_repair_shard_that_somebody_deleted_or_made_refuses_an_older_reading() {
    let Some(place) = Place::new("raced-repair") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..2)).await;
    let absent = store.audit("post").await.expect("it is read");
    tamper(&place, vec![shard(&place, "post", "repair", 5), shard(&place, "post", "1", 2)]).await;
    let present = store.audit("post").await.expect("it is read");
    let lying = |mut seen: hotcount::store::Audit| {
        seen.tally.count += 1;
        seen
    };
    assert_eq!(store.repair("post", &lying(absent)).await.expect("answered"), Repaired::Conflict);
    tamper(&place, vec![Operation::Delete(place.address().shard("post", "repair"))]).await;
    assert_eq!(store.repair("post", &present).await.expect("answered"), Repaired::Conflict);
    assert_eq!(correct(&store, "post").await.corrected, 0);
}

#[tokio::test]
async fn a_deep_verify_finds_posts_without_shards_and_posts_without_members() {
    let Some(place) = Place::new("deep") else { return };
    let store = Arc::new(place.store().await);
    for post in ["healthy", "no-shards", "no-members"] {
        apply(&store, likes(post, 0..3)).await;
    }
    let mut gone = vec![Operation::Delete(place.address().shard("no-shards", "1"))];
    for user in 0..3 {
        let id = member_id("no-members", &format!("user-{user}"));
        gone.push(Operation::Delete(place.address().member(&id)));
    }
    tamper(&place, gone).await;
    let drifting = |rows: Vec<reader::Verified>| -> Vec<(String, i64)> {
        let drift = |row: &reader::Verified| row.tally.as_ref().expect("it is read").drift().expect("asked for");
        rows.into_iter().map(|row| (row.post.clone(), drift(&row))).collect()
    };
    let shallow = reader::verify(store.clone(), Listing::Shards).try_collect().await.expect("it is read");
    assert_eq!(drifting(shallow), [("healthy".to_owned(), 0), ("no-members".to_owned(), 3)]);
    let deep = reader::verify_deep(store.clone()).try_collect().await.expect("it is read");
    let expected = [("healthy", 0), ("no-members", 3), ("no-shards", -3)].map(|(post, drift)| (post.to_owned(), drift));
    assert_eq!(drifting(deep), expected);
    assert_eq!(correct(&store, "no-members").await.corrected, -3);
    assert_eq!(correct(&store, "no-shards").await.corrected, 3);
    let deep = reader::verify_deep(store).try_collect().await.expect("it is read");
    assert!(drifting(deep).iter().all(|(_, drift)| *drift == 0));
}
