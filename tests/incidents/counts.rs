//! What readers see, whatever the shards are.

use super::*;
use hotcount::store::firestore::rpc::Rpc;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::num::NonZeroU16;

#[tokio::test(start_paused = true)]
async fn workers_of_64_16_and_64_shards_on_one_post_lose_no_like_incident_84() {
    let memory = Arc::new(Memory::default());
    let mut running = Vec::new();
    for (worker, shards) in [64, 16, 64].into_iter().enumerate() {
        let queue = Queue::new(Rules::default());
        (0..600).for_each(|n| queue.publish(like(worker * 400 + n)));
        queue.finish();
        let mut config = Config { seed: worker as u64, lanes: Some(8), ..config() };
        config.flush.shards = NonZeroU16::new(shards).expect("not 0");
        // The next one starts while this one is under way.
        running.push(Worker::start(queue, failing(&memory, |_| Fault::slow(SECOND)), config));
        tokio::time::sleep(SECOND * 2).await;
    }
    for worker in running {
        assert_eq!(worker.ended().await.counted.left, 0);
    }
    let tally = memory.tally("p", Depth::ShardsAndMembers).await.expect("memory can be read");
    assert_eq!((tally.count, tally.members), (1_400, Some(1_400)));
    assert!(tally.shards > 3, "{tally:?}");
}

/// Which shard documents a post has, and what they hold.
fn layouts() -> impl Strategy<Value = Vec<(u16, i64)>> {
    proptest::collection::btree_map(any::<u16>(), -1_000_000_000_i64..1_000_000_000, 0..80)
        .prop_map(|shards| shards.into_iter().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_is_the_sum_of_whatever_shards_there_are_incident_86() {
    use gcloud_sdk::google::firestore::v1::value::ValueType;
    use gcloud_sdk::google::firestore::v1::write::Operation;
    use gcloud_sdk::google::firestore::v1::{CommitRequest, Document, Value, Write};
    let Some(place) = Place::spoiled(|_| Verdict::Pass).await else { return };
    let mut runner = TestRunner::default();
    for number in 0..40 {
        let (post, layout) = (format!("p{number}"), layouts().new_tree(&mut runner).expect("it grows").current());
        let names = layout.iter().map(|(shard, count)| (shard.to_string(), *count));
        let shards: Vec<(String, i64)> = names.chain((number % 2 == 0).then(|| ("repair".to_owned(), -7))).collect();
        let write = |(shard, count): &(String, i64)| Write {
            operation: Some(Operation::Update(Document {
                name: place.address.shard(&post, shard),
                fields: [("count".to_owned(), Value { value_type: Some(ValueType::IntegerValue(*count)) })].into(),
                ..Default::default()
            })),
            ..Default::default()
        };
        let writes = shards.iter().map(write).collect();
        let request = CommitRequest { database: place.address.database_path(), writes, ..Default::default() };
        place.grpc.commit(request).await.expect("it is written");
        let tally = place.store.tally(&post, Depth::Shards).await.expect("it is read");
        let sum: i64 = shards.iter().map(|(_, count)| count).sum();
        assert_eq!((tally.count, tally.shards), (sum, shards.len() as u64), "{shards:?}");
    }
}
