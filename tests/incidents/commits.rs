//! Commits that are aborted, repeated or too large.

use super::*;
use gcloud_sdk::google::firestore::v1::CommitRequest;
use gcloud_sdk::google::firestore::v1::write::Operation;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::Attempt;
use prost::Message;
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn batch(key: u128, likes: usize) -> Batch {
    let likes = (0..likes).map(|n| Like::new("p", &format!("u{n}"), "e", true, 1)).collect();
    Batch::new(BatchKey::from_random(key), likes)
}

/// A commit is no call that a library may repeat by itself: only the batch key tells whether it had taken effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_layer_below_the_flush_sends_a_commit_again_incident_57() {
    let lost = |call: &Call<'_>| match (call.method, call.number) {
        ("Commit", 0) => Verdict::Lose(Status::new(14, "unavailable")),
        ("Commit", 1) => Verdict::Refuse(Status::new(14, "unavailable")),
        _ => Verdict::Pass,
    };
    let Some(place) = Place::spoiled(lost).await else { return };
    for (key, applied) in [(1, 5), (2, 0)] {
        let error = place.store.apply(&batch(key, 5), Attempt::first(1)).await.expect_err("the answer was lost");
        assert_eq!((error.class, place.proxy.calls("Commit")), (ErrorClass::Unknown, key as usize));
        let again = Attempt { number: 2, resuming: true, shard: 1 };
        let answer = place.store.apply(&batch(key, 5), again).await.expect("it works");
        assert_eq!((answer.applied, answer.replayed), (applied, key == 1));
    }
    assert_eq!(place.proxy.calls("Commit"), 2, "what was there was only read");
    assert_eq!(place.proxy.calls("BatchWrite"), 0, "a batch that is not atomic is never used");
    assert_eq!(count(&*place.store, "p").await, (5, 5));
}

/// Firestore takes 500 transforms of one document in one commit. A shard has two, for its count and its version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_batch_has_at_most_two_transforms_a_document_incident_71() {
    let most = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let counting = Arc::clone(&most);
    let wire = move |call: &Call<'_>| {
        if call.method == "Commit" {
            let mut transforms = counting.lock().unwrap();
            for write in CommitRequest::decode(call.message).unwrap().writes {
                let name = match write.operation.unwrap() {
                    Operation::Update(document) => document.name,
                    Operation::Transform(transform) => transform.document,
                    other => panic!("{other:?}"),
                };
                *transforms.entry(name).or_default() += write.update_transforms.len();
            }
        }
        Verdict::Pass
    };
    let Some(place) = Place::spoiled(wire).await else { return };
    let likes = place.store.limits().max_writes - 2;
    assert_eq!(place.store.apply(&batch(3, likes), Attempt::first(1)).await.expect("it fits").applied, likes as u64);
    let transforms = most.lock().unwrap();
    assert!(transforms.len() >= likes && transforms.values().all(|n| *n <= 2), "{:?}", transforms.values().max());
}

/// Attempts at commits while half of them are aborted for five minutes.
#[tokio::test(start_paused = true)]
async fn half_of_all_commits_aborted_for_minutes_loses_nothing_and_makes_no_storm_incident_60() {
    let (memory, attempts) = (Arc::new(Memory::default()), Arc::new(AtomicUsize::new(0)));
    let (began, counting) = (tokio::time::Instant::now(), Arc::clone(&attempts));
    let store = Faulty::new(Arc::clone(&memory), move |_, _| {
        let odd = counting.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let aborted = odd && began.elapsed() < Duration::from_secs(300);
        Fault { delay: SECOND / 10, ..if aborted { Fault::before(ErrorClass::DidNotCommit) } else { Fault::default() } }
    });
    let queue = queue_of(5_000, Rules { lease: Duration::from_secs(3_600), ..Rules::default() });
    queue.finish();
    let worker = Worker::start(queue.clone(), store, config());
    let progress = Arc::clone(&worker.progress);
    until("half is done during the storm", || progress.counted().applied >= 2_500).await;
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
    let report = worker.ended().await;
    assert_eq!((report.counted.applied, report.counted.left, queue.seen().delivered), (5_000, 0, 5_000));
    assert_eq!(count(&*memory, "p").await, (5_000, 5_000));
    let (attempts, commits) = (attempts.load(Ordering::Relaxed), progress.commits() as usize);
    assert!(attempts <= commits * 2 + 10, "{attempts} attempts for {commits} commits");
}

/// A key range that takes only so many writes a second aborts commits which share no document.
#[tokio::test(start_paused = true)]
async fn aborts_of_commits_that_share_no_document_are_waited_out_incident_61() {
    let (memory, window) = (Arc::new(Memory::default()), Mutex::new((0, 0)));
    let began = tokio::time::Instant::now();
    let store = Faulty::new(Arc::clone(&memory), move |batch, _| {
        let mut window = window.lock().unwrap();
        let second = began.elapsed().as_secs();
        if window.0 != second {
            *window = (second, 0);
        }
        window.1 += batch.likes().len();
        if window.1 > 100 { Fault::before(ErrorClass::DidNotCommit) } else { Fault::slow(SECOND / 100) }
    });
    let queue = Queue::new(Rules { lease: Duration::from_secs(3_600), ..Rules::default() });
    // A post of its own for each like.
    (0..2_000).for_each(|n| queue.publish(event("e", &format!("p{n}"), "u", true, 1)));
    queue.finish();
    let report = Worker::start(queue, store, config()).ended().await;
    assert_eq!((report.counted.applied, report.counted.left), (2_000, 0));
    for n in [0, 999, 1_999] {
        assert_eq!(count(&*memory, &format!("p{n}")).await, (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_workers_on_the_same_members_ends_with_each_counted_once_incident_63() {
    let Some(place) = Place::spoiled(|_| Verdict::Pass).await else { return };
    let workers: Vec<Worker> = (0..6)
        .map(|n| {
            let queue = Queue::new(Rules::default());
            (0..40).for_each(|user| queue.publish(event(&format!("e{n}"), "p", &format!("u{user}"), n != 5, n)));
            queue.finish();
            let mut config = config();
            config.flush.shards = NonZeroU16::new(2).expect("not 0");
            Worker::start(queue, place.store.clone(), config)
        })
        .collect();
    for worker in workers {
        assert_eq!(worker.ended().await.counted.left, 0);
    }
    // The newest wish of each is a removal.
    assert_eq!(count(&*place.store, "p").await, (0, 0));
}
