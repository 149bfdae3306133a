//! What workers agree on, and the witness that a store takes writes.

use super::fixture::{Fixture, add, batch};
use futures::future::join_all;
use hotcount::like::batch::BatchKey;
use hotcount::store::{Applied, Attempt, LAYOUT, Settings};

fn settings(order: &str) -> Settings {
    Settings { order: order.to_owned(), identity: "member".to_owned(), layout: LAYOUT }
}

pub(crate) async fn the_first_settings_are_kept_and_answered_to_everybody(f: &Fixture) {
    let first = f.store.agree(&settings("version")).await.expect("answered");
    assert_eq!(first, settings("version"));
    for order in ["occurred-at", "none", "version"] {
        assert_eq!(f.store.agree(&settings(order)).await.expect("answered"), first);
    }
    let other = Settings { identity: "event".to_owned(), layout: LAYOUT + 1, ..settings("version") };
    assert_eq!(f.store.agree(&other).await.expect("answered"), first);
}

pub(crate) async fn workers_that_start_at_once_see_the_same_settings(f: &Fixture) {
    let orders = ["version", "occurred-at", "none", "version", "occurred-at", "none"];
    let wanted = orders.map(settings);
    let kept = join_all(wanted.iter().map(|settings| f.store.agree(settings))).await;
    let kept: Vec<Settings> = kept.into_iter().map(|answer| answer.expect("answered")).collect();
    assert!(wanted.contains(&kept[0]), "{kept:?}");
    assert!(kept.iter().all(|other| *other == kept[0]), "{kept:?}");
}

pub(crate) async fn a_probe_changes_no_count_and_may_be_made_again(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e", 1)]).await;
    let probe = BatchKey::from_random(rand::random());
    for _ in 0..2 {
        f.store.probe(probe).await.expect("the store takes writes");
    }
    f.assert_count(&post, 1).await;
    // A batch under a key of its own is as it would be without.
    let these = batch(&[add(&post, "b", "e", 1)]);
    let applied = f.store.apply(&these, Attempt { number: 2, resuming: true, shard: 0 }).await.expect("applied");
    assert_eq!(applied, Applied { applied: 1, ..Applied::default() });
    f.assert_count(&post, 2).await;
}
