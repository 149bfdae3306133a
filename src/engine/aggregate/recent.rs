//! The likes whose commit was answered last. It only saves work: a duplicate of one of them is settled without the
//! store. Memberships are what makes that true, for the newest like stored never gets older.

use super::ByMember;
use crate::common::sync::{Locked, Mutex, MutexGuard};
use crate::like::event::Like;
use crate::like::membership::{Decision, decide};
use foldhash::fast::FixedState;
use std::collections::HashSet;

/// What an entry takes beside its ids: the like, its place in a table that is half empty after it has grown, and the counts
/// of its shared text, as measured, rounded up.
const ENTRY_BYTES: usize = 160;

/// Two generations of at most half the likes and half the bytes each. When the young one is full it becomes the old one, and
/// the old one is forgotten: one comparison a like instead of a list of who came last.
pub(super) struct Recent {
    half_likes: usize,
    half_bytes: usize,
    generations: Mutex<Generations>,
}

struct Generations {
    young: HashSet<ByMember, FixedState>,
    young_bytes: usize,
    old: HashSet<ByMember, FixedState>,
}

impl Recent {
    pub(super) fn new(likes: usize, bytes: usize, hasher: FixedState) -> Self {
        let empty = || HashSet::with_hasher(hasher.clone());
        let generations = Mutex::new(Generations { young: empty(), young_bytes: 0, old: empty() });
        Self { half_likes: likes / 2, half_bytes: bytes / 2, generations }
    }

    /// What `like` does to the newest like of its member that is remembered; `None` where none is.
    pub(super) fn decide(&self, like: &ByMember) -> Option<Decision> {
        if self.half_likes == 0 {
            return None;
        }
        let generations = self.generations();
        let durable = generations.young.get(like).or_else(|| generations.old.get(like))?;
        Some(decide(Some(durable.0.membership()), &like.0))
    }

    pub(super) fn remember(&self, likes: &[Like]) {
        if self.half_likes == 0 {
            return;
        }
        let mut generations = self.generations();
        for like in likes {
            let key = ByMember(like.clone());
            // Two lanes may answer in either order; the newer like of the two is the one to keep.
            let known = generations.young.get(&key).or_else(|| generations.old.get(&key));
            if known.is_some_and(|durable| durable.0.membership().cmp_newness(&like.membership()).is_ge()) {
                continue;
            }
            let bytes = like.text_bytes() + ENTRY_BYTES;
            let Generations { young, young_bytes, old } = &mut *generations;
            *young_bytes += bytes;
            if let Some(replaced) = young.replace(key) {
                *young_bytes -= replaced.0.text_bytes() + ENTRY_BYTES;
            }
            if young.len() >= self.half_likes || *young_bytes >= self.half_bytes {
                std::mem::swap(young, old);
                young.clear();
                // A table keeps its room when it is emptied, and after many small entries that is more than a few large
                // ones account for.
                young.shrink_to(old.len());
                *young_bytes = 0;
            }
        }
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        // Forgetting is always safe, so a half-made change is too.
        self.generations.locked()
    }
}
