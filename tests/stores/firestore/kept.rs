//! What is kept beside the counts: poison that cannot be read and pages of it, settings, probes.

use super::outside::{int, text};
use super::*;
use gcloud_sdk::google::firestore::v1::Value;
use hotcount::store::{LAYOUT, PageSize, QuarantinePage, Settings, StoredFault};

pub(crate) fn poison(id: &str, data: Vec<u8>) -> Quarantined {
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

fn ids(page: &QuarantinePage) -> Vec<&str> {
    page.entries.iter().map(|entry| entry.id.as_str()).collect()
}

#[tokio::test]
async fn entries_that_cannot_be_read_are_listed_with_their_reason_among_the_others_and_can_be_deleted() {
    let Some(place) = Place::new("spoiled-poison") else { return };
    let store = place.store().await;
    let large = vec![7; 2_500_000];
    let ways: [(&str, &str, Option<Value>, &str); 8] = [
        ("", "reason", None, "'reason'"),
        ("", "size", Some(int(-3)), "'size'"),
        ("", "size", Some(int(i64::MAX)), "part 2 is missing"),
        ("", "data", Some(text("no bytes")), "'data'"),
        ("", "attributes", Some(int(1)), "'attributes'"),
        ("", "receivedAt", None, "'receivedAt'"),
        ("/parts/1", "data", None, "/parts/1"),
        ("", "v", Some(int(LAYOUT + 1)), "newer"),
    ];
    let name = |n: usize| format!("b{n}");
    let mut entries: Vec<Quarantined> = (0..ways.len()).map(|n| poison(&name(n), large.clone())).collect();
    entries.extend([poison("a", b"x".to_vec()), poison("b5x", b"y".to_vec()), poison("c", large.clone())]);
    store.quarantine(&entries).await.expect("it is kept");
    for (n, (part, field, value, _)) in ways.iter().enumerate() {
        place.change(&format!("{}{part}", place.address().poison(&name(n))), &[(field, value.clone())]).await;
    }
    let page = store.quarantined(None, PageSize::entries(100)).await.expect("it lists");
    assert_eq!(ids(&page), ["a", "b5x", "c"]);
    assert_eq!(page.next, None);
    assert_eq!(page.unreadable.len(), ways.len());
    for (n, ((id, fault), (.., why))) in page.unreadable.iter().zip(&ways).enumerate() {
        assert_eq!(*id, name(n));
        assert!(fault.to_string().contains(why), "{id}: {fault}");
        let error = store.find_quarantined(id).await.expect_err("it cannot be read");
        let ErrorClass::Undecidable(those) = &error.class else { panic!("{error}") };
        assert_eq!((those[0].place, &those[0].fault), (0, fault));
        assert_eq!(those[0].document, format!("hotcountQuarantine/like-counter:{id}"));
    }
    assert_eq!(page.unreadable[7].1, StoredFault::Newer(LAYOUT + 1));
    // Pages of them have no more than was asked for, and end.
    let (mut after, mut listed) = (None, 0);
    loop {
        let page = store.quarantined(after.as_deref(), PageSize::entries(2)).await.expect("it lists");
        assert!(page.entries.len() + page.unreadable.len() <= 2);
        listed += page.entries.len() + page.unreadable.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, entries.len());
    store.discard(&(0..ways.len()).map(name).collect::<Vec<_>>()).await.expect("they are deleted");
    assert!(place.find(&format!("{}/parts/1", place.address().poison(&name(6)))).await.is_none());
    let page = store.quarantined(None, PageSize::entries(100)).await.expect("it lists");
    assert_eq!((ids(&page), page.unreadable.len()), (vec!["a", "b5x", "c"], 0));
}

#[tokio::test]
async fn a_page_of_large_poison_ends_at_its_bytes_and_reads_little_more() {
    let Some(place) = Place::new("bytes") else { return };
    let store = place.store().await;
    let entries: Vec<Quarantined> = (0..6).map(|n| poison(&format!("0{n}"), vec![7; 2_000_000])).collect();
    store.quarantine(&entries).await.expect("it is kept");
    let bytes = entries[0].bytes();
    for (size, a_page) in [(1, 1), (bytes, 1), (bytes + 1, 2), (3 * bytes, 3), (100 * bytes, 6)] {
        let (mut after, mut pages): (Option<String>, Vec<usize>) = (None, Vec::new());
        loop {
            let before = store.billed().reads;
            let page =
                store.quarantined(after.as_deref(), PageSize { entries: 25, bytes: size }).await.expect("it lists");
            // Each entry has two parts beside its own document.
            let reads = store.billed().reads - before;
            assert!(reads <= page.entries.len() as u64 * 3 + size as u64 / (1 << 20) + 2, "{reads} reads");
            pages.push(page.entries.len());
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let (last, full) = pages.split_last().expect("a page");
        assert!(full.iter().all(|entries| *entries == a_page) && (1..=a_page).contains(last), "{size}: {pages:?}");
        assert_eq!(pages.iter().sum::<usize>(), 6);
    }
}

fn settings(order: &str) -> Settings {
    Settings { order: order.to_owned(), identity: "member".to_owned(), layout: LAYOUT }
}

#[tokio::test]
async fn the_first_settings_of_a_consumer_are_kept_and_every_worker_sees_the_same() {
    let Some(place) = Place::new("settings") else { return };
    let (one, one_faults) = place.faulty().await;
    let (two, two_faults) = place.faulty().await;
    let other = Options { consumer: "like".to_owned(), ..Options::default() };
    let other = Firestore::connect(&place.url, &other).await.expect("it opens");
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    one_faults.meet_before_next_commit(barrier.clone());
    two_faults.meet_before_next_commit(barrier);
    // Both have looked and found nothing before either writes.
    let both = (settings("version"), settings("occurred-at"));
    let (a, b) = tokio::join!(one.agree(&both.0), two.agree(&both.1));
    let (a, b) = (a.expect("they are kept"), b.expect("they are kept"));
    assert_eq!(a, b);
    assert_eq!(one.agree(&settings("none")).await.expect("they are read"), a);
    assert_eq!(other.agree(&settings("none")).await.expect("they are kept"), settings("none"));
    let fields = place.fields(&place.address().settings()).await;
    let expected =
        [("order", text(&a.order)), ("identity", text("member")), ("layout", int(LAYOUT)), ("v", int(LAYOUT))];
    assert_eq!(fields, expected.map(|(field, value)| (field.to_owned(), value)).into(), "nothing of it expires");
}

#[tokio::test]
async fn settings_whose_answer_was_lost_are_found_by_asking_again() {
    let Some(place) = Place::new("lost-settings") else { return };
    let (store, faults) = place.faulty().await;
    faults.fail_next_commit(Code::Unavailable, When::After);
    assert_eq!(store.agree(&settings("version")).await.expect_err("lost").class, ErrorClass::Unknown);
    assert_eq!(store.agree(&settings("none")).await.expect("they are read"), settings("version"));
}

#[tokio::test]
async fn settings_that_cannot_be_read_name_their_document_and_what_to_do() {
    let Some(place) = Place::new("spoiled-settings") else { return };
    let store = place.store().await;
    store.agree(&settings("version")).await.expect("they are kept");
    let ways = [("order", None, "'order'", "delete"), ("v", Some(int(LAYOUT + 1)), "newer", "run that version")];
    for (field, value, fault, advice) in ways {
        place.change(&place.address().settings(), &[(field, value)]).await;
        let error = store.agree(&settings("version")).await.expect_err("they cannot be read");
        assert_eq!(error.class, ErrorClass::Fatal);
        for part in ["hotcountBatches/like-counter:settings", fault, advice] {
            assert!(error.message.contains(part), "{error}");
        }
    }
}

#[tokio::test]
async fn a_probe_is_a_batch_key_without_likes_that_expires() {
    let Some(place) = Place::new("probe") else { return };
    let (store, faults) = place.faulty().await;
    let probe = key();
    faults.fail_next_commit(Code::Unavailable, When::After);
    assert_eq!(store.probe(probe).await.expect_err("lost").class, ErrorClass::Unknown);
    store.probe(probe).await.expect("an earlier try of it has arrived");
    let fields = place.fields(&place.address().batch(probe)).await;
    assert!(fields.contains_key("expireAt"));
    assert_eq!((&fields["applied"], &fields["posts"]), (&int(0), &int(0)));
    for (code, class) in [(Code::Aborted, ErrorClass::DidNotCommit), (Code::PermissionDenied, ErrorClass::Fatal)] {
        faults.fail_next_commit(code, When::Before);
        assert_eq!(store.probe(key()).await.expect_err("it failed").class, class);
    }
}
