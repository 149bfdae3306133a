//! Reserving, holding and releasing at once: never more than there is room for, and whoever waits is told.

use crate::buffer_sources::common::budget::{Budget, MadeRoom};
use crate::mutants::Mutant;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A payload's bytes.
const PAYLOAD: usize = 10;

/// The budget, with the bells that the worker's waiters listen to.
struct Scene {
    budget: Budget,
    max: usize,
    /// What was granted and not given back yet, counted late and forgotten early: never more than the truth. The checker
    /// does not see it.
    granted: AtomicUsize,
    bell: Bell,
    bell_for_bytes: Bell,
}

/// Wakes one who waits, or the next who will: as the worker's does.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    fn ring(&self, is_due: bool) {
        if !is_due || Mutant::TellsNobody.is_planted() {
            return;
        }
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ring.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !std::mem::take(&mut *rung) {
            rung = self.ring.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Scene {
    fn new(max: usize, max_bytes: usize) -> Self {
        Self {
            budget: Budget::new(max, max_bytes),
            max,
            granted: AtomicUsize::new(0),
            bell: Bell::default(),
            bell_for_bytes: Bell::default(),
        }
    }

    /// Reserves as the worker does: looks, waits when there is no room, and wakes the next where it leaves some.
    fn reserve(&self, most: usize) -> usize {
        let mut waited = false;
        loop {
            let got = self.try_reserve(most);
            if got > 0 {
                self.bell.ring(waited && self.budget.room() > 0);
                return got;
            }
            self.bell.wait();
            waited = true;
        }
    }

    fn try_reserve(&self, most: usize) -> usize {
        let got = self.budget.reserve(most);
        let granted = self.granted.fetch_add(got, Ordering::Relaxed) + got;
        assert!(granted <= self.max, "{granted} deliveries were granted, and there is room for {}", self.max);
        got
    }

    /// Takes bytes as the worker does.
    fn take(&self, bytes: usize) {
        let mut waited = false;
        while !self.budget.take_bytes(bytes) {
            self.bell_for_bytes.wait();
            waited = true;
        }
        self.bell_for_bytes.ring(waited && self.budget.has_bytes());
    }

    fn give(&self, bytes: usize) {
        self.tell(self.budget.give_bytes(bytes));
    }

    fn tell(&self, made: MadeRoom) {
        self.bell.ring(made.for_deliveries);
        self.bell_for_bytes.ring(made.for_bytes);
    }

    /// What came of a reservation is held before it is given back.
    fn hold(&self, reserved: usize, came: usize) {
        (0..came).for_each(|_| self.budget.hold(PAYLOAD));
        self.granted.fetch_sub(reserved - came, Ordering::Relaxed);
        self.budget.unreserve(reserved);
        self.bell.ring(self.budget.room() > 0);
    }

    fn release(&self, held: usize) {
        for _ in 0..held {
            self.granted.fetch_sub(1, Ordering::Relaxed);
            self.tell(self.budget.release(PAYLOAD));
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

/// A page and a body fill the bytes while the only delivery that may be held is there, and more of each wait.
pub(crate) fn bytes_beside_deliveries() {
    let scene = Scene::new(1, 600);
    let got = scene.try_reserve(1);
    scene.hold(got, got);
    scene.take(100);
    thread::scope(|scope| {
        scope.spawn(|| {
            let got = scene.reserve(1);
            scene.hold(got, got);
            scene.release(got);
        });
        scope.spawn(|| {
            scene.take(60);
            scene.give(60);
        });
        scope.spawn(|| scene.give(100));
        scene.take(30);
        scene.give(30);
        scene.release(1);
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
