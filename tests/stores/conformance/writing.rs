//! Batches: what they do to counts, and what they answer.

use super::fixture::{Fixture, add, batch, remove};
use hotcount::like::event::{Like, MAX_ID_BYTES};
use hotcount::store::{Applied, Attempt, ErrorClass};
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

fn wrote(applied: u64, duplicates: u64, stale: u64) -> Applied {
    Applied { applied, duplicates, stale, replayed: false }
}

pub(crate) async fn a_batch_applied_twice_under_one_key_counts_once_and_answers_replayed(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "b", "e0", 5)]).await;
    let batch = batch(&[add(&post, "a", "e1", 1), add(&post, "b", "e2", 2)]);
    let first = f.store.apply(&batch, Attempt::first(0)).await.expect("applied");
    assert_eq!(first, wrote(1, 1, 0));
    let again = Attempt { number: 2, resuming: true, shard: 3 };
    let second = f.store.apply(&batch, again).await.expect("answered");
    assert_eq!(second, Applied { replayed: true, ..first });
    f.assert_count(&post, 2).await;
}

pub(crate) async fn a_batch_resumed_after_a_lost_answer_counts_once(f: &Fixture) {
    let post = f.post("p");
    let batch = batch(&[add(&post, "a", "e1", 1), remove(&post, "b", "e2", 2)]);
    for number in 1..=4 {
        let attempt = Attempt { number, resuming: number > 1, shard: number as u16 };
        let applied = f.store.apply(&batch, attempt).await.expect("answered");
        assert_eq!(applied, Applied { applied: 2, replayed: number > 1, ..Applied::default() });
    }
    f.assert_count(&post, 1).await;
}

pub(crate) async fn a_batch_that_never_committed_is_applied_when_it_is_resumed(f: &Fixture) {
    let post = f.post("p");
    let attempt = Attempt { number: 2, resuming: true, shard: 0 };
    let applied = f.store.apply(&batch(&[add(&post, "a", "e1", 1)]), attempt).await.expect("applied");
    assert_eq!(applied, wrote(1, 0, 0));
    f.assert_count(&post, 1).await;
}

pub(crate) async fn a_like_in_two_batches_counts_once(f: &Fixture) {
    let post = f.post("p");
    assert_eq!(f.apply(&[add(&post, "a", "e1", 1)]).await, wrote(1, 0, 0));
    assert_eq!(f.apply(&[add(&post, "a", "e1", 1), add(&post, "b", "e2", 1)]).await, wrote(1, 1, 0));
    assert_eq!(f.apply(&[add(&post, "b", "e2", 1)]).await, wrote(0, 1, 0));
    f.assert_count(&post, 2).await;
}

pub(crate) async fn a_batch_that_changes_nothing_answers_and_changes_nothing(f: &Fixture) {
    let post = f.post("p");
    let likes = [add(&post, "a", "e1", 1), add(&post, "b", "e2", 1)];
    f.apply(&likes).await;
    let before = f.tally(&post).await;
    let idle = batch(&likes);
    for attempt in [Attempt::first(7), Attempt { number: 2, resuming: true, shard: 8 }] {
        let applied = f.store.apply(&idle, attempt).await.expect("answered");
        assert_eq!(Applied { replayed: false, ..applied }, wrote(0, 2, 0));
    }
    assert_eq!(f.tally(&post).await, before);
}

pub(crate) async fn a_removal_before_its_addition_wins_when_it_is_newer(f: &Fixture) {
    let post = f.post("p");
    assert_eq!(f.apply(&[remove(&post, "a", "e2", 2)]).await, wrote(1, 0, 0));
    f.assert_count(&post, 0).await;
    assert_eq!(f.apply(&[add(&post, "a", "e1", 1)]).await, wrote(0, 0, 1));
    f.assert_count(&post, 0).await;
}

pub(crate) async fn an_addition_newer_than_the_removal_before_it_wins(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e1", 1)]).await;
    f.apply(&[remove(&post, "a", "e2", 2)]).await;
    f.assert_count(&post, 0).await;
    f.apply(&[add(&post, "a", "e3", 3)]).await;
    f.assert_count(&post, 1).await;
}

pub(crate) async fn a_tie_is_decided_by_the_bytes_of_the_event_id(f: &Fixture) {
    // As bytes "Z" < "a" < "aa" < "é"; most collations say otherwise.
    let post = f.post("p");
    let ids = ["Z", "a", "aa", "é"];
    for (user, order) in [("up", [0, 1, 2, 3]), ("down", [3, 2, 1, 0]), ("mixed", [2, 0, 3, 1])] {
        for at in order {
            let like = if at == 3 { remove(&post, user, ids[at], 9) } else { add(&post, user, ids[at], 9) };
            f.apply(&[like]).await;
        }
        let stored = f.store.membership(&post, user).await.expect("read").expect("stored");
        assert_eq!((stored.event_id(), stored.liked()), ("é", false), "{user}");
    }
    f.assert_count(&post, 0).await;
}

pub(crate) async fn a_removal_wins_a_tie_of_the_same_event(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e", 1), remove(&post, "b", "e", 1)]).await;
    assert_eq!(f.apply(&[remove(&post, "a", "e", 1), add(&post, "b", "e", 1)]).await, wrote(1, 0, 1));
    f.assert_count(&post, 0).await;
}

pub(crate) async fn a_tombstone_keeps_an_older_addition_out(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e1", 1)]).await;
    f.apply(&[remove(&post, "a", "e3", 3)]).await;
    assert_eq!(f.apply(&[add(&post, "a", "e2", 2)]).await, wrote(0, 0, 1));
    f.assert_count(&post, 0).await;
    let stored = f.store.membership(&post, "a").await.expect("read").expect("a tombstone");
    assert_eq!(stored, remove(&post, "a", "e3", 3));
}

pub(crate) async fn a_newer_like_of_the_same_state_is_kept_so_that_an_older_removal_loses(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e1", 1)]).await;
    assert_eq!(f.apply(&[add(&post, "a", "e3", 3)]).await, wrote(1, 0, 0));
    assert_eq!(f.apply(&[remove(&post, "a", "e2", 2)]).await, wrote(0, 0, 1));
    f.assert_count(&post, 1).await;
}

pub(crate) async fn users_that_differ_by_case_or_accent_are_different(f: &Fixture) {
    let post = f.post("p");
    // "é" once as one letter, once as a letter and an accent; trailing blanks count.
    let users = ["Z", "z", "a", "A", "é", "e\u{301}", "e", "a ", " a", "ａ", "ß", "ss", "İ", "i"];
    f.apply(&users.map(|user| add(&post, user, "e", 1))).await;
    f.assert_count(&post, users.len() as i64).await;
    let gone = ["A", "é", "a "];
    f.apply(&gone.map(|user| remove(&post, user, "f", 2))).await;
    for user in users {
        let stored = f.store.membership(&post, user).await.expect("read").expect("stored");
        assert_eq!((stored.user(), stored.liked()), (user, !gone.contains(&user)));
    }
    f.assert_count(&post, (users.len() - gone.len()) as i64).await;
}

/// An id of exactly the longest length, told apart by its last letter.
fn longest(start: &str, end: char) -> String {
    let mut id = start.to_owned();
    id.push_str(&"x".repeat(MAX_ID_BYTES - start.len() - end.len_utf8()));
    id.push(end);
    assert_eq!(id.len(), MAX_ID_BYTES);
    id
}

pub(crate) async fn ids_may_be_as_long_as_the_contract_allows(f: &Fixture) {
    let (p, q) = (longest(&f.post("long-"), 'p'), longest(&f.post("long-"), 'q'));
    let (a, b) = (longest("user-", 'a'), longest("user-", 'b'));
    let (e1, e2) = (longest("event-", '1'), longest("event-", '2'));
    f.apply(&[add(&p, &a, &e1, 1), add(&p, &b, &e1, 1), add(&q, &a, &e1, 1)]).await;
    assert_eq!(f.apply(&[remove(&p, &a, &e2, 1), add(&q, &a, &e1, 1)]).await, wrote(1, 1, 0));
    f.assert_count(&p, 1).await;
    f.assert_count(&q, 1).await;
    let stored = f.store.membership(&p, &a).await.expect("read");
    assert_eq!(stored, Some(remove(&p, &a, &e2, 1)));
}

pub(crate) async fn ids_may_hold_odd_characters(f: &Fixture) {
    // A post's id must be a legal document id; users and events may be any text.
    let odd =
        ["a b", "a%2Fb", "a:b", "a?b#c", "'; drop", "\"", "\\", "\u{1}", "a\nb", "💚", "%", "+", "..a", "\u{10FFFF}"];
    let users = ["a/b", "/", ".", "..", "__x__", "\0", "a\0b", "a\0", "*", "`", "🙂", "\u{7f}", "{a}", "[0]"];
    for name in odd {
        let post = f.post(name);
        f.apply(&users.map(|user| add(&post, user, user, 1))).await;
        assert_eq!(f.apply(&users.map(|user| add(&post, user, user, 1))).await, wrote(0, users.len() as u64, 0));
        f.assert_count(&post, users.len() as i64).await;
    }
    let stored = f.store.membership(&f.post("💚"), "a\0b").await.expect("read").expect("stored");
    assert_eq!((stored.post(), stored.user(), stored.event_id()), (f.post("💚").as_str(), "a\0b", "a\0b"));
}

pub(crate) async fn posts_that_begin_alike_never_mix(f: &Fixture) {
    let (a, ab, abc) = (f.post("a"), f.post("ab"), f.post("ab-c"));
    // User "bc" of post "a", "c" of "ab": the same letters in a row.
    f.apply(&[add(&a, "bc", "e", 1), add(&a, "b", "e", 1), add(&ab, "c", "e", 1), add(&abc, "x", "e", 1)]).await;
    f.apply(&[remove(&ab, "c", "f", 2)]).await;
    f.assert_count(&a, 2).await;
    f.assert_count(&ab, 0).await;
    f.assert_count(&abc, 1).await;
}

pub(crate) async fn one_batch_may_hold_many_posts(f: &Fixture) {
    let likes: Vec<Like> =
        (0..90).map(|i| add(&f.post(&format!("p{}", i % 30)), &format!("u{i}"), "e", i64::from(i))).collect();
    assert_eq!(f.apply(&likes).await, wrote(90, 0, 0));
    for i in 0..30 {
        f.assert_count(&f.post(&format!("p{i}")), 3).await;
    }
}

pub(crate) async fn a_batch_counts_applied_duplicates_and_stale_likes(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e", 5), add(&post, "b", "e", 5), add(&post, "c", "e", 5)]).await;
    let likes = [
        add(&post, "a", "e", 5),
        remove(&post, "b", "f", 4),
        remove(&post, "c", "f", 6),
        add(&post, "d", "f", 6),
        remove(&post, "e", "f", 6),
    ];
    assert_eq!(f.apply(&likes).await, wrote(3, 1, 1));
    f.assert_count(&post, 3).await;
}

pub(crate) async fn orders_reach_both_ends_of_64_bits(f: &Fixture) {
    let post = f.post("p");
    f.apply(&[add(&post, "a", "e", i64::MAX), add(&post, "b", "e", i64::MIN)]).await;
    let likes = [remove(&post, "a", "f", i64::MAX - 1), remove(&post, "b", "f", i64::MIN + 1)];
    assert_eq!(f.apply(&likes).await, wrote(1, 0, 1));
    f.assert_count(&post, 1).await;
}

pub(crate) async fn concurrent_batches_on_the_same_members_leave_shards_equal_to_members(f: &Fixture) {
    const TASKS: u16 = 6;
    const ROUNDS: i64 = 5;
    const USERS: i64 = 12;
    let post = f.post("p");
    let barrier = Arc::new(Barrier::new(usize::from(TASKS)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, post, barrier) = (Arc::clone(&f.store), post.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                // Every task writes every member; whether the newest adds or removes depends on the member.
                let likes: Vec<Like> = (0..USERS)
                    .map(|user| {
                        let order = round * i64::from(TASKS) + (i64::from(task) + user) % i64::from(TASKS);
                        Like::new(&post, &format!("u{user}"), &format!("e{order}"), (order + user) % 3 != 0, order)
                    })
                    .collect();
                let batch = batch(&likes);
                barrier.wait().await;
                let mut attempt = Attempt::first(task);
                // What a flush does: the same batch again, under the same key, until it is answered.
                loop {
                    match store.apply(&batch, attempt).await {
                        Ok(_) => break,
                        Err(error) => {
                            assert!(error.class != ErrorClass::Fatal, "{error}");
                            assert!(attempt.number < 1_000, "no end of {error}");
                            attempt.number += 1;
                            attempt.resuming |= error.class == ErrorClass::Unknown;
                            tokio::task::yield_now().await;
                        }
                    }
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("the task ends");
    }
    let last = ROUNDS * i64::from(TASKS) - 1;
    let liked = (0..USERS).filter(|user| (last + user) % 3 != 0).count() as i64;
    f.assert_count(&post, liked).await;
}
