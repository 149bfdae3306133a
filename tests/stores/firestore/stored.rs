//! Documents that cannot be read: each is trouble for its own likes, its own post or its own entry, and for nobody else.

use super::outside::{int, text};
use super::*;
use gcloud_sdk::google::firestore::v1::Value;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use hotcount::store::{LAYOUT, Repair, StoredFault, Undecidable};

/// Ways to spoil a membership, each with what the answer must name.
fn spoiled() -> Vec<(&'static str, Option<Value>)> {
    let real = Value { value_type: Some(ValueType::DoubleValue(1.5)) };
    vec![
        ("user", None),
        ("user", Some(text("somebody else"))),
        ("post", None),
        ("post", Some(int(7))),
        ("liked", Some(text("true"))),
        ("order", Some(real)),
        ("eventId", Some(text(&"x".repeat(1_501)))),
        ("eventId", None),
        ("v", Some(text("1"))),
        ("v", Some(int(0))),
    ]
}

/// What a store answers about likes that cannot be decided.
fn undecidable(error: StoreError) -> Vec<Undecidable> {
    match error.class {
        ErrorClass::Undecidable(those) => those,
        other => panic!("{other:?}: {}", error.message),
    }
}

fn short(place: &Place, name: &str) -> String {
    name.strip_prefix(&format!("{}/", place.address().root())).expect("it is in the database").to_owned()
}

#[tokio::test]
async fn every_membership_of_a_batch_that_cannot_be_read_is_named_in_one_answer_and_the_others_count() {
    let Some(place) = Place::new("spoiled") else { return };
    let store = place.store().await;
    let ways = spoiled();
    let number = u32::try_from(ways.len()).unwrap();
    apply(&store, likes("post", 0..number)).await;
    for (n, (field, value)) in ways.iter().enumerate() {
        place.change(&place.member("post", &format!("user-{n}")), &[(field, value.clone())]).await;
    }
    // All of them, and as many that are healthy.
    let these = batch(likes("post", 0..2 * number));
    let before = tally(&store, "post").await;
    for attempt in [Attempt::first(1), resuming(), Attempt::first(2)] {
        let those = undecidable(store.apply(&these, attempt).await.expect_err("they cannot be decided"));
        assert_eq!(those.len(), ways.len(), "{those:?}");
        assert!(those.is_sorted_by_key(|one| one.place));
        for one in those {
            let like = &these.likes()[one.place];
            assert_eq!(one.document, short(&place, &place.member("post", like.user())));
            let (field, _) = ways[like.user().strip_prefix("user-").unwrap().parse::<usize>().unwrap()];
            let StoredFault::Unreadable(why) = &one.fault else { panic!("{one:?}") };
            assert!(why.contains(&format!("'{field}'")), "{one}");
        }
    }
    assert_eq!(tally(&store, "post").await, before, "nothing was written");
    assert_eq!(apply(&store, likes("post", number..2 * number)).await.applied, u64::from(number));
    for (n, (field, _)) in ways.iter().enumerate() {
        let read = store.membership("post", &format!("user-{n}")).await.expect_err("it cannot be read");
        assert!(read.message.contains(&format!("'{field}'")) && read.message.contains("hotcountLikes/"), "{read}");
        assert_eq!(undecidable(read)[0].place, 0);
    }
}

#[tokio::test]
async fn a_blind_commit_that_meets_one_membership_that_cannot_be_read_names_the_others_too() {
    let Some(place) = Place::new("blind-spoiled") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..3)).await;
    // A new adapter expects no duplicates, so it finds the first of them by a refusal that names it.
    let store = place.store().await;
    for user in ["user-0", "user-2"] {
        place.change(&place.member("post", user), &[("user", None)]).await;
    }
    let error = store.apply(&batch(likes("post", 0..5)), Attempt::first(1)).await.expect_err("two cannot be decided");
    assert_eq!(undecidable(error).len(), 2);
}

#[tokio::test]
async fn a_batch_key_that_cannot_be_read_still_means_committed() {
    let Some(place) = Place::new("spoiled-key") else { return };
    let (store, faults) = place.faulty().await;
    let ways: [(&str, Option<Value>); 5] = [
        ("applied", None),
        ("stale", Some(text("0"))),
        ("duplicates", Some(int(-1))),
        ("applied", Some(int(1_000))),
        ("v", Some(int(LAYOUT + 1))),
    ];
    for (n, (field, value)) in ways.into_iter().enumerate() {
        let post = format!("post-{n}");
        let one = batch(likes(&post, 0..3));
        faults.fail_next_commit(Code::Unavailable, When::After);
        assert_eq!(store.apply(&one, Attempt::first(1)).await.expect_err("lost").class, ErrorClass::Unknown);
        place.change(&place.address().batch(one.key()), &[(field, value)]).await;
        // Found by the look before the commit, and by the one after a refusal.
        for attempt in [resuming(), Attempt::first(1)] {
            let applied = store.apply(&one, attempt).await.expect("it is committed");
            assert_eq!(applied, Applied { applied: 3, duplicates: 0, stale: 0, replayed: true }, "{field}");
        }
        assert_eq!(tally(&store, &post).await, (3, 1, 3));
    }
}

#[tokio::test]
async fn a_shard_that_cannot_be_read_is_trouble_for_the_tally_of_its_post_alone() {
    let Some(place) = Place::new("spoiled-shard") else { return };
    let store = place.store().await;
    for post in ["post", "other"] {
        apply(&store, likes(post, 0..3)).await;
    }
    let shards = ["7", "8", "repair"].map(|shard| place.address().shard("post", shard));
    place.change(&shards[0], &[("count", Some(text("3")))]).await;
    place.change(&shards[1], &[("note", Some(text("no count at all")))]).await;
    place.change(&shards[2], &[("count", None), ("v", Some(int(LAYOUT + 1)))]).await;
    let all = [
        store.tally("post", Depth::Shards).await.expect_err("it cannot be read"),
        store.tally("post", Depth::ShardsAndMembers).await.expect_err("it cannot be read"),
        store.audit("post").await.expect_err("it cannot be read"),
    ];
    for error in all {
        let those = undecidable(error);
        let named: Vec<_> = those.iter().map(|one| (one.place, one.document.clone())).collect();
        assert_eq!(named, shards.each_ref().map(|name| (0, short(&place, name))));
        assert_eq!(those[2].fault, StoredFault::Newer(LAYOUT + 1));
    }
    // Likes of the post are counted as ever, on the shards that are healthy.
    assert_eq!(apply(&store, likes("post", 3..5)).await.applied, 2);
    assert_eq!(tally(&store, "other").await, (3, 1, 3));
    for listing in [Listing::Shards, Listing::Members] {
        assert_eq!(store.posts(listing, None, 10).await.expect("it lists"), ["other", "post"]);
    }
}

#[tokio::test]
async fn posts_are_found_through_memberships_that_say_their_post_in_the_cell_alone() {
    let Some(place) = Place::new("spoiled-listing") else { return };
    let by_cell = Place { url: format!("{}&members_by=cell", place.url) };
    for post in ["a", "b", "c"] {
        apply(&place.store().await, likes(post, 0..1)).await;
    }
    place.change(&place.member("b", "user-0"), &[("post", None)]).await;
    for place in [&place, &by_cell] {
        let posts = place.store().await.posts(Listing::Members, None, 10).await.expect("it lists");
        assert_eq!(posts, ["a", "b", "c"], "{}", place.url);
    }
    // One that says it nowhere is nobody's.
    place.change(&place.member("b", "user-0"), &[("cell", None)]).await;
    for place in [&place, &by_cell] {
        let posts = place.store().await.posts(Listing::Members, None, 10).await.expect("it lists");
        assert_eq!(posts, ["a", "c"], "{}", place.url);
    }
}
