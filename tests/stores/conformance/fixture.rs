//! What the cases share: a store, a namespace, and short ways to make likes and batches.

use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{Applied, Attempt, Audit, Depth, Options, Repaired, Store, Tally};
use std::sync::Arc;
use tempfile::TempDir;

/// A store of one case.
pub(crate) struct Fixture {
    /// The store under test.
    pub(crate) store: Arc<dyn Store>,
    /// The same without what it is seen through.
    direct: Arc<dyn Store>,
    /// Begins every post of the case, so that cases on one server do not meet.
    namespace: String,
    _directory: Option<TempDir>,
}

impl Fixture {
    /// The store that `url` names.
    pub(crate) async fn new(url: &str) -> Self {
        // A server may be shared with other cases and with earlier runs.
        let namespace = format!("t{:016x}-", rand::random::<u64>());
        let options = Options { consumer: format!("{namespace}consumer"), ..Options::default() };
        let store = hotcount::connect::store(url, &options).await.expect("the store opens");
        Self { direct: Arc::clone(&store), store, namespace, _directory: None }
    }

    /// A store in a directory that goes with the fixture.
    pub(crate) async fn in_directory(url: impl FnOnce(&str) -> String) -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().to_str().expect("a path in UTF-8").to_owned();
        Self { _directory: Some(directory), ..Self::new(&url(&path)).await }
    }

    /// The same fixture with another store.
    pub(crate) fn with(self, store: Arc<dyn Store>) -> Self {
        Self { direct: Arc::clone(&store), store, ..self }
    }

    /// The same fixture, its store used through `store`.
    pub(crate) fn seen_through(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    /// The id of a post in this case's namespace.
    pub(crate) fn post(&self, name: &str) -> String {
        format!("{}{name}", self.namespace)
    }

    /// Applies likes in one new batch on shard 0.
    pub(crate) async fn apply(&self, likes: &[Like]) -> Applied {
        self.apply_on(0, likes).await
    }

    /// Applies likes in one new batch.
    pub(crate) async fn apply_on(&self, shard: u16, likes: &[Like]) -> Applied {
        self.store.apply(&batch(likes), Attempt::first(shard)).await.expect("applied")
    }

    /// Makes the shards of a post say `by` more than its members, as something else than hotcount would: a repair that
    /// believes a wrong reading.
    pub(crate) async fn make_drift(&self, post: &str, by: i64) {
        let seen = self.direct.audit(post).await.expect("read");
        let lying = Tally { count: 0, shards: 0, members: Some(by.max(0).unsigned_abs()) };
        let lying = Tally { count: (-by).max(0), ..lying };
        let done = self.direct.repair(post, &Audit { tally: lying, ..seen }).await.expect("written");
        assert_eq!(done, Repaired::Done);
    }

    /// Counts of a post from shards and members.
    pub(crate) async fn tally(&self, post: &str) -> Tally {
        self.store.tally(post, Depth::ShardsAndMembers).await.expect("a tally")
    }

    /// Asserts that shards and members both say `count`.
    pub(crate) async fn assert_count(&self, post: &str, count: i64) {
        let tally = self.tally(post).await;
        assert_eq!((tally.count, tally.drift()), (count, Some(0)), "{post}: {tally:?}");
    }
}

/// A batch under a new key.
pub(crate) fn batch(likes: &[Like]) -> Batch {
    Batch::new(BatchKey::from_random(rand::random()), likes.to_vec())
}

/// A like.
pub(crate) fn add(post: &str, user: &str, event: &str, order: i64) -> Like {
    Like::new(post, user, event, true, order)
}

/// An unlike.
pub(crate) fn remove(post: &str, user: &str, event: &str, order: i64) -> Like {
    Like::new(post, user, event, false, order)
}
