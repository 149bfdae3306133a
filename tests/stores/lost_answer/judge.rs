//! Runs the real engine through one cell, and judges what is left.

use crate::lost_answer::cell::Before;
use hotcount::common::backoff::Backoff;
use hotcount::engine::pipeline::{self, Config, EngineError, Report};
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::{Like, OrderPolicy};
use hotcount::source::memory::{Finish, Memory as Messages};
use hotcount::store::{Attempt, Depth, PageSize, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(240);

/// The events of one cell, on a post of its own.
pub(crate) struct Events {
    pub(crate) post: String,
    /// Stored before the batch comes.
    pub(crate) stored: Vec<Like>,
    /// The batch whose commit fails.
    pub(crate) these: Vec<Like>,
    /// What comes when all is over, together with these once more.
    later: Vec<Like>,
}

impl Events {
    pub(crate) fn new(post: &str, before: Before) -> Self {
        let like = |user: &str, liked, order| {
            Like::new(post, user, &format!("{user}-{order}-{}", if liked { "added" } else { "removed" }), liked, order)
        };
        // More of them than an adapter finds one by one.
        let old = |n: usize| format!("old-{n}");
        let stored = match before {
            Before::Nothing => Vec::new(),
            Before::Members => (0..8).map(|n| like(&old(n), n != 7, 1)).collect(),
        };
        let mut these: Vec<Like> = (0..4).map(|n| like(&format!("new-{n}"), true, 1)).collect();
        match before {
            Before::Nothing => these.extend((4..8).map(|n| like(&format!("new-{n}"), true, 1))),
            Before::Members => {
                these.extend((0..3).map(|n| like(&old(n), false, 2)));
                // Liked again: written, and no change of the count. Then a duplicate, and one that comes too late.
                these.extend([like(&old(3), true, 2), like(&old(4), true, 1), like(&old(5), true, 0)]);
                these.extend([like(&old(6), false, 0), like(&old(7), true, 2)]);
            }
        }
        let later = vec![like("new-0", false, 2), like("new-1", true, 2), like("late", true, 1)];
        Self { post: post.to_owned(), stored, these, later }
    }

    /// The newest like of each user, of all.
    fn newest(&self) -> BTreeMap<&str, &Like> {
        let mut newest: BTreeMap<&str, &Like> = BTreeMap::new();
        for like in self.stored.iter().chain(&self.these).chain(&self.later) {
            let kept = newest.entry(like.user()).or_insert(like);
            if like.membership().cmp_newness(&kept.membership()).is_gt() {
                *kept = like;
            }
        }
        newest
    }
}

fn json(like: &Like) -> String {
    let kind = if like.liked() { "like.added" } else { "like.removed" };
    format!(
        r#"{{"eventId":"{}","type":"{kind}","postId":"{}","userId":"{}","version":{}}}"#,
        like.event_id(),
        like.post(),
        like.user(),
        like.order()
    )
}

/// Puts likes into a store without an engine.
pub(crate) async fn put(store: &dyn Store, likes: &[Like]) {
    if !likes.is_empty() {
        let batch = Batch::new(BatchKey::from_random(rand::random()), likes.to_vec());
        store.apply(&batch, Attempt::first(0)).await.expect("it is applied");
    }
}

/// Messages in a source, and whose like each is.
#[derive(Clone)]
pub(crate) struct Letters {
    pub(crate) source: Messages,
    users: Arc<BTreeMap<u64, String>>,
}

impl Letters {
    pub(crate) fn of<'a>(likes: impl IntoIterator<Item = &'a Like>) -> Self {
        let source = Messages::default();
        let send = |like: &Like| (source.publish(json(like)).expect("room"), like.user().to_owned());
        let users = Arc::new(likes.into_iter().map(send).collect());
        Self { source, users }
    }

    /// Whose likes are acknowledged.
    pub(crate) fn acknowledged(&self) -> BTreeSet<String> {
        self.source.settled().iter().map(|settled| self.users[&settled.number].clone()).collect()
    }
}

/// A worker that ends when all messages are settled.
async fn work(name: &str, source: &Messages, store: Arc<dyn Store>, likes: usize) -> Result<Report, EngineError> {
    let mut config = Config {
        order: OrderPolicy::Version,
        // The likes, their shard and their key: they go into one batch.
        batch_writes: Some(likes + 2),
        lanes: Some(1),
        linger: Duration::from_millis(1),
        ..Config::default()
    };
    config.flush.backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(5) };
    source.finish(Finish::WhenSettled);
    let running = pipeline::run(Arc::new(source.clone()), store, config, std::future::pending(), Arc::default());
    tokio::time::timeout(DEADLINE, running).await.unwrap_or_else(|_| panic!("{name}: the worker hangs"))
}

/// Runs a worker whose store fails, and one that gets everything once more with later events. No failure lasts for half a
/// minute, so none ends the worker.
pub(crate) async fn judge(
    name: &str,
    (events, letters): (&Events, &Letters),
    (faulty, works): (Arc<dyn Store>, Arc<dyn Store>),
) {
    let (source, many) = (&letters.source, events.these.len());
    let report = work(name, source, faulty, many).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    let c = report.counted;
    let ended = (c.received, c.applied + c.duplicates + c.stale, c.poison, c.left);
    assert_eq!(ended, (many as u64, many as u64, 0, 0), "{name}: {c:?}");
    let totals = source.totals();
    assert_eq!(totals.dropped, 0, "{name}: a dropped token is a delivery attempt");
    assert_eq!((totals.counted, totals.quarantined), (many as u64, 0), "{name}: all are settled: {totals:?}");
    exact(name, events, &works).await;
}

/// Delivers everything once more, with later events, and asserts that shards, members and events say the same.
async fn exact(name: &str, events: &Events, works: &Arc<dyn Store>) {
    let again = Letters::of(events.these.iter().chain(&events.later));
    work(name, &again.source, Arc::clone(works), events.these.len())
        .await
        .unwrap_or_else(|e| panic!("{name}, again: {e}"));
    let newest = events.newest();
    let liked = newest.values().filter(|like| like.liked()).count() as u64;
    let tally = works.tally(&events.post, Depth::ShardsAndMembers).await.expect("it counts");
    assert_eq!((tally.count, tally.members), (liked as i64, Some(liked)), "{name}");
    for (user, like) in newest {
        let stored = works.membership(&events.post, user).await.expect("it reads");
        assert_eq!(stored.as_ref(), Some(like), "{name}: {user}");
    }
    let poison = works.quarantined(None, PageSize::entries(10)).await.expect("it lists").entries;
    assert!(poison.is_empty(), "{name}: healthy likes are quarantined: {poison:?}");
}
