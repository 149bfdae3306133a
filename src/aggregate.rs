//! The buffer between deliveries and commits: likes are folded per (post, user) until a lane seals a batch of them.
//!
//! No async, no clock, no store, no source: time is an argument, and what travels with a like until it is settled is a
//! type parameter. Adders run concurrently with each other and with sealing.
//!
//! The map is keyed by (post, user) rather than by post, so that the adders of one hot post do not queue for one lock.
//! Beside it the line keeps the likes in order of arrival, so that none starves under load.

mod budget;
mod sealed;
mod window;

pub use budget::Budget;
pub use sealed::{Receipts, Sealed};
pub use window::Known;

use crate::batch::{Batch, BatchKey};
use crate::event::Like;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thin_vec::ThinVec;
use window::Window;

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
    pub window_likes: usize,
    /// Seeds the hash. Random in production, so that nobody can choose ids that collide.
    pub seed: u64,
}

impl Default for Config {
    /// Firestore's kind limits; a linger of 50 ms, about half of a commit there; a window of 100,000 likes, about
    /// 20 MB.
    fn default() -> Self {
        Self { max_writes: 500, max_bytes: 3 << 20, linger: Duration::from_millis(50), window_likes: 100_000, seed: 0 }
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
    /// to be settled at once.
    Known(Known, R),
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
    map: DashMap<ByMember, Slot<R>, FixedState>,
    /// Invariant: a like is here exactly once from just after it enters the map until just before it leaves it. Adders
    /// push after they insert and the sealer pops before it removes, so neither holds both locks: a twin may fold into
    /// a like that the sealer has popped, and the sealer takes that receipt with it when it removes the like.
    line: Mutex<VecDeque<(Like, Instant)>>,
    window: Window,
}

impl<R> Aggregator<R> {
    /// An empty buffer.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let hasher = FixedState::with_seed(config.seed);
        Self {
            config,
            map: DashMap::with_capacity_and_hasher_and_shard_amount(0, hasher.clone(), MAP_SHARDS),
            line: Mutex::default(),
            window: Window::new(config.window_likes, hasher),
        }
    }

    /// Adds a like that arrived `now`.
    pub fn add(&self, like: Like, receipt: R, now: Instant) -> Added<R> {
        let key = ByMember(like.clone());
        if let Some(known) = self.window.knows(&key) {
            return Added::Known(known, receipt);
        }
        match self.map.entry(key) {
            Entry::Vacant(entry) => {
                drop(entry.insert(Slot { own: Some(receipt), folded: ThinVec::new() }));
                self.line().push_back((like, now));
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

    /// Takes the oldest likes, as many as one commit holds, as a batch under `key`; `None` when none waits.
    pub fn seal(&self, key: BatchKey) -> Option<Sealed<R>> {
        let (taken, oldest) = self.take_line()?;
        let (mut likes, mut receipts) = (Vec::with_capacity(taken.len()), Vec::with_capacity(taken.len()));
        for like in taken {
            // By the line's invariant every like of it is in the map.
            if let Some((ByMember(newest), slot)) = self.map.remove(&ByMember(like)) {
                likes.push(newest);
                receipts.push(Receipts { own: slot.own, folded: slot.folded });
            }
        }
        Some(Sealed::new(Batch::from_sorted(key, likes), receipts, oldest))
    }

    /// Remembers likes whose commit was answered: what is not newer than them has had its effect.
    pub fn remember(&self, durable: &Batch) {
        self.window.remember(durable.likes());
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<(Like, Instant)>> {
        // Nothing that runs under the lock can panic half way through a change.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The front of the line, as many likes as fit in a commit, sorted by (post, user), and the arrival of the oldest.
    fn take_line(&self) -> Option<(Vec<Like>, Instant)> {
        let mut line = self.line();
        let oldest = line.front()?.1;
        let (count, order) = self.front_in_order(&line);
        let mut taken: Vec<Option<Like>> = line.drain(..count).map(|(like, _)| Some(like)).collect();
        drop(line);
        Some((order.into_iter().filter_map(|place| taken[place].take()).collect(), oldest))
    }

    /// How many likes at the front of `line` fit in one commit, and their places sorted by (post, user).
    ///
    /// Sorting compares a number instead of two texts almost always: the rank of the post among the few of the batch,
    /// then the first 16 bytes of the user.
    fn front_in_order(&self, line: &VecDeque<(Like, Instant)>) -> (usize, Vec<usize>) {
        let mut posts: HashMap<&str, usize, FixedState> = HashMap::default();
        let mut last: Option<(&str, usize)> = None;
        let mut items: Vec<(usize, u128)> = Vec::with_capacity(line.len().min(self.config.max_writes));
        let mut bytes = DOCUMENT_BYTES;
        for (like, _) in line {
            let (post, user) = like.member();
            // The likes of a hot post mostly follow each other.
            let known = last.filter(|(p, _)| *p == post).map(|(_, n)| n).or_else(|| posts.get(post).copied());
            let documents = 1 + usize::from(known.is_none());
            let writes = items.len() + posts.len() + documents + 1;
            bytes += like.text_bytes() + documents * DOCUMENT_BYTES;
            if !items.is_empty() && (writes > self.config.max_writes || bytes > self.config.max_bytes) {
                break;
            }
            let number = known.unwrap_or(posts.len());
            if known.is_none() {
                posts.insert(post, number);
            }
            last = Some((post, number));
            items.push((number, prefix(user)));
        }
        let mut sorted_posts: Vec<(&str, usize)> = posts.into_iter().collect();
        sorted_posts.sort_unstable();
        let mut rank = vec![0_usize; sorted_posts.len()];
        for (place, (_, number)) in sorted_posts.iter().enumerate() {
            rank[*number] = place;
        }
        let mut order: Vec<usize> = (0..items.len()).collect();
        let user = |place: usize| line[place].0.user();
        order.sort_unstable_by(|&a, &b| {
            let ((post_a, prefix_a), (post_b, prefix_b)) = (items[a], items[b]);
            (rank[post_a], prefix_a).cmp(&(rank[post_b], prefix_b)).then_with(|| user(a).cmp(user(b)))
        });
        (items.len(), order)
    }
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
