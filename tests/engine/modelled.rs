//! The engine on a modelled database: what the contention benchmark relies on.

use super::*;
use hotcount::lab::firestore_model::{Assumptions, Contended, Contention, ShardChoice, Usage};

/// Three workers on one post of one database: what was asked of it, when the last of them ended, and the slowest settling.
async fn run(seed: u64) -> (Usage, Duration, Vec<Duration>) {
    let memory = Arc::new(Memory::default());
    let contention = Contention::new(Assumptions::default(), seed);
    let began = tokio::time::Instant::now();
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let source = Messages::default();
            for n in 0..400 {
                source.publish(event(n, "p", &format!("w{worker}u{n}"), true, 1)).expect("room");
            }
            let seed = seed * 10 + worker;
            let store = Contended::new(memory.clone(), contention.clone(), ShardChoice::OfTheLane, seed);
            let mut config = Config { seed, batch_keys: BatchKeys::Seeded(seed), ..config() };
            // Few enough that lanes meet.
            config.flush.shards = 8.try_into().expect("8");
            Worker::start(&source, Arc::new(store), config)
        })
        .collect();
    let mut slowest = Vec::new();
    for worker in workers {
        let progress = worker.progress.clone();
        assert_eq!(worker.finish().await.counted.applied, 400);
        slowest.push(progress.settle_latency.quantile(1.0));
    }
    assert_eq!(count(&*memory, "p").await, (1_200, Some(1_200)));
    (contention.usage(), began.elapsed(), slowest)
}

#[tokio::test(start_paused = true)]
async fn a_modelled_run_replays_from_its_seed() {
    let first = run(1).await;
    assert_eq!(run(1).await, first);
    assert_ne!(run(2).await, first);
}
