//! Drift: reading it with the version of the repair shard, and correcting it once.

use super::fixture::{Fixture, add, remove};
use futures::future::join_all;
use hotcount::like::event::MAX_ID_BYTES;
use hotcount::read::repair;
use hotcount::store::{Audit, Repaired, Tally};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use tokio::sync::Barrier;

async fn audit(f: &Fixture, post: &str) -> Audit {
    f.store.audit(post).await.expect("read")
}

async fn repair(f: &Fixture, post: &str, seen: &Audit) -> Repaired {
    f.store.repair(post, seen).await.expect("answered")
}

pub(crate) async fn an_unknown_post_has_nothing_to_repair(f: &Fixture) {
    let post = f.post("nobody");
    let seen = audit(f, &post).await;
    let zero = Tally { count: 0, shards: 0, members: Some(0) };
    assert_eq!(seen, Audit { tally: zero, repaired: 0, version: None });
    assert_eq!(repair(f, &post, &seen).await, Repaired::Done);
    assert_eq!(f.tally(&post).await, zero, "no shard was made");
}

pub(crate) async fn a_healthy_post_is_left_as_it_is(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e", 1), add(&post, "b", "e", 1)]).await;
    let seen = audit(f, &post).await;
    assert_eq!(seen, Audit { tally: f.tally(&post).await, repaired: 0, version: None });
    assert_eq!(repair(f, &post, &seen).await, Repaired::Done);
    assert_eq!(audit(f, &post).await, seen);
}

pub(crate) async fn drift_either_way_is_corrected_in_one_shard_of_its_own(f: &Fixture) {
    let (post, neighbour) = (f.post("p"), f.post("p2"));
    f.apply(&[add(&post, "a", "e", 1), add(&post, "b", "e", 1), add(&neighbour, "a", "e", 1)]).await;
    for drift in [3, -7] {
        f.make_drift(&post, drift).await;
        let seen = audit(f, &post).await;
        assert_eq!((seen.tally.count, seen.tally.drift()), (2 + drift, Some(drift)));
        assert_eq!((seen.repaired, seen.version.is_some()), (drift, true));
        assert_eq!(repair(f, &post, &seen).await, Repaired::Done);
        f.assert_count(&post, 2).await;
        let now = audit(f, &post).await;
        assert_eq!((now.repaired, now.tally.shards), (0, 2));
        assert_ne!(now.version, seen.version);
    }
    f.assert_count(&neighbour, 1).await;
}

pub(crate) async fn of_two_repairs_from_one_reading_the_second_is_refused(f: &Fixture) {
    // With and without a repair shard that is there already.
    for name in ["new", "old"] {
        let post = f.post(name);
        f.apply(&[add(&post, "a", "e", 1)]).await;
        f.make_drift(&post, 2).await;
        if name == "old" {
            assert_eq!(repair(f, &post, &audit(f, &post).await).await, Repaired::Done);
            f.make_drift(&post, 5).await;
        }
        let seen = audit(f, &post).await;
        let both = join_all([repair(f, &post, &seen), repair(f, &post, &seen)]).await;
        assert!(both.contains(&Repaired::Done) && both.contains(&Repaired::Conflict), "{both:?}");
        assert_eq!(repair(f, &post, &seen).await, Repaired::Conflict);
        f.assert_count(&post, 1).await;
    }
}

pub(crate) async fn a_late_repair_is_refused_although_the_count_looks_as_it_did(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e", 1)]).await;
    f.make_drift(&post, 4).await;
    let early = audit(f, &post).await;
    assert_eq!(repair(f, &post, &early).await, Repaired::Done);
    // The same drift again: the repair shard holds what it held, and is another version of it.
    f.make_drift(&post, 4).await;
    assert_eq!(repair(f, &post, &early).await, Repaired::Conflict);
    let seen = audit(f, &post).await;
    assert_eq!((seen.repaired, &seen.tally), (early.repaired, &early.tally));
    assert_eq!(repair(f, &post, &seen).await, Repaired::Done);
    f.assert_count(&post, 1).await;
}

pub(crate) async fn likes_counted_between_reading_and_repairing_stay_counted(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e", 1), add(&post, "b", "e", 1)]).await;
    f.make_drift(&post, -5).await;
    let seen = audit(f, &post).await;
    f.apply_on(3, &[add(&post, "c", "e", 1), add(&post, "d", "e", 1)]).await;
    f.apply_on(4, &[remove(&post, "a", "f", 2)]).await;
    assert_eq!(repair(f, &post, &seen).await, Repaired::Done);
    f.assert_count(&post, 3).await;
}

pub(crate) async fn two_operators_and_workers_at_once_leave_no_drift(f: &Fixture) {
    const BATCHES: u16 = 12;
    let post = f.post("p");
    f.apply(&[add(&post, "first", "e", 1)]).await;
    f.make_drift(&post, 6).await;
    let together = Arc::new(Barrier::new(4));
    let worker = |writer: u16| {
        let (post, together) = (&post, Arc::clone(&together));
        async move {
            together.wait().await;
            for number in 0..BATCHES {
                let likes: Vec<_> = (0..5).map(|n| add(post, &format!("u{writer}-{number}-{n}"), "e", 1)).collect();
                f.apply_on(writer, &likes).await;
            }
        }
    };
    let operator = |seed| {
        let (post, together) = (&post, Arc::clone(&together));
        async move {
            together.wait().await;
            repair::correct(&*f.store, post, &mut SmallRng::seed_from_u64(seed)).await.expect("corrected")
        }
    };
    let ((), (), one, two) = futures::join!(worker(0), worker(1), operator(1), operator(2));
    assert_eq!(one.corrected + two.corrected, -6, "{one:?} {two:?}");
    assert_eq!((one.now.drift(), two.now.drift()), (Some(0), Some(0)));
    f.assert_count(&post, 1 + i64::from(BATCHES) * 10).await;
}

pub(crate) async fn the_longest_post_is_repaired_too(f: &Fixture) {
    let start = f.post("long-");
    let post = format!("{start}{}", "x".repeat(MAX_ID_BYTES - start.len()));
    f.apply(&[add(&post, "a", "e", 1)]).await;
    f.make_drift(&post, 1).await;
    assert_eq!(repair(f, &post, &audit(f, &post).await).await, Repaired::Done);
    f.assert_count(&post, 1).await;
}
