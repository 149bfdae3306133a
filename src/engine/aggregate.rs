//! The buffer between deliveries and commits: likes are folded per (post, user) until a lane seals a batch of them.
//!
//! No async, no clock, no store, no source: time is an argument, and what travels with a like until it is settled is a
//! type parameter. Adders run concurrently with each other and with sealing.
//!
//! The map is keyed by (post, user) rather than by post, so that the adders of one hot post do not queue for one lock.
//! Beside it the line keeps the likes in order of arrival, so that none starves under load.

mod contended;
mod recent;
mod sealed;

pub use sealed::{Receipts, Sealed};

use crate::common::sync::{Entry, Locked, Map, Mutex, MutexGuard};
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use crate::like::membership::Decision;
use contended::Contended;
use foldhash::fast::FixedState;
use recent::Recent;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};
use thin_vec::ThinVec;

/// How many parts the map has: enough for the adders of one worker, few enough that the parts of a batch's worth of likes
/// stay in a core's cache, and fixed, so that a seed replays.
const MAP_SHARDS: usize = 16;

/// What one document adds to a commit beside its ids: names, types and numbers of its fields, on the wire about 400
/// bytes in Firestore's protocol for a membership.
const DOCUMENT_BYTES: usize = 400;

/// When a batch is full, and when it is due.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Documents in one commit: one a like, one a post and the batch key. At least 3.
    pub max_writes: usize,
    /// Bytes in one commit, counted as ids plus an allowance a document.
    pub max_bytes: usize,
    /// How long a like may wait for company. This is what batching costs in latency when there is little traffic.
    pub linger: Duration,
    /// How many likes whose commit was answered are remembered, to settle their duplicates without the store. 0: none.
    pub recent_likes: usize,
    /// Bytes that they take at most, with their ids; whichever bound is reached first counts. An entry takes about 200 bytes
    /// with short ids and 5,000 with the longest.
    pub recent_bytes: usize,
    /// Seeds the hash. Random in production, so that nobody can choose ids that collide.
    pub seed: u64,
}

impl Default for Config {
    /// Firestore's kind limits; a linger of 50 ms, about half of a commit there; 100,000 recent likes, about
    /// 20 MB with short ids, and at most 32 MiB.
    fn default() -> Self {
        Self {
            max_writes: 500,
            max_bytes: 3 << 20,
            linger: Duration::from_millis(50),
            recent_likes: 100_000,
            recent_bytes: 32 << 20,
            seed: 0,
        }
    }
}

/// What became of a like that was added.
#[derive(Debug, PartialEq, Eq)]
pub enum Added<R> {
    /// It waits for a commit.
    Buffered,
    /// A like of the same (post, user) was waiting; the newer of the two stays, the other is folded into it.
    Folded,
    /// Its effect is durable already: it is not newer than a like whose commit was answered. Its receipt comes back
    /// Not newer than a like whose effect is durable, and of the same state. It only has to be settled.
    Duplicate(R),
    /// Not newer than a like whose effect is durable, and of the other state. It only has to be settled.
    Stale(R),
}

/// A like as a key: by (post, user) alone.
#[derive(Clone)]
struct ByMember(Like);

impl PartialEq for ByMember {
    fn eq(&self, other: &Self) -> bool {
        self.0.member() == other.0.member()
    }
}

impl Eq for ByMember {}

impl Hash for ByMember {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0.post().as_bytes());
        state.write_usize(self.0.post().len());
        state.write(self.0.user().as_bytes());
    }
}

/// What waits with a like: its own receipt, and those of the likes folded into it.
struct Slot<R> {
    own: Option<R>,
    folded: ThinVec<R>,
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Self { own: None, folded: ThinVec::new() }
    }
}

/// The buffer. `R` is what travels with a like until it is settled.
pub struct Aggregator<R> {
    config: Config,
    map: Map<ByMember, Slot<R>, FixedState>,
    /// Invariant: a like is here exactly once from soon after it enters the map until just before it leaves it. Adders
    /// push after they insert and the sealer pops before it removes, so neither holds both locks: a concurrent writer may fold into
    /// a like that the sealer has popped, and the sealer takes that receipt with it when it removes the like.
    line: Mutex<VecDeque<(Like, Instant)>>,
    /// Where a sealer puts what it pops and does not seal. The invariant holds for the line and this place together.
    contended: Contended,
    recent: Recent,
}

impl<R> Aggregator<R> {
    /// An empty buffer.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let hasher = FixedState::with_seed(config.seed);
        Self {
            config,
            map: Map::with_capacity_and_hasher_and_shard_amount(0, hasher.clone(), MAP_SHARDS),
            line: Mutex::default(),
            contended: Contended::default(),
            recent: Recent::new(config.recent_likes, config.recent_bytes, hasher),
        }
    }

    /// Adds one like that arrived `now`.
    pub fn add(&self, like: Like, receipt: R, now: Instant) -> Added<R> {
        self.adder(now).add(like, receipt)
    }

    /// Adds likes that arrived together, `now`. They join the line at once, when the adder is dropped, so that adders do
    /// not queue for its lock like by like.
    pub fn adder(&self, now: Instant) -> Adder<'_, R> {
        Adder { aggregator: self, arrived: Vec::new(), now }
    }

    /// How many likes wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.line().len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether so many likes wait that a commit of one post's likes would be full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.config.full_batch_likes()
    }

    /// When the oldest like that waits must be sealed, full or not.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        self.line().front().map(|(_, since)| *since + self.config.linger)
    }

    /// Takes the oldest likes, as many as one commit holds, as a batch under `key`; `None` when none waits. Likes of
    /// members that make trouble, or are under way aside, are put there instead.
    pub fn seal(&self, key: BatchKey) -> Option<Sealed<R>> {
        let (taken, oldest) = self.take_line()?;
        Some(self.gather(key, taken, oldest))
    }

    /// Takes likes that wait aside, as many as one commit holds, as a batch under `key`; `None` when all that wait are of
    /// members that are under way. These are under way from now on, until [`Self::end_contended`].
    pub fn seal_contended(&self, key: BatchKey) -> Option<Sealed<R>> {
        let taken = self.contended.take_line(|line| self.fitting(line));
        let oldest = taken.iter().map(|(_, since)| *since).min()?;
        Some(self.gather(key, taken.into_iter().map(|(like, _)| like).collect(), oldest))
    }

    /// The members of `batch` make trouble: for a while their likes wait aside.
    pub fn mark_contended(&self, batch: &Batch, now: Instant) {
        self.contended.remember(batch, now);
    }

    /// These likes are under way aside: further ones of their members that wait there wait on, and fold.
    pub fn begin_contended(&self, likes: &[Like]) {
        self.contended.begin(likes);
    }

    /// They are no longer under way.
    pub fn end_contended(&self, likes: &[Like]) {
        self.contended.end(likes);
    }

    /// Ends what has lasted long enough.
    pub fn forget_contended(&self, now: Instant) {
        self.contended.forget(now);
    }

    /// Whether likes wait aside.
    #[must_use]
    pub fn contended_waiting(&self) -> bool {
        self.contended.waits()
    }

    /// A batch of likes that were popped, with what waits for them in the map.
    fn gather(&self, key: BatchKey, taken: Vec<Like>, oldest: Instant) -> Sealed<R> {
        let taken = in_order(taken);
        let (mut likes, mut receipts) = (Vec::with_capacity(taken.len()), Vec::with_capacity(taken.len()));
        for like in taken {
            // By the line's invariant every like of it is in the map.
            if let Some((ByMember(newest), slot)) = self.map.remove(&ByMember(like)) {
                likes.push(newest);
                receipts.push(Receipts { own: slot.own, folded: slot.folded });
            }
        }
        Sealed::new(Batch::from_sorted(key, likes), receipts, oldest)
    }

    /// Remembers likes whose commit was answered: what is not newer than them has had its effect.
    pub fn remember(&self, durable: &Batch) {
        self.recent.remember(durable.likes());
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<(Like, Instant)>> {
        // Nothing that runs under the lock can panic half way through a change.
        self.line.locked()
    }

    /// The front of the line, as many likes as fit in a commit, and the arrival of the oldest.
    fn take_line(&self) -> Option<(Vec<Like>, Instant)> {
        loop {
            let mut line = self.line();
            let oldest = line.front()?.1;
            let count = self.fitting(&line);
            let taken: Vec<(Like, Instant)> = line.drain(..count).collect();
            // Two locks are never held at once. A member that makes trouble since goes with this batch and is parted from it.
            drop(line);
            let taken = self.contended.sift(taken);
            if !taken.is_empty() {
                return Some((taken.into_iter().map(|(like, _)| like).collect(), oldest));
            }
        }
    }

    /// How many likes at the front of `line` fit in one commit.
    fn fitting(&self, line: &VecDeque<(Like, Instant)>) -> usize {
        let mut posts: HashSet<&str, FixedState> = HashSet::default();
        let mut last = None;
        let (mut count, mut bytes) = (0, DOCUMENT_BYTES);
        for (like, _) in line {
            let post = like.post();
            // The likes of a hot post mostly follow each other.
            let known = last == Some(post) || posts.contains(post);
            let documents = 1 + usize::from(!known);
            bytes += like.text_bytes() + documents * DOCUMENT_BYTES;
            if count > 0
                && (count + posts.len() + documents + 1 > self.config.max_writes || bytes > self.config.max_bytes)
            {
                break;
            }
            if !known {
                posts.insert(post);
            }
            last = Some(post);
            count += 1;
        }
        count
    }
}

/// Adds likes that arrived together.
pub struct Adder<'a, R> {
    aggregator: &'a Aggregator<R>,
    /// In the map and not yet in the line.
    arrived: Vec<Like>,
    now: Instant,
}

impl<R> Adder<'_, R> {
    /// Adds one like.
    pub fn add(&mut self, like: Like, receipt: R) -> Added<R> {
        let key = ByMember(like.clone());
        match self.aggregator.recent.decide(&key) {
            Some(Decision::Duplicate) => return Added::Duplicate(receipt),
            Some(Decision::Stale) => return Added::Stale(receipt),
            Some(Decision::Write { .. }) | None => {}
        }
        match self.aggregator.map.entry(key) {
            Entry::Vacant(entry) => {
                drop(entry.insert(Slot { own: Some(receipt), folded: ThinVec::new() }));
                self.arrived.push(like);
                Added::Buffered
            }
            Entry::Occupied(mut entry) => {
                if like.membership().cmp_newness(&entry.key().0.membership()).is_gt() {
                    let Slot { own, mut folded } = std::mem::take(entry.get_mut());
                    folded.extend(own);
                    entry.replace_entry(Slot { own: Some(receipt), folded });
                } else {
                    entry.get_mut().folded.push(receipt);
                }
                Added::Folded
            }
        }
    }
}

impl<R> Drop for Adder<'_, R> {
    fn drop(&mut self) {
        if !self.arrived.is_empty() {
            self.aggregator.line().extend(self.arrived.drain(..).map(|like| (like, self.now)));
        }
    }
}

/// Sorted by (post, user). A number is compared instead of two texts almost always: the rank of the post among the few of
/// the batch, then the first 16 bytes of the user.
fn in_order(likes: Vec<Like>) -> Vec<Like> {
    let mut numbers: HashMap<&str, usize, FixedState> = HashMap::default();
    let mut last: Option<(&str, usize)> = None;
    let mut keys: Vec<(usize, u128, usize)> = Vec::with_capacity(likes.len());
    for (place, like) in likes.iter().enumerate() {
        let (post, user) = like.member();
        let number = match last {
            Some((last_post, number)) if last_post == post => number,
            _ => {
                let next = numbers.len();
                *numbers.entry(post).or_insert(next)
            }
        };
        last = Some((post, number));
        keys.push((number, prefix(user), place));
    }
    let mut posts: Vec<(&str, usize)> = numbers.into_iter().collect();
    posts.sort_unstable();
    let mut rank = vec![0; posts.len()];
    posts.iter().enumerate().for_each(|(place, (_, number))| rank[*number] = place);
    keys.iter_mut().for_each(|key| key.0 = rank[key.0]);
    keys.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| likes[a.2].user().cmp(likes[b.2].user())));
    let mut likes: Vec<Option<Like>> = likes.into_iter().map(Some).collect();
    keys.into_iter().filter_map(|(_, _, place)| likes[place].take()).collect()
}

impl Config {
    /// The likes of a full batch when all are on one post: what is left beside one increment and the batch key.
    #[must_use]
    pub fn full_batch_likes(&self) -> usize {
        self.max_writes.saturating_sub(2).max(1)
    }
}

/// The first 16 bytes as a number that sorts like the text; equal prefixes need the whole text.
fn prefix(text: &str) -> u128 {
    let mut bytes = [0; 16];
    let length = text.len().min(16);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests;
