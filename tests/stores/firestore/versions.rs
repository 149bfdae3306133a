//! Documents of other versions of the layout, and two versions side by side.

use super::outside::{int, text};
use super::*;
use gcloud_sdk::google::firestore::v1::Value;
use hotcount::read::repair;
use hotcount::store::{LAYOUT, Repair, StoredFault};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const NEWER: i64 = LAYOUT + 1;

fn like(user: &str, liked: bool, order: i64) -> Like {
    Like::new("post", user, &format!("{user}-{order}"), liked, order)
}

/// Which places of a batch were left to a newer version.
fn newer(error: &StoreError) -> Vec<usize> {
    let ErrorClass::Undecidable(those) = &error.class else { panic!("{error}") };
    assert!(those.iter().all(|one| one.fault == StoredFault::Newer(NEWER)), "{those:?}");
    those.iter().map(|one| one.place).collect()
}

#[tokio::test]
async fn fields_that_hotcount_does_not_know_stay_when_it_writes() {
    let Some(place) = Place::new("fields") else { return };
    let store = place.store().await;
    let (member, shard) = (place.member("post", "user"), place.address().shard("post", "1"));
    let (note, other) = (("note", Some(text("kept"))), text("kept"));
    apply(&store, vec![like("user", true, 1)]).await;
    place.change(&member, std::slice::from_ref(&note)).await;
    place.change(&shard, std::slice::from_ref(&note)).await;
    for (order, liked) in [(2, true), (3, false), (4, true), (5, false)] {
        apply(&store, vec![like("user", liked, order)]).await;
        let fields = place.fields(&member).await;
        assert_eq!((&fields["note"], &fields["order"]), (&other, &int(order)));
        assert_eq!(fields.contains_key("cell"), liked, "a removal leaves the index");
        assert_eq!(place.fields(&shard).await["note"], other);
        assert_eq!(tally(&store, "post").await, (i64::from(liked), 1, u64::from(liked)));
    }
    // A repair, of a repair shard that is there.
    let repairs = place.address().shard("post", "repair");
    place.change(&repairs, &[("count", Some(int(5))), note.clone()]).await;
    let outcome = repair::correct(&store, "post", &mut SmallRng::seed_from_u64(1)).await.expect("it is corrected");
    assert_eq!((outcome.corrected, outcome.now.drift()), (-5, Some(0)));
    assert_eq!(
        place.fields(&repairs).await,
        [("count", int(0)), ("note", other.clone()), ("v", int(LAYOUT))].map(|(f, v)| (f.to_owned(), v)).into()
    );
    // Poison that comes again, with a part.
    let entry = super::kept::poison("a", vec![7; 1_500_000]);
    let (head, part) = (place.address().poison("a"), format!("{}/parts/0", place.address().poison("a")));
    store.quarantine(std::slice::from_ref(&entry)).await.expect("it is kept");
    for name in [&head, &part] {
        place.change(name, std::slice::from_ref(&note)).await;
    }
    store.quarantine(&[entry]).await.expect("it is kept again");
    for name in [&head, &part] {
        assert_eq!(place.fields(name).await["note"], other, "{name}");
    }
}

#[tokio::test]
async fn a_document_without_a_version_is_of_the_first_and_gets_one_when_it_is_written() {
    let Some(place) = Place::new("unversioned") else { return };
    let store = place.store().await;
    apply(&store, vec![like("user", true, 1)]).await;
    store.quarantine(&[super::kept::poison("a", vec![7; 1_500_000])]).await.expect("it is kept");
    let names = [
        place.member("post", "user"),
        place.address().shard("post", "1"),
        place.address().poison("a"),
        format!("{}/parts/0", place.address().poison("a")),
    ];
    for name in &names {
        assert_eq!(place.fields(name).await["v"], int(LAYOUT), "{name}");
        place.change(name, &[("v", None)]).await;
    }
    assert_eq!(store.membership("post", "user").await.expect("it reads"), Some(like("user", true, 1)));
    assert_eq!(tally(&store, "post").await, (1, 1, 1));
    assert!(store.find_quarantined("a").await.expect("it reads").is_some());
    apply(&store, vec![like("user", false, 2)]).await;
    store.quarantine(&[super::kept::poison("a", vec![7; 1_500_000])]).await.expect("it is kept");
    for name in &names {
        assert_eq!(place.fields(name).await["v"], int(LAYOUT), "{name}");
    }
}

#[tokio::test]
async fn a_newer_shard_is_counted_on_and_stays_newer() {
    let Some(place) = Place::new("newer-shard") else { return };
    let store = place.store().await;
    for (post, shard) in [("post", "1"), ("repaired", "repair")] {
        let name = place.address().shard(post, shard);
        place.change(&name, &[("count", Some(int(4))), ("v", Some(int(NEWER)))]).await;
    }
    apply(&store, likes("post", 0..2)).await;
    assert_eq!(tally(&store, "post").await, (6, 1, 2));
    assert_eq!(place.fields(&place.address().shard("post", "1")).await["v"], int(NEWER));
    let outcome = repair::correct(&store, "repaired", &mut SmallRng::seed_from_u64(1)).await.expect("it is corrected");
    assert_eq!(outcome.corrected, -4);
    let fields = place.fields(&place.address().shard("repaired", "repair")).await;
    assert_eq!((&fields["count"], &fields["v"]), (&int(0), &int(NEWER)));
    assert_eq!(store.audit("repaired").await.expect("it reads").tally.drift(), Some(0));
}

/// A newer version may have moved what is in it, so its fields are not looked at.
#[tokio::test]
async fn a_newer_membership_is_left_to_a_newer_version_whatever_is_in_it() {
    let Some(place) = Place::new("newer-member") else { return };
    let store = place.store().await;
    apply(&store, likes("post", 0..3)).await;
    let fields: [(&str, Option<Value>); 3] = [("v", Some(int(NEWER))), ("user", None), ("order", Some(text("later")))];
    place.change(&place.member("post", "user-1"), &fields).await;
    for attempt in [Attempt::first(1), resuming()] {
        let error = store.apply(&batch(likes("post", 0..4)), attempt).await.expect_err("one is newer");
        assert_eq!(newer(&error), [1]);
    }
    let error = store.membership("post", "user-1").await.expect_err("it is newer");
    assert_eq!(newer(&error), [0]);
}

#[tokio::test]
async fn two_versions_side_by_side_count_every_like_once() {
    let Some(place) = Place::new("versions") else { return };
    let (old, new) = (place.store().await, place.store().await.knowing(NEWER));
    let users: Vec<String> = (0..12).map(|n| format!("user-{n}")).collect();
    // Both write everybody's likes in turn; what the old one leaves is delivered again, at last to the new one.
    for order in 1..=6_i64 {
        let these: Vec<Like> =
            users.iter().enumerate().map(|(n, user)| like(user, (order + n as i64) % 3 != 0, order)).collect();
        let (mine, others) = these.split_at((order as usize * 5) % users.len());
        apply(&new, others.to_vec()).await;
        let mut left = mine.to_vec();
        if !left.is_empty()
            && let Err(error) = old.apply(&batch(left.clone()), Attempt::first(2)).await
        {
            // As the engine does: those are left to redelivery, and the others go on without them.
            let those = newer(&error);
            let sorted = batch(left.clone()).into_likes();
            let (these, rest): (Vec<_>, Vec<_>) = sorted.into_iter().enumerate().partition(|(n, _)| those.contains(n));
            let rest: Vec<Like> = rest.into_iter().map(|(_, like)| like).collect();
            if !rest.is_empty() {
                apply(&old, rest).await;
            }
            left = these.into_iter().map(|(_, like)| like).collect();
            assert!(!left.is_empty());
            apply(&new, left).await;
        }
    }
    let liked = (0..12).filter(|n| (6 + n) % 3 != 0).count();
    for store in [&old, &new] {
        let (count, _, members) = tally(store, "post").await;
        assert_eq!((count, members), (liked as i64, liked as u64));
    }
    let versions = users.iter().map(async |user| place.fields(&place.member("post", user)).await["v"].clone());
    let versions = futures::future::join_all(versions).await;
    assert!(versions.contains(&int(NEWER)), "{versions:?}");
}
