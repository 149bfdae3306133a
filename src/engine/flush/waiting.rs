//! What waits aside to be tried again, each part with its own time. A lane that fails with a part puts it here and goes on;
//! the lanes aside take one when its time has come, try it once, and put it back. So a part that fails for an hour costs an
//! attempt now and then, and holds nobody.

use super::attempt::Flight;
use super::part::{Part, Purpose};
use crate::common::sync::Locked;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::Notify;

/// Tasks that serve what waits aside. Idle ones cost nothing; each that is busy is one more commit at once.
pub const ASIDE_LANES: usize = 16;

/// How many of them may be busy with parts that fail alone again and again: an attempt at a locked document takes as long
/// as the store waits for the lock, 20 s in Firestore.
const STUCK_LANES: usize = 4;

/// How many of them may be busy with attempts that lanes did not wait for.
const FLIGHT_LANES: usize = 8;

#[derive(Default)]
struct State {
    /// By the time when they are due, then in the order of coming.
    fresh: BTreeMap<(Instant, u64), Part>,
    /// The same of parts that fail alone again and again.
    stuck: BTreeMap<(Instant, u64), Part>,
    flights: VecDeque<Flight>,
    next: u64,
    busy_with_stuck: usize,
    /// Attempts that were handed over and have not ended.
    flying: usize,
    /// Deliveries of parts that only wait to be left.
    leaving: usize,
    /// Nothing will be put here but what comes out of here.
    draining: bool,
}

/// The parts, shared by lanes and the lanes aside.
#[derive(Default)]
pub struct Waiting {
    state: Mutex<State>,
    changed: Arc<Notify>,
    /// Lanes that there are.
    lanes: AtomicUsize,
}

/// What a lane aside is to do.
pub(crate) enum Errand {
    /// Try a part.
    Try(Part, Option<Seat>),
    /// See an attempt through.
    See(Flight, Seat),
}

/// One of the lanes aside that such work may keep busy, given back when it is dropped.
pub(crate) struct Seat {
    waiting: Arc<Waiting>,
    of_a_flight: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.waiting.state();
        match self.of_a_flight {
            true => state.flying -= 1,
            false => state.busy_with_stuck -= 1,
        }
        drop(state);
        self.waiting.changed.notify_waiters();
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is whole.
        self.state.locked()
    }

    /// There is one more lane.
    pub(super) fn lane_begins(&self) {
        self.lanes.fetch_add(1, Ordering::AcqRel);
    }

    /// A lane is gone, also when a worker is dropped in the middle. What is here names the worker's parts, and they name this:
    /// after the last lane nobody would ever take it out, nor drop its deliveries.
    pub(super) fn lane_ends(&self) {
        if self.lanes.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.clear();
        }
    }

    /// Notifies when something may be there to do.
    pub(crate) fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    /// Keeps a part until `due`.
    pub(super) fn push(&self, part: Part, due: Instant) {
        let mut state = self.state();
        let key = (due, state.next);
        state.next += 1;
        if part.state.purpose == Purpose::Leave {
            state.leaving += part.sealed.deliveries();
        }
        match part.state.is_stuck(part.likes()) {
            true => state.stuck.insert(key, part),
            false => state.fresh.insert(key, part),
        };
        drop(state);
        self.changed.notify_waiters();
    }

    /// Deliveries that only wait to be left to redelivery.
    pub(super) fn leaving(&self) -> usize {
        self.state().leaving
    }

    /// Hands an attempt over that takes long, when a lane aside may be busy with it.
    ///
    /// # Errors
    /// The attempt, when too many were handed over.
    pub(super) fn hand_over(&self, flight: Flight) -> Result<(), Flight> {
        let mut state = self.state();
        if state.flying >= FLIGHT_LANES {
            return Err(flight);
        }
        state.flying += 1;
        state.flights.push_back(flight);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// The next errand whose time has come; at the end of a drain's time everything is due.
    pub(crate) fn take(self: &Arc<Self>, now: Instant, give_up: Option<Instant>) -> Option<Errand> {
        let mut state = self.state();
        if let Some(flight) = state.flights.pop_front() {
            return Some(Errand::See(flight, Seat { waiting: Arc::clone(self), of_a_flight: true }));
        }
        let over = give_up.is_some_and(|give_up| give_up <= now);
        let leaves = state.draining;
        let is_due = |(key, part): (&(Instant, u64), &Part)| {
            let due = over || key.0 <= now || leaves && part.state.purpose == Purpose::Leave;
            due.then_some(*key)
        };
        // While draining, what only waits to be left is found among the others; they are few.
        let many = if leaves { usize::MAX } else { 1 };
        if let Some(key) = state.fresh.iter().take(many).find_map(is_due) {
            let part = state.fresh.remove(&key)?;
            if part.state.purpose == Purpose::Leave {
                state.leaving -= part.sealed.deliveries();
            }
            return Some(Errand::Try(part, None));
        }
        if state.busy_with_stuck < STUCK_LANES
            && let Some(key) = state.stuck.iter().next().and_then(is_due)
        {
            let part = state.stuck.remove(&key)?;
            state.busy_with_stuck += 1;
            return Some(Errand::Try(part, Some(Seat { waiting: Arc::clone(self), of_a_flight: false })));
        }
        None
    }

    /// When the next part is due that can be taken then.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let state = self.state();
        let fresh = state.fresh.keys().next();
        let stuck = state.stuck.keys().next().filter(|_| state.busy_with_stuck < STUCK_LANES);
        fresh.into_iter().chain(stuck).map(|(due, _)| *due).min()
    }

    /// Whether nothing is here.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.fresh.is_empty() && state.stuck.is_empty() && state.flights.is_empty()
    }

    /// Nothing more will come from the lanes: what only waits to be left is left at once.
    pub(crate) fn drain(&self) {
        self.state().draining = true;
        self.changed.notify_waiters();
    }

    /// Drops everything, so that it is delivered again.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        let all =
            (std::mem::take(&mut state.fresh), std::mem::take(&mut state.stuck), std::mem::take(&mut state.flights));
        drop(state);
        drop(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_when_the_last_lane_is_dropped_is_dropped_with_it() {
        let (waiting, held) = (Waiting::default(), Arc::new(()));
        let of_the_worker = Arc::clone(&held);
        waiting.lane_begins();
        waiting.lane_begins();
        let flight: Flight = Box::pin(async move {
            let _delivery = of_the_worker;
            None
        });
        assert!(waiting.hand_over(flight).is_ok());
        waiting.lane_ends();
        assert_eq!(Arc::strong_count(&held), 2, "another lane may take it");
        waiting.lane_ends();
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
