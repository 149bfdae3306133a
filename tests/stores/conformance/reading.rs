//! Counts, listings and the quarantine.

use super::fixture::{Fixture, add, remove};
use bytes::Bytes;
use hotcount::like::event::{OrderPolicy, decode};
use hotcount::store::{Counts, Depth, Listing, PageSize, Quarantined, Tally};
use std::time::{Duration, UNIX_EPOCH};

pub(crate) async fn an_unknown_post_counts_zero(f: &Fixture) {
    let zero = Tally { count: 0, shards: 0, members: Some(0) };
    assert_eq!(f.tally(&f.post("nobody")).await, zero);
    let shallow = f.store.tally(&f.post("nobody"), Depth::Shards).await.expect("a tally");
    assert_eq!(shallow, Tally { members: None, ..zero });
    let stored = f.store.membership(&f.post("nobody"), "a").await.expect("read");
    assert_eq!(stored, None);
}

pub(crate) async fn two_shards_sum(f: &Fixture) {
    let post = f.post("p");
    f.apply_on(0, &[add(&post, "a", "e", 1), add(&post, "b", "e", 1)]).await;
    f.apply_on(63, &[add(&post, "c", "e", 1)]).await;
    f.apply_on(63, &[add(&post, "d", "e", 1)]).await;
    assert_eq!(f.tally(&post).await, Tally { count: 4, shards: 2, members: Some(4) });
    let shallow = f.store.tally(&post, Depth::Shards).await.expect("a tally");
    assert_eq!(shallow, Tally { count: 4, shards: 2, members: None });
}

pub(crate) async fn one_shard_may_be_negative(f: &Fixture) {
    let post = f.post("p");
    f.apply_on(1, &[add(&post, "a", "e", 1), add(&post, "b", "e", 1)]).await;
    f.apply_on(2, &[remove(&post, "a", "f", 2)]).await;
    assert_eq!(f.tally(&post).await, Tally { count: 1, shards: 2, members: Some(1) });
}

pub(crate) async fn a_membership_reads_back_as_the_like_that_wrote_it(f: &Fixture) {
    let post = f.post("p");
    let like = add(&post, "a", "event-1", -1_234_567_890_123);
    f.apply(std::slice::from_ref(&like)).await;
    let stored = f.store.membership(&post, "a").await.expect("read");
    assert_eq!(stored, Some(like));
    let other = f.store.membership(&post, "b").await.expect("read");
    assert_eq!(other, None);
}

/// All pages of a listing from just before the case's own posts, and only those.
pub(crate) async fn own_posts(
    store: &(impl Counts + ?Sized),
    namespace: &str,
    listing: Listing,
    page: usize,
) -> Vec<String> {
    let mut posts: Vec<String> = Vec::new();
    let mut after = namespace.to_owned();
    loop {
        let more = store.posts(listing, Some(&after), page).await.expect("a page");
        assert!(more.len() <= page && more.is_sorted() && more.iter().all(|post| *post > after), "{more:?}");
        let own = more.iter().take_while(|post| post.starts_with(namespace)).cloned();
        posts.extend(own);
        match more.last() {
            Some(last) if more.len() == page && last.starts_with(namespace) => after.clone_from(last),
            _ => return posts,
        }
    }
}

pub(crate) async fn posts_page_in_both_listings(f: &Fixture) {
    // Not in the order that they sort in, which is that of bytes.
    let mut posts = ["b", "a", "é", "Z", "ab", "a b", "aa", "z", "10", "9"].map(|name| f.post(name));
    for post in &posts {
        f.apply(&[add(post, "u1", "e", 1), add(post, "u2", "e", 1), remove(post, "u3", "e", 1)]).await;
        f.apply_on(1, &[add(post, "u4", "e", 1)]).await;
    }
    posts.sort();
    for listing in [Listing::Shards, Listing::Members] {
        for page in [1, 3, 10, 100] {
            assert_eq!(own_posts(&*f.store, &f.post(""), listing, page).await, posts, "{listing:?} by {page}");
        }
        let after = f.store.posts(listing, Some(&posts[3]), 2).await.expect("a page");
        assert_eq!(after, posts[4..6]);
        // A post that is not there is a place all the same.
        let between = f.store.posts(listing, Some(&f.post("a a")), 1).await.expect("a page");
        assert_eq!(between, [f.post("a b")]);
        assert!(!f.store.posts(listing, None, 1).await.expect("a page").is_empty());
    }
}

/// A tally is a snapshot: a batch is in its shards and in its members, or in neither.
pub(crate) async fn no_tally_drifts_while_batches_are_applied(f: &Fixture) {
    const BATCHES: u16 = 20;
    const WRITERS: u16 = 4;
    let post = f.post("p");
    let writers = (0..WRITERS).map(|writer| {
        let post = &post;
        async move {
            for number in 0..BATCHES {
                let likes: Vec<_> = (0..20).map(|n| add(post, &format!("u{writer}-{number}-{n}"), "e", 1)).collect();
                f.apply_on(writer, &likes).await;
            }
        }
    });
    let writing = futures::future::join_all(writers);
    let mut writing = std::pin::pin!(writing);
    let mut tallies = 0;
    loop {
        tokio::select! {
            biased;
            _ = &mut writing => break,
            tally = f.store.tally(&post, Depth::ShardsAndMembers) => {
                let tally = tally.expect("a tally");
                assert_eq!(tally.drift(), Some(0), "after {tallies} tallies: {tally:?}");
                tallies += 1;
            }
        }
    }
    f.assert_count(&post, i64::from(WRITERS * BATCHES) * 20).await;
}

/// An entry with nothing but what it must have.
pub(crate) fn poison(id: &str, reason: &str) -> Quarantined {
    Quarantined {
        id: id.to_owned(),
        reason: reason.to_owned(),
        data: Bytes::from_static(b"not an event"),
        attributes: Vec::new(),
        source: "test:".to_owned(),
        message_id: None,
        published_at: None,
        received_at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        delivery_attempt: None,
    }
}

pub(crate) async fn quarantine_is_replaced_by_id(f: &Fixture) {
    f.store.quarantine(&[poison("00aa", "first"), poison("00bb", "other")]).await.expect("kept");
    f.store.quarantine(&[poison("00aa", "second")]).await.expect("kept");
    let entries = f.store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries;
    let entries: Vec<_> = entries.iter().map(|e| (e.id.as_str(), e.reason.as_str())).collect();
    assert_eq!(entries, [("00aa", "second"), ("00bb", "other")]);
}

pub(crate) async fn quarantine_pages(f: &Fixture) {
    let ids: Vec<String> = (0..25).map(|i| format!("{:032x}", i * 7 % 25)).collect();
    let entries: Vec<Quarantined> = ids.iter().map(|id| poison(id, "r")).collect();
    f.store.quarantine(&entries).await.expect("kept");
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = f.store.quarantined(after.as_deref(), PageSize::entries(10)).await.expect("a page");
        assert!(page.entries.len() <= 10);
        listed.extend(page.entries.iter().map(|e| e.id.clone()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut sorted = ids;
    sorted.sort();
    assert_eq!(listed, sorted);
}

/// Whatever the size of a page, it ends at its bytes, has one entry at least, and says where the next begins.
pub(crate) async fn quarantine_pages_end_at_their_bytes(f: &Fixture) {
    let sized = |n: usize| Quarantined { data: vec![7; n * 100_000].into(), ..poison(&format!("0{n}"), "r") };
    let entries: Vec<Quarantined> = (0..8).map(sized).collect();
    f.store.quarantine(&entries).await.expect("kept");
    for bytes in [1, 100_000, 250_000, 700_000, 1_500_000, 16 << 20] {
        for number in [1, 3, 25] {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let size = PageSize { entries: number, bytes };
                let page = f.store.quarantined(after.as_deref(), size).await.expect("a page");
                let (last, before) = page.entries.split_last().expect("no page is empty");
                assert!(page.entries.len() <= number);
                let full = before.iter().map(Quarantined::bytes).sum::<usize>();
                assert!(before.is_empty() || full < bytes, "{full} bytes before the last entry of {bytes}");
                listed.extend(page.entries.iter().map(|entry| entry.id.clone()));
                after = page.next;
                if after.is_none() {
                    break;
                }
                assert_eq!(after.as_ref(), Some(&last.id));
            }
            assert!(listed.iter().eq(entries.iter().map(|entry| &entry.id)), "{bytes}, {number}: {listed:?}");
        }
    }
}

/// Asserts that `left` is `right`, times as far as microseconds.
pub(crate) fn assert_same_poison(left: &Quarantined, right: &Quarantined) {
    let micros = |at: std::time::SystemTime| at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    assert_eq!((&left.id, &left.reason, &left.source), (&right.id, &right.reason, &right.source));
    assert_eq!(left.data, right.data);
    assert_eq!((&left.attributes, &left.message_id), (&right.attributes, &right.message_id));
    assert_eq!(left.published_at.map(micros), right.published_at.map(micros));
    assert_eq!(micros(left.received_at), micros(right.received_at));
    assert_eq!(left.delivery_attempt, right.delivery_attempt);
}

/// An entry with everything that it may have.
pub(crate) fn full_poison() -> Quarantined {
    Quarantined {
        data: Bytes::from((0..=255).collect::<Vec<u8>>()),
        attributes: [("key", "value"), ("key", "again"), ("__odd__", ""), ("", "é")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .to_vec(),
        source: "pubsub://project/subscription".to_owned(),
        message_id: Some("1234567890".to_owned()),
        published_at: Some(UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456)),
        received_at: UNIX_EPOCH + Duration::from_micros(1_700_000_001_654_321),
        delivery_attempt: Some(7),
        ..poison("00cc", "userId: empty")
    }
}

pub(crate) async fn quarantine_keeps_every_field(f: &Fixture) {
    let entries = [poison("00dd", "payload: not an event"), full_poison()];
    f.store.quarantine(&entries).await.expect("kept");
    let listed = f.store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries;
    assert_eq!(listed.len(), 2);
    assert_same_poison(&listed[0], &entries[1]);
    assert_same_poison(&listed[1], &entries[0]);
}

pub(crate) async fn quarantine_keeps_two_mebibytes(f: &Fixture) {
    let data: Vec<u8> = (0..2_usize << 20).map(|i| (i * 31 % 251) as u8).collect();
    let entry = Quarantined { data: data.into(), ..poison("00ee", "payload: too long") };
    f.store.quarantine(std::slice::from_ref(&entry)).await.expect("kept");
    let listed = f.store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries;
    assert_eq!(listed.len(), 1);
    assert_same_poison(&listed[0], &entry);
}

/// A parser quotes what it did not expect, and here that is nearly all there is.
pub(crate) async fn quarantine_keeps_large_poison_with_the_reason_of_the_decoder(f: &Fixture) {
    let filling = "x".repeat(2 << 20);
    let texts = [
        format!("\"{filling}\""),
        format!("{{\"eventId\":\"e\",\"type\":\"{filling}\"}}"),
        format!("{{\"{filling}\":1,\"eventId\":\"e\",\"eventId\":\"f\"}}"),
        filling,
    ];
    for (n, text) in texts.into_iter().enumerate() {
        let why = decode(text.as_bytes(), OrderPolicy::OccurredAt, UNIX_EPOCH).expect_err("no event");
        let entry = Quarantined { data: text.into(), ..poison(&format!("00a{n}"), &why.to_string()) };
        f.store.quarantine(std::slice::from_ref(&entry)).await.expect("kept");
        assert_same_poison(&f.store.find_quarantined(&entry.id).await.expect("read").expect("there"), &entry);
    }
}

pub(crate) async fn a_discarded_entry_is_gone_whole_and_the_others_stay(f: &Fixture) {
    let large = |id| Quarantined { data: vec![7; 2 << 20].into(), ..poison(id, "payload: too long") };
    f.store.quarantine(&[poison("00aa", "r"), large("00bb"), large("00cc")]).await.expect("kept");
    let found = f.store.find_quarantined("00bb").await.expect("read").expect("there");
    assert_same_poison(&found, &large("00bb"));
    // The same id again, shorter.
    f.store.quarantine(&[poison("00cc", "r")]).await.expect("kept");
    f.store.discard(&["00aa".to_owned(), "00bb".to_owned()]).await.expect("discarded");
    assert!(f.store.find_quarantined("00bb").await.expect("read").is_none());
    let listed = f.store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries;
    assert_eq!(listed.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["00cc"]);
    assert_same_poison(&listed[0], &poison("00cc", "r"));
    f.store.discard(&["00cc".to_owned()]).await.expect("discarded");
    assert!(f.store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries.is_empty());
    // What comes back under the id of something that was larger is whole.
    f.store.quarantine(&[poison("00bb", "again")]).await.expect("kept");
    assert_same_poison(
        &f.store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries[0],
        &poison("00bb", "again"),
    );
}

pub(crate) async fn discarding_what_is_not_there_is_no_error(f: &Fixture) {
    let odd = ["", "0", "00aa/parts/0", "é"].map(str::to_owned);
    f.store.discard(&odd).await.expect("nothing to do");
    f.store.discard(&[]).await.expect("nothing to do");
    for id in &odd {
        assert!(f.store.find_quarantined(id).await.expect("read").is_none(), "{id}");
    }
    f.store.quarantine(&[poison("00aa", "r")]).await.expect("kept");
    f.store.discard(&["00aa".to_owned(), "00bb".to_owned(), "00aa".to_owned()]).await.expect("discarded");
    assert!(f.store.find_quarantined("00aa").await.expect("read").is_none());
}
