//! Any likes, in any order, in any batches, with any retries: shards, members and a model say the same.

use super::fixture::{Fixture, batch};
use hotcount::like::batch::Batch;
use hotcount::like::event::Like;
use hotcount::store::{Applied, Attempt};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

/// Runs on one store one after the other: each has posts of its own, so an adapter opens one store, not hundreds.
const RUNS: u32 = 48;

/// What happens to one batch beside being applied.
#[derive(Clone, Copy, Debug)]
enum Retry {
    Never,
    /// Sent again under its key, as after a lost answer.
    Resumed {
        shard: u16,
    },
    /// Sent again under its key by somebody who knows of no lost answer.
    Again {
        shard: u16,
    },
    /// Its likes come back in a new batch, as after a crash.
    Regrouped {
        shard: u16,
    },
}

type Wish = (u8, u8, u8, i64, bool);

fn any_run() -> impl Strategy<Value = (Vec<Wish>, Vec<(usize, u16, Retry)>)> {
    let wish = (0..3_u8, 0..4_u8, 0..3_u8, 0..4_i64, any::<bool>());
    let shard = || 0..3_u16;
    let retry = prop_oneof![
        2 => Just(Retry::Never),
        1 => shard().prop_map(|shard| Retry::Resumed { shard }),
        1 => shard().prop_map(|shard| Retry::Again { shard }),
        1 => shard().prop_map(|shard| Retry::Regrouped { shard }),
    ];
    (prop::collection::vec(wish, 1..40), prop::collection::vec((1..8_usize, shard(), retry), 40))
}

/// The newest like of each member stays, as in an aggregator.
fn folded(likes: &[Like]) -> Batch {
    let mut newest: BTreeMap<(String, String), Like> = BTreeMap::new();
    for like in likes {
        keep_newest(&mut newest, like);
    }
    batch(&newest.into_values().collect::<Vec<_>>())
}

fn keep_newest(newest: &mut BTreeMap<(String, String), Like>, like: &Like) {
    let member = (like.post().to_owned(), like.user().to_owned());
    let kept = newest.entry(member).or_insert_with(|| like.clone());
    if like.membership().cmp_newness(&kept.membership()).is_gt() {
        *kept = like.clone();
    }
}

pub(crate) async fn any_likes_in_any_batches_with_any_retries_leave_what_the_model_says(f: &Fixture) {
    let mut runner = TestRunner::default();
    for run in 0..RUNS {
        let (wishes, plan) = any_run().new_tree(&mut runner).expect("a run").current();
        let posts: Vec<String> = (0..3).map(|post| f.post(&format!("run{run}-{post}"))).collect();
        let likes: Vec<Like> = wishes
            .iter()
            .map(|&(post, user, event, order, liked)| {
                Like::new(&posts[usize::from(post)], &format!("u{user}"), &format!("e{event}"), liked, order)
            })
            .collect();
        let mut model = BTreeMap::new();
        likes.iter().for_each(|like| keep_newest(&mut model, like));
        apply_all(f, &likes, &plan).await;
        for (at, post) in posts.iter().enumerate() {
            let expected = model.values().filter(|like| like.post() == post && like.liked()).count() as i64;
            let tally = f.tally(post).await;
            assert_eq!((tally.count, tally.drift()), (expected, Some(0)), "post {at} of {likes:#?} by {plan:?}");
        }
        for ((post, user), like) in &model {
            let stored = f.store.membership(post, user).await.expect("read");
            assert_eq!(stored.as_ref(), Some(like), "after {likes:#?} by {plan:?}");
        }
    }
}

async fn apply_all(f: &Fixture, likes: &[Like], plan: &[(usize, u16, Retry)]) {
    let mut rest = likes;
    for &(width, shard, retry) in plan {
        if rest.is_empty() {
            return;
        }
        let (now, later) = rest.split_at(width.min(rest.len()));
        rest = later;
        let batch = folded(now);
        let first = f.store.apply(&batch, Attempt::first(shard)).await.expect("applied");
        assert_eq!(first.applied + first.duplicates + first.stale, batch.likes().len() as u64);
        assert!(!first.replayed);
        let again = match retry {
            Retry::Never => continue,
            Retry::Resumed { shard } => (batch, Attempt { number: 2, resuming: true, shard }),
            Retry::Again { shard } => (batch, Attempt { number: 2, resuming: false, shard }),
            Retry::Regrouped { shard } => (folded(now), Attempt::first(shard)),
        };
        let second = f.store.apply(&again.0, again.1).await.expect("applied");
        if again.1.resuming && first.applied > 0 {
            assert_eq!(second, Applied { replayed: true, ..first });
        } else if !second.replayed {
            assert_eq!(second.applied, 0, "nothing is new the second time");
        }
    }
    assert!(rest.is_empty(), "the plan covers all likes");
}
