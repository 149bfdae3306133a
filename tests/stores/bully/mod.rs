//! One user who toggles one like without end is in everyone's batches. The real engine and the real Firestore adapter, many
//! workers on one database whose locks, delays and preconditions are modelled, on a clock that is paused: what is measured
//! is the model's time, so it never depends on the machine.

mod documents;
mod emulator;
mod feed;

use documents::{Connection, Documents};
use feed::{BULLY, Feed, Toggles};
use hotcount::engine::flush::BatchKeys;
use hotcount::engine::pipeline::{self, Config};
use hotcount::like::event::OrderPolicy;
use hotcount::store::firestore::{Address, Firestore, member_id};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const WORKERS: usize = 16;

/// Likes in one batch, beside its shard and its key.
const BATCH: usize = 200;

/// Deliveries that one worker may hold: what fits in ten batches.
const HELD: usize = 10 * BATCH;

/// Not measured: lanes part from each other's shards, and learn who is a bully.
const WARM_UP: Duration = Duration::from_secs(2);

const LASTS: Duration = Duration::from_secs(1);

/// Runs all workers, with the bully or without: how many likes of others were counted while it was measured.
async fn run(bully: bool) -> i64 {
    let (documents, stop) = (Documents::new(7), CancellationToken::new());
    let toggles = bully.then(Arc::<Toggles>::default);
    let address = Address::parse("firestore://model?members_by=scan", "like-counter", None).expect("the URL is right");
    let (mut running, mut held) = (JoinSet::new(), Vec::new());
    for worker in 0..WORKERS {
        let store = Firestore::over(Arc::new(Connection(Arc::clone(&documents))), address.clone());
        let source = Feed { worker, toggles: toggles.clone(), held: Arc::default() };
        held.push(Arc::clone(&source.held));
        let config = Config {
            order: OrderPolicy::Version,
            batch_writes: Some(BATCH + 2),
            max_held_deliveries: HELD,
            recent_likes: Some(1_000),
            seed: worker as u64,
            batch_keys: BatchKeys::Seeded(worker as u64),
            ..Config::default()
        };
        running.spawn(pipeline::run(
            Arc::new(source),
            Arc::new(store),
            config,
            stop.clone().cancelled_owned(),
            Arc::default(),
        ));
    }
    tokio::time::sleep(WARM_UP).await;
    let began = documents.counts().members;
    tokio::time::sleep(LASTS).await;
    let others = documents.counts().members - began;
    stop.cancel();
    while let Some(ended) = running.join_next().await {
        let report = ended.expect("no panic").expect("the engine works");
        assert_eq!(report.counted.left, 0, "{:?}", report.counted);
    }
    for held in held {
        let (most, left) = held.most_and_now();
        assert!(most <= HELD && left == 0, "{most} deliveries were held at once, {left} are");
    }
    let counts = documents.counts();
    assert_eq!(counts.shards, counts.members, "the shards say what the members say");
    if let Some(toggles) = toggles {
        let newest = toggles.newest();
        let name = format!("projects/model/databases/(default)/documents/hotcountLikes/{}", member_id("viral", BULLY));
        let last_wish = Some((newest as i64, newest % 2 == 1));
        assert_eq!(documents.member(&name), last_wish, "the bully's last wish holds");
        assert!(counts.refused > 0, "workers have raced for the bully");
    }
    others
}

#[tokio::test(start_paused = true)]
async fn a_user_who_toggles_in_everyones_batches_slows_the_others_by_at_most_a_third() {
    let (without, with) = (run(false).await, run(true).await);
    let share = with as f64 / without as f64;
    println!("{with} likes of others beside the bully, {without} without: {share:.2}");
    assert!(share >= 2.0 / 3.0, "{share:.2} of what it is without: {with} and {without}");
}
