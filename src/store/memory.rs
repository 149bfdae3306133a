//! A store in this process's memory, for trying things out and for tests. Nothing survives the process.

use super::{
    Applied, Attempt, Audit, ConnectError, Counts, Depth, Limits, Listing, PageSize, QuarantinePage, Quarantined,
    REPAIR_SHARD, Repair, Repaired, Settings, Store, StoreError, Tally,
};
use crate::common::adapter_url::AdapterUrl;
use crate::common::sync::Locked;
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use crate::like::membership::{Decision, decide};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

/// The store. It commits a batch under one lock, so a concurrent writer sees all of a batch or nothing.
#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: BTreeMap<(String, String), Like>,
    shards: BTreeMap<(String, u16), i64>,
    /// How often each post was repaired: the version of its repair shard.
    repairs: BTreeMap<String, u64>,
    batches: HashMap<BatchKey, Applied>,
    quarantine: BTreeMap<String, Quarantined>,
    settings: Option<Settings>,
}

impl State {
    fn tally(&self, post: &str, depth: Depth) -> Tally {
        let mut tally = Tally::default();
        for (_, count) in self.shards.range((post.to_owned(), 0)..=(post.to_owned(), u16::MAX)) {
            tally.count += count;
            tally.shards += 1;
        }
        if depth == Depth::ShardsAndMembers {
            let of_post = self.members.range((post.to_owned(), String::new())..).take_while(|((p, _), _)| p == post);
            tally.members = Some(of_post.filter(|(_, like)| like.liked()).count() as u64);
        }
        tally
    }

    fn version(&self, post: &str) -> Option<String> {
        self.repairs.get(post).map(u64::to_string)
    }
}

impl Memory {
    /// An empty store: `memory:` has no place and no options.
    ///
    /// # Errors
    /// When the URL has either.
    pub fn connect(url: &AdapterUrl) -> Result<Self, ConnectError> {
        url.placeless("write memory: and nothing after it")?;
        url.options(&[])?;
        Ok(Self::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held is a bug in `apply`, which never leaves a batch half done before it can panic.
        self.state.locked()
    }
}

#[async_trait]
impl Counts for Memory {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        Ok(self.state().tally(post, depth))
    }

    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        let posts: BTreeSet<&str> = match listing {
            Listing::Shards => state.shards.keys().map(|(post, _)| post.as_str()).collect(),
            Listing::Members => state.members.keys().map(|(post, _)| post.as_str()).collect(),
        };
        Ok(posts.into_iter().filter(|p| after.is_none_or(|a| *p > a)).take(limit).map(str::to_owned).collect())
    }

    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        use std::ops::Bound;
        let state = self.state();
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_owned()));
        let mut page = QuarantinePage::default();
        let mut bytes = 0;
        for (_, entry) in state.quarantine.range((start, Bound::Unbounded)) {
            if page.entries.len() >= size.entries || bytes >= size.bytes {
                page.next = page.entries.last().map(|entry| entry.id.clone());
                break;
            }
            bytes += entry.bytes();
            page.entries.push(entry.clone());
        }
        Ok(page)
    }
}

#[async_trait]
impl Repair for Memory {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        let state = self.state();
        Ok(Audit {
            tally: state.tally(post, Depth::ShardsAndMembers),
            repaired: state.shards.get(&(post.to_owned(), REPAIR_SHARD)).copied().unwrap_or_default(),
            version: state.version(post),
        })
    }

    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        let mut state = self.state();
        if state.version(post) != seen.version {
            return Ok(Repaired::Conflict);
        }
        if let Some(drift) = seen.tally.drift().filter(|drift| *drift != 0) {
            *state.shards.entry((post.to_owned(), REPAIR_SHARD)).or_default() -= drift;
            *state.repairs.entry(post.to_owned()).or_default() += 1;
        }
        Ok(Repaired::Done)
    }
}

#[async_trait]
impl Store for Memory {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        let mut state = self.state();
        if let Some(applied) = state.batches.get(&batch.key()) {
            return Ok(Applied { replayed: true, ..*applied });
        }
        let mut applied = Applied::default();
        for likes in batch.by_post() {
            let mut sum = 0;
            for like in likes {
                let member = (like.post().to_owned(), like.user().to_owned());
                match decide(state.members.get(&member).map(Like::membership), like) {
                    Decision::Duplicate => applied.duplicates += 1,
                    Decision::Stale => applied.stale += 1,
                    Decision::Write { delta } => {
                        applied.applied += 1;
                        sum += i64::from(delta);
                        state.members.insert(member, like.clone());
                    }
                }
            }
            if sum != 0 {
                *state.shards.entry((likes[0].post().to_owned(), attempt.shard)).or_default() += sum;
            }
        }
        if applied.applied > 0 {
            state.batches.insert(batch.key(), applied);
        }
        Ok(applied)
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        let mut state = self.state();
        for entry in poison {
            state.quarantine.insert(entry.id.clone(), entry.clone());
        }
        Ok(())
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        Ok(self.state().quarantine.get(id).cloned())
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        let mut state = self.state();
        ids.iter().for_each(|id| drop(state.quarantine.remove(id)));
        Ok(())
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        Ok(self.state().members.get(&(post.to_owned(), user.to_owned())).cloned())
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        Ok(self.state().settings.get_or_insert_with(|| settings.clone()).clone())
    }

    async fn probe(&self, _: BatchKey) -> Result<(), StoreError> {
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { max_writes: 5_000, max_bytes: 16 << 20, lanes: 2, recent_likes: 100_000, batch_key_lifetime: None }
    }
}
