//! The same on Google's emulator, whose preconditions and locks are its own. How fast it is there depends on the machine, so
//! that is printed; what is asserted is that the counts are exact.

use crate::bully::feed::{BULLY, Feed, Toggles};
use crate::support::emulators::{firestore, unique};
use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::Progress;
use hotcount::like::event::OrderPolicy;
use hotcount::store::firestore::Firestore;
use hotcount::store::{Counts, Depth, Options, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const WORKERS: usize = 8;

/// Likes that all workers count together before it is measured: each has learnt who is a bully.
const WARM_UP: u64 = 4_000;

/// Likes that are measured.
const MEASURED: u64 = 6_000;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(240);

/// Likes a second, with the bully or without.
async fn run(host: &str, bully: bool) -> f64 {
    let (stop, toggles) = (CancellationToken::new(), bully.then(Arc::<Toggles>::default));
    let url = format!("firestore://{}?emulator={host}", unique("bully"));
    let connect = || async { Firestore::connect(&url, &Options::default()).await.expect("the emulator is there") };
    let (mut running, mut progress) = (JoinSet::new(), Vec::new());
    for worker in 0..WORKERS {
        let source = Feed { worker, toggles: toggles.clone(), held: Arc::default() };
        let config = Config {
            order: OrderPolicy::Version,
            batch_writes: Some(202),
            max_held_deliveries: 1_000,
            lanes: Some(1),
            seed: worker as u64,
            ..Config::default()
        };
        let numbers = Arc::new(Progress::default());
        progress.push(Arc::clone(&numbers));
        running.spawn(pipeline::run(
            Arc::new(source),
            Arc::new(connect().await),
            config,
            stop.clone().cancelled_owned(),
            numbers,
        ));
    }
    let applied = || progress.iter().map(|progress| progress.counted().applied).sum::<u64>();
    let counted = async |likes: u64| {
        let from = applied();
        while applied() < from + likes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        applied() - from
    };
    let measured = async {
        counted(WARM_UP).await;
        let began = Instant::now();
        counted(MEASURED).await as f64 / began.elapsed().as_secs_f64()
    };
    let rate = tokio::time::timeout(DEADLINE, measured).await;
    let rate = rate.unwrap_or_else(|_| panic!("only {} likes are counted", applied()));
    stop.cancel();
    let mut left = 0;
    while let Some(ended) = running.join_next().await {
        left += ended.expect("no panic").expect("the engine works").counted.left;
    }
    let store = connect().await;
    let tally = store.tally("viral", Depth::ShardsAndMembers).await.expect("it counts");
    assert_eq!(tally.drift(), Some(0), "{tally:?}");
    if let Some(toggles) = toggles {
        let newest = toggles.newest() as i64;
        let stored = store.membership("viral", BULLY).await.expect("it reads").expect("it was toggled");
        // What a drain had to leave would come back.
        assert!(stored.order() == newest || left > 0, "the bully's last wish is {newest}, not {}", stored.order());
        assert_eq!(stored.liked(), stored.order() % 2 == 1);
    }
    rate
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_toggles_in_everyones_batches_on_the_emulator_leaves_the_count_exact() {
    let Some(host) = firestore() else { return };
    // The emulator's Java is compiled while it runs; what comes first is slow.
    run(&host, false).await;
    let (without, with) = (run(&host, false).await, run(&host, true).await);
    println!("{with:.0} likes/s beside the bully, {without:.0} without: {:.2}", with / without);
}
