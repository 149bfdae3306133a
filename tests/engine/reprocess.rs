//! Readmitting while the store fails: an entry leaves the quarantine after its effect is durable, and never before.

use crate::faults::{Fault, Faulty};
use hotcount::engine::pipeline::Config;
use hotcount::engine::reprocess::{Fate, ReprocessError, reprocess};
use hotcount::store::memory::Memory;
use hotcount::store::{Attempt, Counts, Depth, ErrorClass, PageSize, Quarantined, Store};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Three likes of one post, quarantined by mistake.
async fn quarantined(store: &Memory) -> Vec<Quarantined> {
    let entry = |user: u32| Quarantined {
        id: format!("{user:032x}"),
        reason: "a mistake".to_owned(),
        data: format!(
            r#"{{"eventId":"e","type":"like.added","postId":"p","userId":{user},"occurredAt":"2026-01-01T00:00:00Z"}}"#
        )
        .into(),
        attributes: Vec::new(),
        source: "test:".to_owned(),
        message_id: None,
        published_at: None,
        received_at: UNIX_EPOCH,
        delivery_attempt: None,
    };
    let entries: Vec<_> = (0..3).map(entry).collect();
    store.quarantine(&entries).await.unwrap();
    entries
}

/// The fates, how it ended, how many entries are left, and the count.
async fn readmitted(
    script: impl FnMut(Attempt) -> Fault + Send + 'static,
) -> (Vec<Fate>, Option<ReprocessError>, usize, i64) {
    let inner = Arc::new(Memory::default());
    let entries = quarantined(&inner).await;
    let mut script = script;
    let store: Arc<dyn Store> = Faulty::new(Arc::clone(&inner), move |_, attempt| script(attempt));
    let (config, shutdown, mut rng) = (Config::default(), std::future::pending(), SmallRng::seed_from_u64(1));
    let (fates, ended) = reprocess(&store, entries, config, shutdown, Arc::default(), &mut rng).await;
    let tally = inner.tally("p", Depth::ShardsAndMembers).await.unwrap();
    assert_eq!(tally.drift(), Some(0));
    (fates, ended.err(), inner.quarantined(None, PageSize::entries(10)).await.unwrap().entries.len(), tally.count)
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_was_lost_counts_once_and_then_the_entries_go() {
    let outcome = readmitted(|attempt| match attempt.number {
        1 => Fault::before(ErrorClass::DidNotCommit),
        2 => Fault::after(ErrorClass::Unknown),
        _ => Fault::default(),
    });
    let (fates, ended, left, count) = outcome.await;
    assert_eq!(fates, [Fate::Counted, Fate::Counted, Fate::Counted]);
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!((left, count), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_work_leaves_every_entry_also_when_it_had_committed() {
    for fault in [Fault::before(ErrorClass::Fatal), Fault::after(ErrorClass::Fatal)] {
        let applies = fault.applies;
        let (fates, ended, left, count) = readmitted(move |_| fault.clone()).await;
        assert_eq!(fates, [Fate::Left, Fate::Left, Fate::Left]);
        assert!(matches!(ended, Some(ReprocessError::Engine(_))), "{ended:?}");
        assert_eq!((left, count), (3, if applies { 3 } else { 0 }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_leaves_the_entries_at_the_retry_deadline() {
    let (fates, ended, left, count) = readmitted(|_| Fault::before(ErrorClass::Unknown)).await;
    assert_eq!(fates, [Fate::Left, Fate::Left, Fate::Left]);
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!((left, count), (3, 0));
}
