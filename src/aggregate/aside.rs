//! Likes whose members other workers keep writing. They wait aside from the line, so that one toggling user is in nobody's
//! batch but those of the one lane that serves this place; while that lane is busy, further likes of them fold.

use super::{ByMember, Sealed};
use crate::batch::Batch;
use crate::event::Like;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a member stays aside after it was contended last. To learn it again costs a batch two refused commits; to keep
/// it costs its likes the company of a larger batch.
const KEPT_ASIDE: Duration = Duration::from_secs(60);

/// Members that may be aside at once. One more is parted from each of its batches, as it was at first.
const MAX_MEMBERS: usize = 1_000;

/// Members, each with the time until which it is taken to be contended.
pub(super) type Contended = HashMap<ByMember, Instant, FixedState>;

pub(super) struct Aside<R>(Mutex<State<R>>);

struct State<R> {
    /// Shared with sealers, which look at it while they hold another lock.
    contended: Arc<Contended>,
    /// Likes that were in the line and now wait here; they are still in the map.
    line: VecDeque<(Like, Instant)>,
    /// What lanes have parted from their batches, under keys of its own.
    parted: VecDeque<Sealed<R>>,
}

impl<R> Default for Aside<R> {
    fn default() -> Self {
        let (contended, line, parted) = (Arc::default(), VecDeque::new(), VecDeque::new());
        Self(Mutex::new(State { contended, line, parted }))
    }
}

impl<R> Aside<R> {
    fn state(&self) -> MutexGuard<'_, State<R>> {
        // Nothing that runs under the lock can panic half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something waits here.
    pub(super) fn waits(&self) -> bool {
        let state = self.state();
        !state.line.is_empty() || !state.parted.is_empty()
    }

    pub(super) fn contended(&self) -> Arc<Contended> {
        Arc::clone(&self.state().contended)
    }

    /// The members of `batch` are contended, `now`.
    pub(super) fn remember(&self, batch: &Batch, now: Instant) {
        let mut state = self.state();
        let contended = Arc::make_mut(&mut state.contended);
        for like in batch.likes() {
            let member = ByMember(like.clone());
            if contended.len() < MAX_MEMBERS || contended.contains_key(&member) {
                contended.insert(member, now + KEPT_ASIDE);
            }
        }
    }

    /// Members that nobody contends any more go back into everyone's company.
    pub(super) fn forget(&self, now: Instant) {
        let mut state = self.state();
        if state.contended.values().any(|until| *until <= now) {
            Arc::make_mut(&mut state.contended).retain(|_, until| *until > now);
        }
    }

    pub(super) fn part(&self, sealed: Sealed<R>) {
        self.state().parted.push_back(sealed);
    }

    pub(super) fn push(&self, likes: Vec<(Like, Instant)>) {
        if !likes.is_empty() {
            self.state().line.extend(likes);
        }
    }

    pub(super) fn take_parted(&self) -> Option<Sealed<R>> {
        self.state().parted.pop_front()
    }

    /// The front of the line here, as many likes as `fitting` says.
    pub(super) fn take_line(&self, fitting: impl FnOnce(&VecDeque<(Like, Instant)>) -> usize) -> Vec<(Like, Instant)> {
        let mut state = self.state();
        let count = fitting(&state.line);
        state.line.drain(..count).collect()
    }
}
