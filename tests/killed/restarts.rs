//! Nothing is killed, and nothing may end as a dead letter: workers that are replaced one after the other, and a store
//! that is away.

use crate::audit::{Scene, metric};
use crate::events::Events;
use crate::place::{Made, Place, Way};
use crate::process::{Worker, until};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Workers that run at once.
const FLEET: usize = 3;

/// Streams of each. Few, for the emulator may give a message to a stream that is gone.
const STREAMS: usize = 2;

/// Streams of the one that finishes.
const STREAMS_AT_THE_END: usize = 32;

/// Half of the attempts after which a message is given up. What a worker had asked for and not taken is one attempt more
/// each time: when it stops, and whenever a lease ends while it pulls nothing.
const FEW_ATTEMPTS: u64 = 50;

/// How often the store's absence is told.
const EVERY: Duration = Duration::from_secs(30);

/// How often a chunk is published while the store is away.
const PUBLISH_EVERY: Duration = Duration::from_secs(5);

/// What comes back after an outage has waited for as long as the broker thought right.
const MORE_PATIENCE: Duration = Duration::from_secs(240);

async fn scene(seed: u64, made: Made, extension_s: u32) -> Option<Scene> {
    let mut place = Place::new(Way::PubSubToFirestore, made).await?;
    // What is given to a stream that is gone comes back after so long; an outage is longer than that.
    place.extension_s = extension_s;
    Some(Scene::new(place, Events::new(SmallRng::seed_from_u64(seed))))
}

/// Stops a worker and starts the next, again and again, while events come.
pub(crate) async fn rolling(restarts: usize, seed: u64) -> Option<String> {
    let mut scene = scene(seed, Made::BySetupWithoutBackoff, 10).await?;
    let mut fleet: VecDeque<Worker> = (0..FLEET).map(|_| scene.worker(STREAMS, &["--batch-writes", "30"])).collect();
    for number in 0..restarts {
        let mut oldest = fleet.pop_front().expect("a worker");
        oldest.signal("TERM");
        // While it drains: what it has asked for and not taken must go elsewhere.
        scene.publish().await;
        let status = oldest.wait();
        assert_eq!(status.code(), Some(0), "worker {number} leaves nothing: {}", oldest.log());
        fleet.push_back(scene.worker(STREAMS, &["--batch-writes", "30"]));
    }
    for worker in fleet {
        assert_eq!(worker.terminate().0.code(), Some(0));
    }
    scene.finished_by(|scene| scene.worker(STREAMS_AT_THE_END, &[])).await;
    nothing_is_dead(&scene)
}

/// No dead letter, and nothing that is on its way to be one; only poison shows how often it was.
fn nothing_is_dead(scene: &Scene) -> Option<String> {
    let dead = scene.place.dead_letters();
    assert!(dead.is_empty(), "dead letters: {dead}");
    let attempts = scene.place.attempts();
    let most = attempts.iter().max().copied().unwrap_or_default();
    assert!((1..=FEW_ATTEMPTS).contains(&most), "delivered {most} times");
    Some(format!("{} messages of poison were delivered {most} times at most", attempts.len()))
}

/// The store is away for so long: first it refuses, then it is silent. One worker holds on.
pub(crate) async fn outage(length: Duration, seed: u64) -> Option<String> {
    let mut scene = scene(seed, Made::BySetup, 20).await?;
    (scene.reopen_after, scene.deadline) = (length + MORE_PATIENCE, length * 2 + MORE_PATIENCE);
    let worker = scene.worker(STREAMS, &["--batch-writes", "30"]);
    scene.publish().await;
    until("it counts", true, || metric(&worker, "hotcount_likes_applied_total") > 0.0);
    let (begun, mut told, mut silent) = (Instant::now(), Instant::now(), false);
    scene.place.refuse_all();
    // At once, so that the worker holds it for all the time.
    scene.publish().await;
    until("it holds what it cannot commit", true, || metric(&worker, "hotcount_held_deliveries") > 0.0);
    while begun.elapsed() < length {
        if !silent && begun.elapsed() > length / 2 {
            silent = true;
            scene.place.silence_all();
        }
        if told.elapsed() >= EVERY {
            told = Instant::now();
            let held = metric(&worker, "hotcount_held_deliveries");
            eprintln!("the store is away for {} s, the worker holds {held}", begun.elapsed().as_secs());
        }
        scene.publish().await;
        sleep(PUBLISH_EVERY.min(length / 4)).await;
    }
    let dropped = metric(&worker, "hotcount_deliveries_redelivered_total");
    assert!(dropped == 0.0, "{dropped} tokens were dropped");
    scene.place.trap.disarm();
    let back = Instant::now();
    let mut worker = Some(worker);
    scene.finished_by(|_| worker.take().expect("one worker is enough")).await;
    let took = back.elapsed();
    let said = nothing_is_dead(&scene)?;
    Some(format!("one worker had counted all {:.0} s after the store was back; {said}", took.as_secs_f64()))
}
