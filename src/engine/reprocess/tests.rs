//! What leaves the quarantine, and what stays there.

use super::*;
use crate::like::event::OrderPolicy;
use crate::store::memory;
use crate::store::{Depth, PageSize, quarantine_id};
use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::time::{Duration, UNIX_EPOCH};

fn event(user: &str, kind: &str, version: &str) -> String {
    format!(
        r#"{{"eventId":"e","type":"{kind}","postId":"p","userId":"{user}","occurredAt":"2026-01-01T00:00:00Z"{version}}}"#
    )
}

/// A store with these payloads in its quarantine, as if they had come from a broker.
async fn quarantine(payloads: &[&str]) -> (Arc<dyn Store>, Vec<Quarantined>) {
    let store: Arc<dyn Store> = Arc::new(memory::Memory::default());
    let entry = |(n, payload): (usize, &&str)| Quarantined {
        id: quarantine_id("pubsub://demo/likes", Some(&n.to_string()), payload.as_bytes()),
        reason: "version: missing, and it is the order".to_owned(),
        data: Bytes::copy_from_slice(payload.as_bytes()),
        attributes: Vec::new(),
        source: "pubsub://demo/likes".to_owned(),
        message_id: Some(n.to_string()),
        published_at: Some(UNIX_EPOCH),
        received_at: UNIX_EPOCH + Duration::from_secs(1),
        delivery_attempt: None,
    };
    let entries: Vec<_> = payloads.iter().enumerate().map(entry).collect();
    store.quarantine(&entries).await.expect("kept");
    (store, entries)
}

async fn reprocess_all(store: &Arc<dyn Store>, entries: Vec<Quarantined>, config: Config) -> Vec<Fate> {
    let mut rng = SmallRng::seed_from_u64(1);
    let (fates, ended) = reprocess(store, entries, config, std::future::pending(), Arc::default(), &mut rng).await;
    ended.expect("memory works");
    fates
}

#[tokio::test(start_paused = true)]
async fn what_counts_now_leaves_the_quarantine_and_what_is_poison_stays_under_its_id() {
    // One is from the time after its own message, one is liked twice, one has no version.
    let payloads = [event("a", "like.added", ""), event("a", "like.added", ""), "rubbish".to_owned()];
    let (store, entries) = quarantine(&payloads.each_ref().map(String::as_str)).await;
    let fates = reprocess_all(&store, entries.clone(), Config::default()).await;
    assert_eq!(fates[..2], [Fate::Counted, Fate::Counted]);
    assert!(matches!(&fates[2], Fate::StillPoison(why) if why.field == "payload"), "{fates:?}");
    let tally = store.tally("p", Depth::ShardsAndMembers).await.expect("a tally");
    assert_eq!((tally.count, tally.drift()), (1, Some(0)));
    let left = store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries;
    assert_eq!(left.len(), 1);
    assert_eq!((&left[0].id, &left[0].reason), (&entries[2].id, &entries[2].reason), "as it was kept first");
    // The same again, as after a crash before the deletion.
    store.quarantine(&entries[..1]).await.expect("kept");
    assert_eq!(reprocess_all(&store, entries[..1].to_vec(), Config::default()).await, [Fate::Counted]);
    assert_eq!(store.tally("p", Depth::Shards).await.expect("a tally").count, 1);
}

#[tokio::test(start_paused = true)]
async fn another_order_policy_than_the_workers_have_readmits_nothing() {
    let payload = event("a", "like.added", "");
    let (store, entries) = quarantine(&[&payload]).await;
    let by_version = Config { order: OrderPolicy::Version, ..Config::default() };
    // The first to use the store decides, be it a worker or a readmission.
    let fates = reprocess_all(&store, entries.clone(), by_version).await;
    assert!(matches!(&fates[0], Fate::StillPoison(why) if why.field == "version"), "{fates:?}");
    let mut rng = SmallRng::seed_from_u64(1);
    let (config, shutdown) = (Config::default(), std::future::pending());
    let (fates, ended) = reprocess(&store, entries, config, shutdown, Arc::default(), &mut rng).await;
    let told = ended.expect_err("it is refused").to_string();
    assert!(told.contains("order policy version") && told.contains("order policy occurred-at"), "{told}");
    assert_eq!(fates, [Fate::Left]);
    assert_eq!(store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_readmission_leaves_what_it_did_not_count() {
    let payload = event("a", "like.added", "");
    let (store, entries) = quarantine(&[&payload]).await;
    let (shutdown, mut rng) = (std::future::ready(()), SmallRng::seed_from_u64(1));
    let (fates, ended) = reprocess(&store, entries, Config::default(), shutdown, Arc::default(), &mut rng).await;
    ended.expect("memory works");
    assert_eq!(fates, [Fate::Left]);
    assert_eq!(store.quarantined(None, PageSize::entries(10)).await.expect("a page").entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_attributes_say_what_it_leaves_out_is_readmitted_with_them() {
    let (store, mut entries) = quarantine(&[r#"{"postId":"p","userId":"u"}"#]).await;
    let ce = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    entries[0].attributes = vec![
        ce("ce-specversion", "1.0"),
        ce("ce-id", "e1"),
        ce("ce-type", "like.added"),
        ce("ce-time", "2026-01-01T00:00:00Z"),
    ];
    assert_eq!(reprocess_all(&store, entries, Config::default()).await, [Fate::Counted]);
}
