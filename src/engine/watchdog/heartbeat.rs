//! What a task says of itself.

use crate::common::sync::Locked;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a task is doing now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Doing {
    /// It waits for work, and may do so for ever.
    #[default]
    Idle,
    /// It takes a step that must end, such as a call of the store.
    Working(&'static str),
    /// It would pull, and everything that may be held is held.
    WaitsForRoom,
    /// Its stream failed and has brought nothing since.
    Down {
        /// Whether the stream was opened again.
        open: bool,
        /// Why it failed.
        why: String,
    },
}

/// A task's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// One of the concurrent commits.
    Lane(usize),
    /// One of those that serve what waits aside.
    ContendedLane(usize),
    /// One of the source's streams.
    Stream(usize),
    /// What keeps poison.
    Quarantine,
}

impl Name {
    pub(super) fn is_lane(self) -> bool {
        matches!(self, Self::Lane(_))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lane(number) => write!(f, "lane {number}"),
            Self::ContendedLane(number) => write!(f, "contended lane {number}"),
            Self::Stream(number) => write!(f, "stream {number}"),
            Self::Quarantine => f.write_str("the quarantine"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) doing: Doing,
    /// Counts what it did.
    pub(super) step: u64,
}

/// Written by one task, read by the watchdog.
#[derive(Debug)]
pub struct Heartbeat {
    name: Name,
    state: Mutex<State>,
}

impl Heartbeat {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is whole.
        self.state.locked()
    }

    fn set(&self, doing: Doing) {
        let mut state = self.state();
        state.doing = doing;
        state.step += 1;
    }

    /// It waits for work.
    pub fn idle(&self) {
        self.set(Doing::Idle);
    }

    /// It begins a step that must end: `waits for the store`.
    pub fn working(&self, what: &'static str) {
        self.set(Doing::Working(what));
    }

    /// It would pull, and there is no room.
    pub fn waits_for_room(&self) {
        self.set(Doing::WaitsForRoom);
    }

    /// Its stream failed.
    pub fn is_down(&self, why: String) {
        self.set(Doing::Down { open: false, why });
    }

    /// Its stream is open, which after a failure proves little: a client may open it only when it is pulled.
    pub fn is_open(&self) {
        if let Doing::Down { open, .. } = &mut self.state().doing {
            *open = true;
            return;
        }
        self.idle();
    }
}

/// The heartbeats of all tasks of one worker.
#[derive(Debug, Default)]
pub struct Heartbeats(Mutex<Vec<Arc<Heartbeat>>>);

impl Heartbeats {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Heartbeat>>> {
        self.0.locked()
    }

    /// A heartbeat for one more task.
    pub fn add(&self, name: Name) -> Arc<Heartbeat> {
        let heartbeat = Arc::new(Heartbeat { name, state: Mutex::default() });
        self.all().push(Arc::clone(&heartbeat));
        heartbeat
    }

    pub(super) fn states(&self) -> Vec<(Name, State)> {
        self.all().iter().map(|heartbeat| (heartbeat.name, heartbeat.state().clone())).collect()
    }

    /// Why no stream at all is open, when that is so.
    #[must_use]
    pub fn all_streams_down(&self) -> Option<String> {
        let mut why = None;
        for heartbeat in self.all().iter().filter(|heartbeat| matches!(heartbeat.name, Name::Stream(_))) {
            match &heartbeat.state().doing {
                Doing::Down { open: false, why: this } => why = Some(this.clone()),
                _ => return None,
            }
        }
        why
    }
}
