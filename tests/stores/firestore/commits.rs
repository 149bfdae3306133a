//! What one commit leaves behind, whatever fails and whoever races.

use super::*;

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
                    assert_eq!(outcome.expect_err(&post).class, ErrorClass::Rejected, "{post}");
                }
                Code::PermissionDenied | Code::Unimplemented => {
                    assert_eq!(outcome.expect_err(&post).class, ErrorClass::Fatal, "{post}");
                }
                _ if refusal && when == When::Before => {
                    assert_eq!(outcome.expect_err(&post).class, ErrorClass::Fatal, "{post}");
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
