//! What duplicates and lost answers cost.

use super::*;

#[tokio::test]
async fn a_lost_answer_is_recognised_by_its_key_at_the_cost_of_one_read() {
    let Some(place) = Place::new("lost") else { return };
    let (store, faults) = place.faulty().await;
    let one = batch(likes("post", 0..50));
    faults.fail_next_commit(Code::Unavailable, When::After);
    let error = store.apply(&one, Attempt::first(1)).await.expect_err("the answer is lost");
    assert_eq!(error.class, ErrorClass::Unknown);
    let before = store.billed();
    let applied = store.apply(&one, resuming()).await.expect("it is recognised");
    assert_eq!(applied, Applied { applied: 50, duplicates: 0, stale: 0, replayed: true });
    let after = store.billed();
    assert_eq!((after.reads - before.reads, after.writes - before.writes), (1, 0));
    assert_eq!(tally(&store, "post").await, (50, 1, 50));
}

#[tokio::test]
async fn a_blind_duplicate_costs_two_reads_and_is_counted_once() {
    let Some(place) = Place::new("blind") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..1)).await;
    let before = store.billed();
    let applied = apply(&store, likes("post", 0..100)).await;
    assert_eq!(applied, Applied { applied: 99, duplicates: 1, stale: 0, replayed: false });
    let after = store.billed();
    // The key and the one document that the refusal named; then the key, 99 members and the shard are written.
    assert_eq!(after.reads - before.reads, 2);
    assert_eq!(after.writes - before.writes, 101);
    assert_eq!(after.refused_commits - before.refused_commits, 1);
    assert_eq!(tally(&store, "post").await, (100, 1, 100));
}

#[tokio::test]
async fn many_blind_duplicates_are_found_by_reading_all_members_and_the_next_batch_reads_first() {
    let Some(place) = Place::new("many") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..100)).await;
    let again = apply(&store, likes("post", 0..101)).await;
    assert_eq!(again, Applied { applied: 1, duplicates: 100, stale: 0, replayed: false });
    let refused = store.billed().refused_commits;
    assert!(refused <= 5, "{refused}");
    let before = store.billed();
    let third = apply(&store, likes("post", 0..101)).await;
    assert_eq!(third, Applied { applied: 0, duplicates: 101, stale: 0, replayed: false });
    let after = store.billed();
    assert_eq!((after.reads - before.reads, after.writes - before.writes), (101, 0));
    assert_eq!(after.refused_commits, refused);
    // Few were stored in this batch's place, so the one after it is blind again.
    apply(&store, likes("other", 0..1)).await;
    let before = store.billed().reads;
    apply(&store, likes("third", 0..10)).await;
    assert_eq!(store.billed().reads, before);
    assert_eq!(tally(&store, "post").await, (101, 1, 101));
}

#[tokio::test]
async fn one_duplicate_in_a_thousand_costs_less_than_a_hundredth_of_a_read_a_like() {
    let Some(place) = Place::new("cost") else { return };
    let store = place.store().await;
    let before = store.billed();
    let (batches, size) = (20_u32, 495_u32);
    let mut received = 0;
    let mut duplicates = 0;
    for n in 0..batches {
        let mut these = likes("post", n * size..(n + 1) * size);
        // A like of the batch before comes again in every second batch: about one in a thousand.
        if n % 2 == 1 {
            these.extend(likes("post", (n - 1) * size + n..(n - 1) * size + n + 1));
        }
        received += these.len() as u64;
        let applied = apply(&store, these).await;
        duplicates += applied.duplicates;
    }
    assert_eq!(duplicates, 10);
    let reads = store.billed().reads - before.reads;
    assert!(reads * 100 <= received, "{reads} reads for {received} likes");
    let all = i64::from(batches * size);
    assert_eq!(store.tally("post", Depth::ShardsAndMembers).await.expect("it counts").count, all);
    assert_eq!(tally(&store, "post").await.2, u64::from(batches * size));
}
