//! Folding, sealing and knowing.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn buffer(max_writes: usize) -> Aggregator<u32> {
    Aggregator::new(Config { max_writes, recent_likes: 10, ..Config::default() })
}

fn like(post: &str, user: &str, liked: bool, order: i64) -> Like {
    Like::new(post, user, &format!("e{order}"), liked, order)
}

fn key(n: u128) -> BatchKey {
    BatchKey::from_random(n)
}

#[test]
fn likes_of_one_member_are_folded_into_the_newest_and_keep_all_receipts() {
    let (buffer, now) = (buffer(500), Instant::now());
    assert_eq!(buffer.add(like("p", "u", true, 2), 1, now), Added::Buffered);
    assert_eq!(buffer.add(like("p", "u", false, 1), 2, now), Added::Folded);
    assert_eq!(buffer.add(like("p", "u", false, 3), 3, now), Added::Folded);
    let sealed = buffer.seal(key(1)).expect("one like waits");
    assert_eq!(sealed.batch().likes(), [like("p", "u", false, 3)]);
    assert_eq!(sealed.deliveries(), 3);
    let receipts = sealed.into_receipts().pop().expect("one like");
    assert_eq!(receipts.own, Some(3));
    assert_eq!(receipts.folded, [2, 1]);
    assert!(buffer.seal(key(2)).is_none());
}

#[test]
fn a_batch_holds_the_oldest_likes_and_counts_one_write_a_post_and_the_key() {
    let (buffer, now) = (buffer(6), Instant::now());
    for (n, post) in ["b", "a", "b", "c"].iter().enumerate() {
        buffer.add(like(post, &format!("u{n}"), true, 1), 0, now);
    }
    // b, a, b are three likes and two posts: six writes with the key. A third post does not fit.
    insta::assert_snapshot!(format!("{:?}", buffer.seal(key(1)).expect("full").batch()), @r"
    batch 00000000-0000-4000-8000-000000000001 · 3 likes
    + a u1 @1
    + b u0 @1
    + b u2 @1
    ");
    assert_eq!(buffer.seal(key(2)).expect("the rest").likes(), 1);
}

#[test]
fn a_batch_ends_at_its_bytes_but_always_holds_one_like() {
    let buffer: Aggregator<()> = Aggregator::new(Config { max_bytes: 1_000, ..Config::default() });
    for n in 0..3 {
        buffer.add(like("p", &format!("{n}{}", "x".repeat(1_400)), true, 1), (), Instant::now());
    }
    assert_eq!(buffer.seal(key(1)).expect("waits").likes(), 1);
    assert_eq!(buffer.len(), 2);
}

#[test]
fn a_batch_is_due_a_linger_after_its_oldest_like() {
    let (buffer, now) = (buffer(500), Instant::now());
    assert_eq!(buffer.due_at(), None);
    buffer.add(like("p", "u", true, 1), 0, now);
    buffer.add(like("p", "v", true, 1), 0, now + Duration::from_secs(1));
    assert_eq!(buffer.due_at(), Some(now + Config::default().linger));
}

#[test]
fn what_is_not_newer_than_a_durable_like_is_known_and_what_is_newer_is_not() {
    let (buffer, now) = (buffer(500), Instant::now());
    buffer.add(like("p", "u", true, 5), 0, now);
    assert_eq!(buffer.add(like("p", "u", true, 5), 1, now), Added::Folded, "not durable yet");
    buffer.remember(buffer.seal(key(1)).expect("waits").batch());
    assert_eq!(buffer.add(like("p", "u", true, 5), 2, now), Added::Duplicate(2));
    assert_eq!(buffer.add(like("p", "u", false, 4), 3, now), Added::Stale(3));
    assert_eq!(buffer.add(like("p", "u", false, 6), 4, now), Added::Buffered);
}

#[test]
fn the_window_forgets_but_never_goes_back_to_an_older_like() {
    let (buffer, now) = (buffer(500), Instant::now());
    let durable = |likes| buffer.remember(&Batch::new(key(1), likes));
    durable(vec![like("p", "u", true, 5)]);
    durable(vec![like("p", "u", false, 4)]);
    assert_eq!(buffer.add(like("p", "u", true, 5), 0, now), Added::Duplicate(0));
    durable((0..20).map(|n| like("p", &format!("w{n:02}"), true, 1)).collect());
    assert_eq!(buffer.add(like("p", "u", true, 5), 0, now), Added::Buffered, "forgotten, so the store decides");
}

#[test]
fn a_split_batch_keeps_every_receipt_with_its_like_under_new_keys() {
    let (buffer, now) = (buffer(500), Instant::now());
    for n in 0..5 {
        buffer.add(like("p", &format!("u{n}"), true, 1), n, now);
    }
    let [some, rest] = buffer.seal(key(1)).expect("waits").split(&[1, 3], [key(2), key(3)]);
    let users = |s: &Sealed<u32>| s.batch().likes().iter().map(|l| l.user().to_owned()).collect::<Vec<_>>();
    assert_eq!((users(&some), some.batch().key()), (vec!["u1".to_owned(), "u3".to_owned()], key(2)));
    assert_eq!(users(&rest), ["u0", "u2", "u4"]);
    assert_eq!(rest.into_receipts().into_iter().filter_map(|r| r.own).collect::<Vec<_>>(), [0, 2, 4]);
}

#[test]
fn adders_and_a_sealer_at_once_lose_and_double_nothing() {
    let buffer = buffer(50);
    let per_thread = 5_000_u32;
    let mut sealed = Vec::new();
    std::thread::scope(|scope| {
        let adders: Vec<_> = (0..2)
            .map(|thread| {
                let buffer = &buffer;
                scope.spawn(move || {
                    for n in 0..per_thread {
                        let user = format!("u{}", n % 97);
                        buffer.add(like("p", &user, true, i64::from(n)), thread * per_thread + n, Instant::now());
                    }
                })
            })
            .collect();
        while !adders.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            sealed.extend(buffer.seal(key(1)));
        }
    });
    sealed.extend(std::iter::from_fn(|| buffer.seal(key(1))));
    let mut receipts: Vec<u32> = sealed.into_iter().flat_map(Sealed::into_receipts).flatten().collect();
    receipts.sort_unstable();
    assert_eq!(receipts, (0..2 * per_thread).collect::<Vec<_>>());
}

proptest! {
    #[test]
    fn every_seal_is_sorted_and_holds_each_members_newest_like(
        likes in prop::collection::vec(("[ab]{1,2}", "[a-c]{0,3}x{14,18}[ab]?", any::<bool>(), 0..5_i64), 1..60),
        max_writes in 3..20_usize,
    ) {
        let buffer: Aggregator<()> = Aggregator::new(Config { max_writes, recent_likes: 0, ..Config::default() });
        let mut newest: BTreeMap<(String, String), Like> = BTreeMap::new();
        for (post, user, liked, order) in likes {
            let like = like(&post, &user, liked, order);
            buffer.add(like.clone(), (), Instant::now());
            let entry = newest.entry((post, user)).or_insert_with(|| like.clone());
            if like.membership().cmp_newness(&entry.membership()).is_gt() {
                *entry = like;
            }
        }
        let mut sealed = 0;
        while let Some(batch) = buffer.seal(key(1)) {
            let batch = batch.batch();
            prop_assert!(batch.likes().len() + batch.by_post().count() < max_writes);
            for like in batch.likes() {
                prop_assert_eq!(&newest[&(like.post().to_owned(), like.user().to_owned())], like);
                sealed += 1;
            }
        }
        prop_assert_eq!(sealed, newest.len());
    }
}

/// A buffer from which a like of a member that makes trouble was sealed, which is under way aside.
fn with_a_bully(now: Instant) -> (Aggregator<u32>, Vec<Like>) {
    let buffer = buffer(500);
    buffer.add(like("p", "bully", true, 1), 0, now);
    let sealed = buffer.seal(key(1)).expect("it waits");
    buffer.mark_contended(sealed.batch(), now);
    buffer.begin_contended(sealed.batch().likes());
    (buffer, sealed.batch().likes().to_vec())
}

#[test]
fn likes_of_a_member_that_makes_trouble_wait_aside_and_fold_while_one_is_under_way() {
    let now = Instant::now();
    let (buffer, under_way) = with_a_bully(now);
    assert_eq!(buffer.add(like("p", "bully", false, 2), 1, now), Added::Buffered);
    buffer.add(like("p", "other", true, 1), 2, now);
    let sealed = buffer.seal(key(2)).expect("another like waits");
    assert_eq!(sealed.batch().likes(), [like("p", "other", true, 1)]);
    assert_eq!(buffer.add(like("p", "bully", true, 3), 3, now), Added::Folded);
    assert!(buffer.contended_waiting() && buffer.seal_contended(key(3)).is_none(), "one of its likes is under way");
    buffer.end_contended(&under_way);
    let sealed = buffer.seal_contended(key(4)).expect("the rest");
    assert_eq!((sealed.batch().key(), sealed.batch().likes()), (key(4), &[like("p", "bully", true, 3)][..]));
    buffer.add(like("p", "bully", true, 4), 4, now);
    assert!(buffer.seal(key(5)).is_none() && buffer.seal_contended(key(6)).is_none(), "this one is under way now");
    buffer.end_contended(sealed.batch().likes());
    assert_eq!(sealed.into_receipts().into_iter().flatten().collect::<Vec<_>>(), [3, 1]);
    assert!(buffer.seal_contended(key(7)).is_some() && !buffer.contended_waiting() && buffer.is_empty());
}

#[test]
fn a_member_that_makes_no_trouble_any_more_is_in_everyones_company_again() {
    let (now, minute) = (Instant::now(), Duration::from_secs(60));
    let (buffer, under_way) = with_a_bully(now);
    buffer.end_contended(&under_way);
    let is_contended = |at: Instant| {
        buffer.forget_contended(at);
        buffer.add(like("p", "bully", true, 1), 0, at);
        let contended = buffer.seal(key(2)).is_none();
        while let Some(sealed) = buffer.seal_contended(key(3)) {
            buffer.end_contended(sealed.batch().likes());
        }
        contended
    };
    assert!(is_contended(now + minute / 2));
    buffer.mark_contended(&Batch::new(key(4), vec![like("p", "bully", true, 1)]), now + minute / 2);
    assert!(is_contended(now + minute));
    assert!(!is_contended(now + minute * 2));
}

#[test]
fn a_batch_is_divided_into_parts_of_about_the_same_size_with_keys_of_their_own() {
    for (likes, parts, sizes) in
        [(500, 8, vec![63, 63, 63, 63, 62, 62, 62, 62]), (3, 8, vec![1, 1, 1]), (1, 8, vec![1])]
    {
        let (now, buffer) = (Instant::now(), buffer(1_000));
        (0..likes).for_each(|n| _ = buffer.add(like("p", &format!("{n:03}"), true, 1), n, now));
        let mut number = 1;
        let divided = buffer.seal(key(1)).expect("they wait").divide(parts, || {
            number += 1;
            key(number)
        });
        assert_eq!(divided.iter().map(Sealed::likes).collect::<Vec<_>>(), sizes);
        let keys: Vec<_> = divided.iter().map(|part| part.batch().key()).collect();
        assert_eq!(keys, (2..2 + sizes.len() as u128).map(key).collect::<Vec<_>>());
        let receipts = divided.into_iter().flat_map(Sealed::into_receipts).flatten();
        assert_eq!(receipts.collect::<Vec<_>>(), (0..likes).collect::<Vec<_>>());
    }
}

#[test]
fn the_window_is_bounded_by_the_bytes_of_its_ids() {
    let remembered = |id_bytes: usize| {
        let config = Config { recent_likes: 100_000, recent_bytes: 1 << 20, max_writes: 5_000, ..Config::default() };
        let (now, buffer) = (Instant::now(), Aggregator::new(config));
        let name = |n: usize| format!("{n:0>id_bytes$}");
        for n in 0..4_000 {
            buffer.add(Like::new(&name(n), &name(n), &name(n), true, 1), 0, now);
        }
        while let Some(sealed) = buffer.seal(key(1)) {
            buffer.remember(sealed.batch());
        }
        (0..4_000)
            .filter(|n| {
                matches!(buffer.add(Like::new(&name(*n), &name(*n), &name(*n), true, 1), 0, now), Added::Duplicate(_))
            })
            .count()
    };
    let (longest, short) = (remembered(1_500), remembered(8));
    assert!((50..=230).contains(&longest), "{longest} of 4,660 bytes each in a mebibyte");
    assert!((2_000..=4_000).contains(&short), "{short} of 184 bytes each");
}
