//! One worker from its start to its end: whether it is alive, whether it stands still, and what it holds.
//!
//! A crash is seen from outside: from one moment on nothing goes out of the worker and nothing comes in, and then its
//! future is dropped. A worker that stands still is the same until it goes on; what it did meanwhile by its own timers
//! goes out then.

use crate::seen::Kind;
use crate::world::{World, locked};
use hotcount::engine::pipeline::Config;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What a worker that stands still has in its socket.
pub(crate) enum Sent {
    Ack { token: u64, message: usize },
    Nack { token: u64, message: usize },
}

/// One incarnation of a worker.
pub(crate) struct Life {
    pub(crate) world: Arc<World>,
    pub(crate) slot: usize,
    pub(crate) number: u64,
    pub(crate) config: Config,
    dead: AtomicBool,
    still: AtomicBool,
    /// Whether it ever stood still: then it may be late with everything.
    stood_still: AtomicBool,
    asked_to_stop: AtomicBool,
    /// Calls until it crashes; 0 for never.
    fuse: AtomicU64,
    changed: Notify,
    unsent: Mutex<Vec<Sent>>,
    pub(crate) numbers: Mutex<Numbers>,
}

/// What a worker was handed and what became of it, as the queue saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) handed: u64,
    pub(crate) counted: u64,
    pub(crate) quarantined: u64,
    pub(crate) dropped: u64,
    pub(crate) held: u64,
    pub(crate) held_bytes: u64,
    /// The largest payload it was handed.
    pub(crate) largest: u64,
    /// Commits that wrote, whose answer it has.
    pub(crate) commits: u64,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}.{}", self.slot, self.number)
    }
}

impl Life {
    pub(crate) fn new(world: &Arc<World>, slot: usize, number: u64, config: Config) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            slot,
            number,
            config,
            dead: AtomicBool::new(false),
            still: AtomicBool::new(false),
            stood_still: AtomicBool::new(false),
            asked_to_stop: AtomicBool::new(false),
            fuse: AtomicU64::new(0),
            changed: Notify::new(),
            unsent: Mutex::default(),
            numbers: Mutex::default(),
        })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn stood_still(&self) -> bool {
        self.stood_still.load(Ordering::Relaxed)
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Relaxed)
    }

    pub(crate) fn numbers(&self) -> Numbers {
        *locked(&self.numbers)
    }

    /// It stops existing, at this very instruction.
    pub(crate) fn die(&self) {
        if !self.dead.swap(true, Ordering::Relaxed) {
            self.world.say(format_args!("{self} crashes, holding {}", self.numbers().held));
            self.changed.notify_waiters();
        }
    }

    /// It dies at its `calls`th call from now on.
    pub(crate) fn light_fuse(&self, calls: u64) {
        self.fuse.store(calls, Ordering::Relaxed);
    }

    pub(crate) fn ask_to_stop(&self) {
        if !self.asked_to_stop.swap(true, Ordering::Relaxed) {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn stand_still(&self) {
        self.world.say(format_args!("{self} stands still"));
        self.still.store(true, Ordering::Relaxed);
        self.stood_still.store(true, Ordering::Relaxed);
    }

    /// Goes on, and hands over what was to be sent meanwhile.
    pub(crate) fn go_on(&self) -> Vec<Sent> {
        if self.still.swap(false, Ordering::Relaxed) {
            self.world.say(format_args!("{self} goes on"));
            self.changed.notify_waiters();
        }
        std::mem::take(&mut *locked(&self.unsent))
    }

    /// Something goes out at once. Answers whether it arrives; a dead worker sends nothing, and what a worker that stands
    /// still sends arrives later.
    pub(crate) fn sends(&self, what: Sent) -> Option<Sent> {
        self.burn();
        if self.is_dead() {
            return None;
        }
        if self.still.load(Ordering::Relaxed) {
            locked(&self.unsent).push(what);
            return None;
        }
        Some(what)
    }

    /// A call goes out, or its answer comes in: never for the dead, and later for who stands still.
    pub(crate) async fn pass(&self) {
        self.burn();
        loop {
            let changed = self.changed.notified();
            if self.is_dead() {
                return std::future::pending().await;
            }
            if !self.still.load(Ordering::Relaxed) {
                return;
            }
            changed.await;
        }
    }

    fn burn(&self) {
        let left = self.fuse.load(Ordering::Relaxed);
        if left > 0 && !self.world.is_calm() {
            self.fuse.store(left - 1, Ordering::Relaxed);
            if left == 1 && !self.is_dead() {
                self.world.note(Kind::CrashAtCall);
                self.die();
            }
        }
    }

    pub(crate) async fn death(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_dead() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) async fn request_to_stop(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_asked_to_stop() {
                return;
            }
            changed.await;
        }
    }
}
