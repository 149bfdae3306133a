//! What is written where, and how it is read back.

use super::kept::poison;
use super::outside::int;
use super::*;
use firestore::{FirestoreDb, FirestoreDbOptions};
use hotcount::store::{LAYOUT, PageSize};

#[tokio::test]
async fn the_documents_have_exactly_the_fields_of_the_layout() {
    let Some(place) = Place::new("layout") else { return };
    let store = place.store().await;
    let address = place.address();
    let one = Batch::new(
        key(),
        vec![Like::new("post-1", "user-7", "e1", true, 5), Like::new("post-1", "user-8", "e2", false, 6)],
    );
    store.apply(&one, Attempt::first(9)).await.expect("it is applied");
    store.quarantine(&[poison("0123", vec![7; 1_000_000])]).await.expect("it is kept");
    let (liked, removed) = (member_id("post-1", "user-7"), member_id("post-1", "user-8"));
    assert_eq!(liked, "7d2dc7378b92dd56e073e15d853c1135");
    let root = address.root();
    let expected: [(String, &[&str]); 6] = [
        (format!("hotcountLikes/{liked}"), &["cell", "eventId", "liked", "order", "post", "updatedAt", "user", "v"]),
        (format!("hotcountLikes/{removed}"), &["eventId", "liked", "order", "post", "updatedAt", "user", "v"]),
        ("posts/post-1/hotcountShards/9".to_owned(), &["count", "v"]),
        (
            format!("hotcountBatches/like-counter:{}", one.key()),
            &["applied", "duplicates", "expireAt", "posts", "processedAt", "stale", "v"],
        ),
        ("hotcountQuarantine/like-counter:0123/parts/0".to_owned(), &["data", "v"]),
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
                "v",
            ],
        ),
    ];
    for (path, fields) in expected {
        let document = place.find(&format!("{root}/{path}")).await.unwrap_or_else(|| panic!("{path} is missing"));
        assert_eq!(document.fields["v"], int(LAYOUT), "{path}");
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

#[tokio::test]
async fn poison_larger_than_a_document_is_kept_whole_and_belongs_to_its_consumer() {
    let Some(place) = Place::new("poison") else { return };
    let store = place.store().await;
    let other = Firestore::connect(&place.url, &Options { consumer: "like".to_owned(), ..Options::default() })
        .await
        .expect("it opens");
    let large: Vec<u8> = (0..9_000_000_u32).map(|n| u8::try_from(n % 251).expect("small")).collect();
    let edge = vec![7; 900 << 10];
    let entries = [poison("a", b"small".to_vec()), poison("b", large), poison("c", Vec::new()), poison("d", edge)];
    store.quarantine(&entries).await.expect("it is kept");
    store.quarantine(&entries[..1]).await.expect("the same again is one entry");
    other.quarantine(&[poison("b", b"not ours".to_vec())]).await.expect("it is kept");
    let listed = store.quarantined(None, PageSize::entries(10)).await.expect("it lists").entries;
    assert_eq!(listed.len(), entries.len());
    for (listed, kept) in listed.iter().zip(&entries) {
        assert_eq!(listed.id, kept.id);
        assert!(listed.data == kept.data, "{} has other data", kept.id);
        assert_eq!(listed.attributes, kept.attributes);
        assert_eq!((&listed.reason, &listed.source), (&kept.reason, &kept.source));
        assert_eq!((&listed.message_id, listed.published_at), (&kept.message_id, kept.published_at));
        assert_eq!((listed.received_at, listed.delivery_attempt), (kept.received_at, kept.delivery_attempt));
    }
    let page = store.quarantined(Some("a"), PageSize::entries(1)).await.expect("it lists").entries;
    assert_eq!(page.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(other.quarantined(None, PageSize::entries(10)).await.expect("it lists").entries.len(), 1);
}

#[tokio::test]
async fn discarding_leaves_no_part_behind_and_touches_no_other_consumer() {
    let Some(place) = Place::new("discard") else { return };
    let store = place.store().await;
    let other = Firestore::connect(&place.url, &Options { consumer: "like".to_owned(), ..Options::default() })
        .await
        .expect("it opens");
    other.quarantine(&[poison("b", b"not ours".to_vec())]).await.expect("it is kept");
    // Kept with three parts, then with none: the parts of the first time are still there.
    store.quarantine(&[poison("b", vec![7; 3_000_000])]).await.expect("it is kept");
    store.quarantine(&[poison("b", b"short".to_vec())]).await.expect("it is kept");
    let part = |n: u32| format!("{}/parts/{n}", place.address().poison("b"));
    let request = BatchGetDocumentsRequest {
        database: place.address().database_path(),
        documents: vec![part(0), part(1), part(2), place.address().poison("b")],
        ..Default::default()
    };
    let grpc = place.grpc().await;
    for (found, discarded) in [(4, false), (0, true)] {
        if discarded {
            store.discard(&["b".to_owned()]).await.expect("it is deleted");
        }
        let answers = grpc.batch_get(request.clone()).await.expect("it answers");
        let there = answers.iter().filter(|answer| matches!(answer.result, Some(Got::Found(_)))).count();
        assert_eq!(there, found);
    }
    assert_eq!(other.quarantined(None, PageSize::entries(10)).await.expect("it lists").entries.len(), 1);
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

#[tokio::test]
async fn an_application_reads_the_count_with_the_firestore_crate_alone() {
    let Some(place) = Place::new("typed") else { return };
    let store = place.store().await;
    for shard in [3, 9] {
        let one = Batch::new(key(), likes("post-1", u32::from(shard) * 100..u32::from(shard) * 100 + 7));
        store.apply(&one, Attempt::first(shard)).await.expect("it is applied");
    }
    let address = place.address();
    let options = FirestoreDbOptions::new(address.project().to_owned())
        .with_firebase_api_url(format!("http://{}", address.emulator().expect("it runs on an emulator")));
    let anonymous = gcloud_sdk::google_cloud_auth::credentials::anonymous::Builder::new().build();
    let db = FirestoreDb::with_options_auth(options, anonymous).await.expect("the emulator is there");
    assert_eq!(application::count(&db, "post-1").await.expect("it reads"), 14);
    assert_eq!(application::count(&db, "nobody-liked-this").await.expect("it reads"), 0);
}
