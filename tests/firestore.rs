//! The Firestore store on Google's emulator: one commit, every failure of it, and what it costs.
#![cfg(feature = "firestore")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "firestore/faults.rs"]
mod faults;
mod support;

use faults::{Faults, When};
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Got;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{BatchGetDocumentsRequest, CommitRequest, Document, Write};
use gcloud_sdk::tonic::Code;
use hotcount::batch::{Batch, BatchKey};
use hotcount::event::Like;
use hotcount::store::firestore::rpc::{Grpc, Rpc};
use hotcount::store::firestore::{Address, Firestore, member_id};
use hotcount::store::{
    Applied, Attempt, ConnectError, Counts, Depth, ErrorClass, Listing, Options, Quarantined, Store, StoreError,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use support::emulators::{firestore, unique};

/// A database of the test's own on the emulator.
struct Place {
    url: String,
}

impl Place {
    fn new(name: &str) -> Option<Self> {
        let host = firestore()?;
        Some(Self { url: format!("firestore://{}?emulator={host}", unique(name)) })
    }

    fn address(&self) -> Address {
        Address::parse(&self.url, "like-counter", None).expect("the URL is right")
    }

    async fn store(&self) -> Firestore {
        Firestore::connect(&self.url, &Options::default()).await.expect("the emulator is there")
    }

    async fn grpc(&self) -> Grpc {
        Grpc::connect(&self.address()).await.expect("the emulator is there")
    }

    /// A store whose calls pass through `Faults`.
    async fn faulty(&self) -> (Firestore, Arc<Faults>) {
        let faults = Arc::new(Faults::over(Arc::new(self.grpc().await)));
        (Firestore::over(faults.clone(), self.address()), faults)
    }
}

fn key() -> BatchKey {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    BatchKey::from_random(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | u128::from(std::process::id()))
}

fn batch(likes: Vec<Like>) -> Batch {
    Batch::new(key(), likes)
}

/// Likes of users `from..to` of a post.
fn likes(post: &str, users: std::ops::Range<u32>) -> Vec<Like> {
    users.map(|user| Like::new(post, &format!("user-{user}"), &format!("event-{post}-{user}"), true, 1)).collect()
}

fn resuming() -> Attempt {
    Attempt { number: 2, resuming: true, shard: 3 }
}

async fn apply(store: &Firestore, likes: Vec<Like>) -> Applied {
    store.apply(&batch(likes), Attempt::first(1)).await.expect("it is applied")
}

/// Goes on as the flush does: again under the same key, reading the key first after an unknown outcome.
async fn settle(store: &Firestore, batch: &Batch) -> Result<Applied, StoreError> {
    let mut attempt = Attempt::first(1);
    loop {
        match store.apply(batch, attempt).await {
            Err(error) if attempt.number < 5 => match error.class {
                ErrorClass::Unknown => attempt.resuming = true,
                ErrorClass::DidNotCommit => attempt.shard += 1,
                ErrorClass::Unauthenticated => {}
                _ => return Err(error),
            },
            other => return other,
        }
        attempt.number += 1;
    }
}

/// (count, shards, members) of a post.
async fn tally(store: &Firestore, post: &str) -> (i64, u64, u64) {
    let tally = store.tally(post, Depth::ShardsAndMembers).await.expect("it counts");
    (tally.count, tally.shards, tally.members.expect("asked for"))
}

const ALL_CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

#[tokio::test]
async fn every_code_before_or_after_a_commit_leaves_the_count_exact() {
    let Some(place) = Place::new("codes") else { return };
    let (store, faults) = place.faulty().await;
    for code in ALL_CODES {
        for when in [When::Before, When::After] {
            let post = format!("{code:?}-{when:?}");
            let first = batch(likes(&post, 0..5));
            faults.fail_next_commit(code, when);
            let outcome = settle(&store, &first).await;
            let refusal = matches!(code, Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition);
            match code {
                Code::InvalidArgument | Code::OutOfRange => {
                    assert_eq!(outcome.expect_err(&post).class, ErrorClass::BatchCannotWork, "{post}");
                }
                Code::PermissionDenied | Code::Unimplemented => {
                    assert_eq!(outcome.expect_err(&post).class, ErrorClass::CannotWork, "{post}");
                }
                _ if refusal && when == When::Before => {
                    assert_eq!(outcome.expect_err(&post).class, ErrorClass::CannotWork, "{post}");
                }
                Code::Aborted | Code::ResourceExhausted | Code::Unauthenticated => {
                    // The key is not read first after these, so when one of them lied the batch meets its own likes.
                    let applied = outcome.expect(&post);
                    assert_eq!(applied.applied + applied.duplicates, 5, "{post}");
                    assert!(when == When::After || applied.applied == 5, "{post}");
                }
                _ => {
                    let applied = outcome.expect(&post);
                    assert_eq!((applied.applied, applied.duplicates, applied.stale), (5, 0, 0), "{post}");
                    assert_eq!(applied.replayed, when == When::After, "{post}");
                }
            }
            // Whatever happened, the likes come again in another batch, with new ones.
            let again = settle(&store, &batch(likes(&post, 0..7))).await.expect(&post);
            assert_eq!(again.applied + again.duplicates, 7, "{post}");
            assert!(!again.replayed, "{post}");
            let (count, _, members) = tally(&store, &post).await;
            assert_eq!((count, members), (7, 7), "{post}");
        }
    }
}

#[tokio::test]
async fn every_code_of_a_read_while_resuming_leaves_the_count_exact() {
    let Some(place) = Place::new("reads") else { return };
    let (store, faults) = place.faulty().await;
    for code in ALL_CODES {
        let post = format!("{code:?}");
        let one = batch(likes(&post, 0..3));
        faults.fail_next_commit(Code::Unavailable, When::After);
        assert_eq!(store.apply(&one, Attempt::first(1)).await.expect_err("lost").class, ErrorClass::Unknown);
        faults.fail_next_read(code);
        assert!(store.apply(&one, resuming()).await.is_err(), "{post}");
        let applied = store.apply(&one, resuming()).await.expect(&post);
        assert_eq!(applied, Applied { applied: 3, duplicates: 0, stale: 0, replayed: true }, "{post}");
        assert_eq!(tally(&store, &post).await, (3, 1, 3), "{post}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_recognised_by_its_key_at_the_cost_of_one_read() {
    let Some(place) = Place::new("lost") else { return };
    let (store, faults) = place.faulty().await;
    let one = batch(likes("post", 0..50));
    faults.fail_next_commit(Code::Unavailable, When::After);
    let error = store.apply(&one, Attempt::first(1)).await.expect_err("the answer is lost");
    assert_eq!(error.class, ErrorClass::Unknown);
    let before = store.billed();
    let applied = store.apply(&one, resuming()).await.expect("it is recognised");
    assert_eq!(applied, Applied { applied: 50, duplicates: 0, stale: 0, replayed: true });
    let after = store.billed();
    assert_eq!((after.reads - before.reads, after.writes - before.writes), (1, 0));
    assert_eq!(tally(&store, "post").await, (50, 1, 50));
}

#[tokio::test]
async fn a_blind_duplicate_costs_two_reads_and_is_counted_once() {
    let Some(place) = Place::new("blind") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..1)).await;
    let before = store.billed();
    let applied = apply(&store, likes("post", 0..100)).await;
    assert_eq!(applied, Applied { applied: 99, duplicates: 1, stale: 0, replayed: false });
    let after = store.billed();
    // The key and the one document that the refusal named; then the key, 99 members and the shard are written.
    assert_eq!(after.reads - before.reads, 2);
    assert_eq!(after.writes - before.writes, 101);
    assert_eq!(after.refused_commits - before.refused_commits, 1);
    assert_eq!(tally(&store, "post").await, (100, 1, 100));
}

#[tokio::test]
async fn many_blind_duplicates_are_found_by_reading_all_members_and_the_next_batch_reads_first() {
    let Some(place) = Place::new("many") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..100)).await;
    let again = apply(&store, likes("post", 0..101)).await;
    assert_eq!(again, Applied { applied: 1, duplicates: 100, stale: 0, replayed: false });
    let refused = store.billed().refused_commits;
    assert!(refused <= 5, "{refused}");
    let before = store.billed();
    let third = apply(&store, likes("post", 0..101)).await;
    assert_eq!(third, Applied { applied: 0, duplicates: 101, stale: 0, replayed: false });
    let after = store.billed();
    assert_eq!((after.reads - before.reads, after.writes - before.writes), (101, 0));
    assert_eq!(after.refused_commits, refused);
    // Few were stored in this batch's place, so the one after it is blind again.
    apply(&store, likes("other", 0..1)).await;
    let before = store.billed().reads;
    apply(&store, likes("third", 0..10)).await;
    assert_eq!(store.billed().reads, before);
    assert_eq!(tally(&store, "post").await, (101, 1, 101));
}

#[tokio::test]
async fn one_duplicate_in_a_thousand_costs_less_than_a_hundredth_of_a_read_a_like() {
    let Some(place) = Place::new("cost") else { return };
    let store = place.store().await;
    let before = store.billed();
    let (batches, size) = (20_u32, 495_u32);
    let mut received = 0;
    let mut duplicates = 0;
    for n in 0..batches {
        let mut these = likes("post", n * size..(n + 1) * size);
        // A like of the batch before comes again in every second batch: about one in a thousand.
        if n % 2 == 1 {
            these.extend(likes("post", (n - 1) * size + n..(n - 1) * size + n + 1));
        }
        received += these.len() as u64;
        let applied = apply(&store, these).await;
        duplicates += applied.duplicates;
    }
    assert_eq!(duplicates, 10);
    let reads = store.billed().reads - before.reads;
    assert!(reads * 100 <= received, "{reads} reads for {received} likes");
    let all = i64::from(batches * size);
    assert_eq!(store.tally("post", Depth::ShardsAndMembers).await.expect("it counts").count, all);
    assert_eq!(tally(&store, "post").await.2, u64::from(batches * size));
}

#[tokio::test]
async fn removals_and_late_events_end_in_the_newest_state() {
    let Some(place) = Place::new("newest") else { return };
    let store = place.store().await;
    let like = |event: &str, liked, order| Like::new("post", "user", event, liked, order);
    apply(&store, vec![like("a", true, 1)]).await;
    assert_eq!(tally(&store, "post").await, (1, 1, 1));
    apply(&store, vec![like("c", false, 3)]).await;
    assert_eq!(tally(&store, "post").await, (0, 1, 0));
    let late = apply(&store, vec![like("b", true, 2)]).await;
    assert_eq!(late, Applied { applied: 0, duplicates: 0, stale: 1, replayed: false });
    assert_eq!(tally(&store, "post").await, (0, 1, 0));
    let stored = store.membership("post", "user").await.expect("it reads").expect("a tombstone is kept");
    assert_eq!(stored, like("c", false, 3));
    assert_eq!(store.membership("post", "nobody").await.expect("it reads"), None);
}

#[tokio::test]
async fn two_adapters_that_race_on_one_member_count_it_once() {
    let Some(place) = Place::new("race") else { return };
    let (one, one_faults) = place.faulty().await;
    let (two, two_faults) = place.faulty().await;
    for round in 0..10 {
        let post = format!("post-{round}");
        let barrier = Arc::new(tokio::sync::Barrier::new(2));
        one_faults.meet_before_next_commit(barrier.clone());
        two_faults.meet_before_next_commit(barrier);
        let (first, second) = (batch(likes(&post, 0..3)), batch(likes(&post, 2..5)));
        let (a, b) = tokio::join!(settle(&one, &first), settle(&two, &second));
        let (a, b) = (a.expect("it settles"), b.expect("it settles"));
        assert_eq!((a.applied + b.applied, a.duplicates + b.duplicates), (5, 1), "{post}");
        let (count, _, members) = tally(&one, &post).await;
        assert_eq!((count, members), (5, 5), "{post}");
    }
}

#[tokio::test]
async fn two_adapters_that_commit_the_same_batch_at_once_report_one_outcome() {
    let Some(place) = Place::new("twins") else { return };
    let (one, one_faults) = place.faulty().await;
    let (two, two_faults) = place.faulty().await;
    let same = batch(likes("post", 0..20));
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    one_faults.meet_before_next_commit(barrier.clone());
    two_faults.meet_before_next_commit(barrier);
    let (a, b) = tokio::join!(settle(&one, &same), settle(&two, &same));
    let (a, b) = (a.expect("it settles"), b.expect("it settles"));
    assert_eq!((a.applied, b.applied), (20, 20));
    assert!(a.replayed != b.replayed, "{a:?} {b:?}");
    assert_eq!(tally(&one, "post").await, (20, 1, 20));
}

#[tokio::test]
async fn a_membership_that_something_else_wrote_is_trouble_for_its_own_like_alone() {
    let Some(place) = Place::new("spoiled") else { return };
    let store = place.store().await;
    let name = place.address().member(&member_id("post", "user-1"));
    let document = Document { name, ..Default::default() };
    let write = Write { operation: Some(Operation::Update(document)), ..Default::default() };
    let request =
        CommitRequest { database: place.address().database_path(), writes: vec![write], ..Default::default() };
    place.grpc().await.commit(request).await.expect("it is written");
    let error = store.apply(&batch(likes("post", 0..3)), Attempt::first(1)).await.expect_err("it is spoiled");
    assert_eq!(error.class, ErrorClass::BatchCannotWork);
    assert!(error.to_string().contains(&member_id("post", "user-1")), "{error}");
    let mut healthy = likes("post", 0..1);
    healthy.extend(likes("post", 2..3));
    assert_eq!(apply(&store, healthy).await.applied, 2);
    assert_eq!(tally(&store, "post").await, (2, 1, 2));
}

#[tokio::test]
async fn a_member_that_others_keep_writing_is_named_after_the_second_refusal() {
    let Some(place) = Place::new("contended") else { return };
    let (store, faults) = place.faulty().await;
    let other = Arc::new(place.store().await);
    let toggle = |order: i64| Like::new("post", "user-1", &format!("t{order}"), order % 2 == 1, order);
    apply(&store, vec![toggle(1)]).await;
    // Every commit of this batch finds that somebody has just toggled user-1 again.
    let order = Arc::new(AtomicU64::new(1));
    let counted = order.clone();
    faults.before_every_commit(move || {
        let order = i64::try_from(counted.fetch_add(1, Ordering::Relaxed) + 1).expect("small");
        let (other, like) = (other.clone(), toggle(order));
        Box::pin(async move {
            other.apply(&batch(vec![like]), Attempt::first(2)).await.expect("it is applied");
        })
    });
    let mut these = likes("post", 5..8);
    these.push(toggle(1_001));
    let contended = batch(these);
    let place_of_user_1 = contended.likes().iter().position(|like| like.user() == "user-1").expect("it is there");
    let error = store.apply(&contended, resuming()).await.expect_err("it is contended");
    assert_eq!(error.class, ErrorClass::Contended(vec![place_of_user_1]));
    faults.leave_commits_alone();
    let mut rest = contended.into_likes();
    let alone = rest.remove(place_of_user_1);
    assert_eq!(apply(&store, rest).await.applied, 3);
    assert_eq!(apply(&store, vec![alone]).await.applied, 1);
    let (count, _, members) = tally(&store, "post").await;
    assert_eq!((count, members), (4, 4));
}

#[tokio::test]
async fn the_documents_have_exactly_the_fields_of_the_layout() {
    let Some(place) = Place::new("layout") else { return };
    let store = place.store().await;
    let (address, grpc) = (place.address(), place.grpc().await);
    let one = Batch::new(
        key(),
        vec![Like::new("post-1", "user-7", "e1", true, 5), Like::new("post-1", "user-8", "e2", false, 6)],
    );
    store.apply(&one, Attempt::first(9)).await.expect("it is applied");
    store.quarantine(&[poison("0123", b"bad".to_vec())]).await.expect("it is kept");
    let (liked, removed) = (member_id("post-1", "user-7"), member_id("post-1", "user-8"));
    assert_eq!(liked, "7d2dc7378b92dd56e073e15d853c1135");
    let root = address.root();
    let expected: [(String, &[&str]); 5] = [
        (format!("hotcountLikes/{liked}"), &["cell", "eventId", "liked", "order", "post", "updatedAt", "user"]),
        (format!("hotcountLikes/{removed}"), &["eventId", "liked", "order", "post", "updatedAt", "user"]),
        ("posts/post-1/hotcountShards/9".to_owned(), &["count"]),
        (
            format!("hotcountBatches/like-counter:{}", one.key()),
            &["applied", "duplicates", "expireAt", "posts", "processedAt", "stale"],
        ),
        (
            "hotcountQuarantine/like-counter:0123".to_owned(),
            &[
                "attributes",
                "data",
                "deliveryAttempt",
                "messageId",
                "publishTime",
                "reason",
                "receivedAt",
                "size",
                "source",
            ],
        ),
    ];
    for (path, fields) in expected {
        let request = BatchGetDocumentsRequest {
            database: address.database_path(),
            documents: vec![format!("{root}/{path}")],
            ..Default::default()
        };
        let answers = grpc.batch_get(request).await.expect("it answers");
        let Some(Got::Found(document)) = answers.into_iter().find_map(|answer| answer.result) else {
            panic!("{path} is missing");
        };
        let names: BTreeSet<&str> = document.fields.keys().map(String::as_str).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), fields, "{path}");
        if path.ends_with(&liked) {
            let cell = document.fields["cell"].value_type.clone().expect("it has a value");
            assert_eq!(format!("{cell:?}"), r#"StringValue("7:post-1")"#);
        }
    }
}

#[tokio::test]
async fn shards_and_members_are_compared_at_one_time_while_others_write() {
    let Some(place) = Place::new("time") else { return };
    let (store, writer) = (place.store().await, place.store().await);
    let writing = async {
        for n in 0..40 {
            let applied = writer
                .apply(
                    &batch(likes("post", n * 20..(n + 1) * 20)),
                    Attempt::first(u16::try_from(n % 4).expect("small")),
                )
                .await;
            assert_eq!(applied.expect("it is applied").applied, 20);
        }
    };
    tokio::pin!(writing);
    let mut tallies = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut writing => break,
            tally = store.tally("post", Depth::ShardsAndMembers) => {
                let tally = tally.expect("it counts");
                assert_eq!(tally.drift(), Some(0), "{tally:?}");
                assert_eq!(tally.count % 20, 0, "{tally:?}");
                tallies += 1;
            }
        }
    }
    assert!(tallies > 0);
    assert_eq!(tally(&store, "post").await, (800, 4, 800));
    assert_eq!(tally(&store, "unknown").await, (0, 0, 0));
}

#[tokio::test]
async fn posts_are_listed_both_ways_in_the_order_of_their_bytes() {
    let Some(place) = Place::new("posts") else { return };
    let store = place.store().await;
    let mut posts = ["a", "ab", "a\u{10ffff}", "b", "10", "9", "post 1", "é", "\u{ffff}", "\u{10000}", "~", "a;", "a:"];
    for (shard, users) in [(0, 0..3), (1, 3..5), (31, 5..6)] {
        let these = posts.iter().flat_map(|post| likes(post, users.clone())).collect();
        store.apply(&batch(these), Attempt::first(shard)).await.expect("it is applied");
    }
    posts.sort_unstable();
    for listing in [Listing::Shards, Listing::Members] {
        assert_eq!(store.posts(listing, None, 100).await.expect("it lists"), posts, "{listing:?}");
        let mut paged: Vec<String> = Vec::new();
        loop {
            let page = store.posts(listing, paged.last().map(String::as_str), 4).await.expect("it lists");
            let full = page.len() == 4;
            paged.extend(page);
            if !full {
                break;
            }
        }
        assert_eq!(paged, posts, "{listing:?}");
        assert!(store.posts(listing, None, 0).await.expect("it lists").is_empty());
    }
    for post in posts {
        assert_eq!(tally(&store, post).await, (6, 3, 6), "{post}");
    }
}

fn poison(id: &str, data: Vec<u8>) -> Quarantined {
    Quarantined {
        id: id.to_owned(),
        reason: "postId: empty".to_owned(),
        data: data.into(),
        attributes: vec![("__x__".to_owned(), "1".to_owned()), (String::new(), "2".to_owned())],
        source: "pubsub://demo/likes".to_owned(),
        message_id: Some("77".to_owned()),
        published_at: None,
        received_at: UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001),
        delivery_attempt: Some(3),
    }
}

#[tokio::test]
async fn poison_larger_than_a_document_is_kept_whole_and_belongs_to_its_consumer() {
    let Some(place) = Place::new("poison") else { return };
    let store = place.store().await;
    let other = Firestore::connect(&place.url, &Options { consumer: "like".to_owned() }).await.expect("it opens");
    let large: Vec<u8> = (0..9_000_000_u32).map(|n| u8::try_from(n % 251).expect("small")).collect();
    let edge = vec![7; 900 << 10];
    let entries = [poison("a", b"small".to_vec()), poison("b", large), poison("c", Vec::new()), poison("d", edge)];
    store.quarantine(&entries).await.expect("it is kept");
    store.quarantine(&entries[..1]).await.expect("the same again is one entry");
    other.quarantine(&[poison("b", b"not ours".to_vec())]).await.expect("it is kept");
    let listed = store.quarantined(None, 10).await.expect("it lists");
    assert_eq!(listed.len(), entries.len());
    for (listed, kept) in listed.iter().zip(&entries) {
        assert_eq!(listed.id, kept.id);
        assert!(listed.data == kept.data, "{} has other data", kept.id);
        assert_eq!(listed.attributes, kept.attributes);
        assert_eq!((&listed.reason, &listed.source), (&kept.reason, &kept.source));
        assert_eq!((&listed.message_id, listed.published_at), (&kept.message_id, kept.published_at));
        assert_eq!((listed.received_at, listed.delivery_attempt), (kept.received_at, kept.delivery_attempt));
    }
    let page = store.quarantined(Some("a"), 1).await.expect("it lists");
    assert_eq!(page.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(other.quarantined(None, 10).await.expect("it lists").len(), 1);
}

#[tokio::test]
async fn a_host_that_is_not_there_is_said_so_in_one_sentence() {
    // The port was free a moment ago, and nobody answers on it.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let url = format!("firestore://demo?emulator=127.0.0.1:{port}");
    let Err(error) = Firestore::connect(&url, &Options::default()).await else { panic!("nobody is there") };
    assert!(matches!(error, ConnectError::Unavailable { .. }));
    assert!(error.to_string().contains("is not reached"), "{error}");
}
