//! A store that takes as long as Firestore would, and aborts when it would. What it wraps keeps the counts.

use super::{Contention, Name};
use crate::common::sync::Locked;
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use crate::store::{
    Applied, Attempt, Audit, Counts, Depth, ErrorClass, Limits, Listing, PageSize, QuarantinePage, Quarantined, Repair,
    Repaired, Settings, Store, StoreError, Tally,
};
use async_trait::async_trait;
use foldhash::fast::FixedState;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex};

/// Whose shard number a commit increments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardChoice {
    /// The lane's, for all posts of the batch: what the engine does.
    OfTheLane,
    /// A random one of so many, anew for every post: what everybody tries first. The locks are those of the random
    /// shards; the wrapped store still keeps the counts under the lane's number, which changes no sum.
    FreshPerPost(u16),
}

/// A store of a contended database. Several may share one [`Contention`]: they are workers on the same database.
pub struct Contended<S> {
    inner: Arc<S>,
    contention: Arc<Contention>,
    choice: ShardChoice,
    rng: Mutex<SmallRng>,
}

impl<S: Store> Contended<S> {
    /// `inner` behind the locks and the latencies of `contention`.
    #[must_use]
    pub fn new(inner: Arc<S>, contention: Arc<Contention>, choice: ShardChoice, seed: u64) -> Self {
        Self { inner, contention, choice, rng: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }

    fn shard_of(&self, attempt: Attempt) -> u16 {
        match self.choice {
            ShardChoice::OfTheLane => attempt.shard,
            ShardChoice::FreshPerPost(shards) => self.rng.locked().random_range(0..shards.max(1)),
        }
    }

    /// The documents of one commit, and the key ranges they are in.
    fn writes(&self, batch: &Batch, attempt: Attempt) -> (Vec<Name>, Vec<(Name, u64)>) {
        let likes = batch.likes();
        let mut documents = Vec::with_capacity(likes.len() + 2);
        documents.push(name("key", batch.key().as_bytes(), b""));
        let mut ranges = vec![(name("keys", b"", b""), 1), (name("likes", b"", b""), likes.len() as u64)];
        documents.extend(likes.iter().map(|like| name("like", like.post().as_bytes(), like.user().as_bytes())));
        for likes in batch.by_post() {
            let post = likes[0].post().as_bytes();
            documents.push(name("shard", post, &self.shard_of(attempt).to_be_bytes()));
            ranges.push((name("shards", post, b""), 1));
        }
        (documents, ranges)
    }
}

/// Collisions of 64 bits only make two documents share a lock.
pub(super) fn name(kind: &str, first: &[u8], second: &[u8]) -> Name {
    FixedState::with_seed(0).hash_one((kind, first, second))
}

#[async_trait]
impl<S: Store> Counts for Contended<S> {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.inner.tally(post, depth).await
    }

    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.posts(listing, after, limit).await
    }

    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.inner.quarantined(after, size).await
    }
}

#[async_trait]
impl<S: Store> Repair for Contended<S> {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.inner.audit(post).await
    }

    /// Rare, and on a document that no worker writes: it waits for nobody.
    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.inner.repair(post, seen).await
    }
}

#[async_trait]
impl<S: Store> Store for Contended<S> {
    /// All locks are held until the wrapped store has committed, so a concurrent writer on any of the documents comes
    /// entirely before or entirely after.
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        if attempt.resuming {
            self.contention.read(1).await;
        }
        let (documents, ranges) = self.writes(batch, attempt);
        let amount = documents.len() as u64;
        let held = self.contention.begin(documents, &ranges).await;
        let held =
            held.map_err(|aborted| StoreError::caused(ErrorClass::DidNotCommit, "the commit was aborted", aborted))?;
        self.contention.commit(amount).await;
        let applied = self.inner.apply(batch, attempt).await;
        drop(held);
        applied
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        self.inner.quarantine(poison).await
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        self.inner.find_quarantined(id).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        self.inner.discard(ids).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        self.contention.read(1).await;
        self.inner.membership(post, user).await
    }

    /// Firestore's, but for the time that a batch key is kept: the wrapped store decides that.
    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        self.inner.agree(settings).await
    }

    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        self.inner.probe(key).await
    }

    fn limits(&self) -> Limits {
        Limits { max_writes: 500, max_bytes: 3 << 20, lanes: 2, ..self.inner.limits() }
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::super::Assumptions;
    use super::*;
    use crate::like::batch::BatchKey;
    use crate::store::memory::Memory;
    use std::time::Duration;
    use tokio::time::Instant;

    fn batch(key: u128, users: std::ops::Range<u32>) -> Batch {
        let like = |user: u32| Like::new("post", &user.to_string(), &format!("e{user}"), true, 1);
        Batch::new(BatchKey::from_random(key), users.map(like).collect())
    }

    fn store(assumptions: Assumptions) -> Contended<Memory> {
        let contention = Contention::new(assumptions, 1);
        Contended::new(Arc::new(Memory::default()), contention, ShardChoice::OfTheLane, 1)
    }

    #[tokio::test(start_paused = true)]
    async fn two_commits_on_one_shard_take_turns_and_on_two_they_do_not() {
        let store = store(Assumptions { jitter: 0.0, ..Assumptions::default() });
        let start = Instant::now();
        let (a, b) = (batch(1, 0..10), batch(2, 10..20));
        let _ = futures::join!(store.apply(&a, Attempt::first(0)), store.apply(&b, Attempt::first(1)));
        let apart = start.elapsed();
        let start = Instant::now();
        let (a, b) = (batch(3, 20..30), batch(4, 30..40));
        let _ = futures::join!(store.apply(&a, Attempt::first(0)), store.apply(&b, Attempt::first(0)));
        let together = start.elapsed();
        assert!(together >= apart * 2 - Duration::from_millis(2), "{apart:?} {together:?}");
        assert_eq!(store.tally("post", Depth::ShardsAndMembers).await.expect("a tally").drift(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_that_waits_too_long_is_aborted_and_writes_nothing() {
        let lock_deadline = Duration::from_millis(10);
        let store = store(Assumptions { lock_deadline, ..Assumptions::default() });
        let (a, b) = (batch(1, 0..10), batch(2, 10..20));
        let (first, second) = futures::join!(store.apply(&a, Attempt::first(0)), store.apply(&b, Attempt::first(0)));
        assert_eq!(first.expect("applied").applied, 10);
        assert_eq!(second.expect_err("aborted").class, ErrorClass::DidNotCommit);
        assert_eq!(store.tally("post", Depth::Shards).await.expect("a tally").count, 10);
        let usage = store.contention.usage();
        assert_eq!((usage.tried, usage.aborted, usage.writes), (2, 1, 12));
    }
}
