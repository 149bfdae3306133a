//! Likes of members that make trouble: other workers keep writing them, or what is stored for them cannot be written now.
//! They wait aside from the line, so that one toggling user is in nobody's batch but those that are made of this place;
//! while one of a member's likes is under way, further likes of it fold.

use super::ByMember;
use crate::common::sync::{Locked, Mutex, MutexGuard};
use crate::like::batch::Batch;
use crate::like::event::Like;
use foldhash::fast::FixedState;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a member stays aside after it made trouble last. To learn it again costs a batch some failed commits; to keep
/// it costs its likes the company of a larger batch.
const KEPT_ASIDE: Duration = Duration::from_secs(60);

/// Members that may be aside at once. One more is parted from each of its batches, as it was at first.
const MAX_MEMBERS: usize = 1_000;

#[derive(Default)]
pub(super) struct Contended(Mutex<State>);

#[derive(Default)]
struct State {
    /// Members, each with the time until which it is taken to make trouble.
    members: HashMap<ByMember, Instant, FixedState>,
    /// Likes that were in the line and now wait here; they are still in the map.
    line: VecDeque<(Like, Instant)>,
    /// Members of which likes are under way aside, and in how many batches: what waits here of them waits on.
    under_way: HashMap<ByMember, usize, FixedState>,
}

impl Contended {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can panic half way through a change.
        self.0.locked()
    }

    /// Whether something waits here.
    pub(super) fn waits(&self) -> bool {
        !self.state().line.is_empty()
    }

    /// Puts the likes here whose members make trouble or are under way here, and answers with the others.
    pub(super) fn sift(&self, likes: Vec<(Like, Instant)>) -> Vec<(Like, Instant)> {
        let state = &mut *self.state();
        if state.members.is_empty() && state.under_way.is_empty() {
            return likes;
        }
        let (contended, others): (Vec<_>, _) = likes.into_iter().partition(|(like, _)| {
            let member = ByMember(like.clone());
            state.members.contains_key(&member) || state.under_way.contains_key(&member)
        });
        state.line.extend(contended);
        others
    }

    /// The members of `batch` make trouble, `now`.
    pub(super) fn remember(&self, batch: &Batch, now: Instant) {
        let members = &mut self.state().members;
        for like in batch.likes() {
            let member = ByMember(like.clone());
            if members.len() < MAX_MEMBERS || members.contains_key(&member) {
                members.insert(member, now + KEPT_ASIDE);
            }
        }
    }

    /// Members that make no trouble any more go back into everyone's company.
    pub(super) fn forget(&self, now: Instant) {
        self.state().members.retain(|_, until| *until > now);
    }

    pub(super) fn begin(&self, likes: &[Like]) {
        let mut state = self.state();
        for like in likes {
            *state.under_way.entry(ByMember(like.clone())).or_default() += 1;
        }
    }

    pub(super) fn end(&self, likes: &[Like]) {
        let mut state = self.state();
        for like in likes {
            if let Entry::Occupied(mut batches) = state.under_way.entry(ByMember(like.clone())) {
                *batches.get_mut() -= 1;
                if *batches.get() == 0 {
                    batches.remove();
                }
            }
        }
    }

    /// The oldest likes here of members that are not under way, as many as `fitting` says. They are under way from now on.
    pub(super) fn take_line(&self, fitting: impl FnOnce(&VecDeque<(Like, Instant)>) -> usize) -> Vec<(Like, Instant)> {
        let state = &mut *self.state();
        if state.line.is_empty() {
            return Vec::new();
        }
        let is_free = |(like, _): &(Like, Instant)| !state.under_way.contains_key(&ByMember(like.clone()));
        let (mut free, mut rest): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut state.line).into_iter().partition(is_free);
        let taken: Vec<_> = free.drain(..fitting(&free)).collect();
        free.append(&mut rest);
        state.line = free;
        for (like, _) in &taken {
            *state.under_way.entry(ByMember(like.clone())).or_default() += 1;
        }
        taken
    }
}
