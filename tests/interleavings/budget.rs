//! Reserving, holding and releasing at once: never more than there is room for, and whoever waits is told.

use crate::buffer_sources::aggregate::Budget;
use crate::doubles::Double;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A payload's bytes.
const PAYLOAD: usize = 10;

/// The budget, with the bell that the worker's waiters listen to.
struct Scene {
    budget: Budget,
    max: usize,
    /// What was granted and not given back yet, counted late and forgotten early: never more than the truth. The checker
    /// does not see it.
    granted: AtomicUsize,
    bell: Bell,
}

/// Wakes all who listened before it rang.
#[derive(Default)]
struct Bell {
    rung: Mutex<usize>,
    ring: Condvar,
}

impl Bell {
    fn listen(&self) -> usize {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        if Double::TellsNobody.is_planted() {
            return;
        }
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.ring.notify_all();
    }

    fn wait(&self, since: usize) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while *rung == since {
            rung = self.ring.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Scene {
    fn new(max: usize, max_bytes: usize) -> Self {
        Self { budget: Budget::new(max, max_bytes), max, granted: AtomicUsize::new(0), bell: Bell::default() }
    }

    /// Reserves as the worker does: listens, looks, and waits when there is no room.
    fn reserve(&self, most: usize) -> usize {
        loop {
            let since = self.bell.listen();
            let got = self.try_reserve(most);
            if got > 0 {
                return got;
            }
            self.bell.wait(since);
        }
    }

    fn try_reserve(&self, most: usize) -> usize {
        let got = self.budget.reserve(most);
        let granted = self.granted.fetch_add(got, Ordering::Relaxed) + got;
        assert!(granted <= self.max, "{granted} deliveries were granted, and there is room for {}", self.max);
        got
    }

    /// What came of a reservation is held before it is given back.
    fn hold(&self, reserved: usize, came: usize) {
        (0..came).for_each(|_| self.budget.hold(PAYLOAD));
        self.granted.fetch_sub(reserved - came, Ordering::Relaxed);
        self.budget.unreserve(reserved);
        self.bell.ring();
    }

    fn release(&self, held: usize) {
        for _ in 0..held {
            self.granted.fetch_sub(1, Ordering::Relaxed);
            if self.budget.release(PAYLOAD) {
                self.bell.ring();
            }
        }
    }

    /// Nothing is held, and all of the room is there again.
    fn end(&self) {
        assert_eq!((self.budget.deliveries(), self.budget.bytes()), (0, 0));
        assert_eq!(self.budget.room(), self.max, "room was lost");
    }
}

/// One puller holds what it reserved and reserves again while another one looks.
pub(crate) fn two_pullers() {
    let scene = Scene::new(2, 1 << 20);
    let first = scene.try_reserve(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            scene.hold(first, 1);
            let again = scene.try_reserve(1);
            scene.hold(again, again);
            scene.release(1 + again);
        });
        let got = scene.try_reserve(2);
        scene.hold(got, got);
        scene.release(got);
    });
    scene.end();
}

/// Each waits until the other makes room.
pub(crate) fn pullers_who_wait_for_each_other() {
    let scene = Scene::new(1, 1 << 20);
    let pull = || {
        let got = scene.reserve(1);
        scene.hold(got, got);
        scene.release(got);
    };
    thread::scope(|scope| {
        scope.spawn(pull);
        pull();
    });
    scene.end();
}

/// Two lanes settle at once what filled the budget in both respects, and somebody waits.
pub(crate) fn a_waiter_while_two_lanes_settle() {
    let scene = Scene::new(2, 2 * PAYLOAD);
    let got = scene.try_reserve(2);
    scene.hold(got, got);
    thread::scope(|scope| {
        scope.spawn(|| scene.release(1));
        scope.spawn(|| scene.release(1));
        let got = scene.reserve(1);
        scene.hold(got, 0);
    });
    scene.end();
}

/// More of everything than can be tried in every order.
pub(crate) fn a_crowd() {
    let scene = Scene::new(3, 1 << 20);
    thread::scope(|scope| {
        for most in 1..=4 {
            let scene = &scene;
            scope.spawn(move || {
                for came in 0..3 {
                    let got = scene.reserve(most);
                    let came = got.min(came);
                    scene.hold(got, came);
                    scene.release(came);
                }
            });
        }
    });
    scene.end();
}
