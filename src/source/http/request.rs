//! One request and what becomes of its events.

use crate::common::sync::Locked;
use crate::like::event::Poison;
use crate::source::ack::{SettleMany, Settlement};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Poison events that an answer lists, the first ones; all of them are in the quarantine. A reason has half a KiB at most.
const MAX_LISTED: usize = 100;

/// Shared by the request and the tokens of its events.
pub(super) struct Request {
    /// Events handed over.
    received: AtomicUsize,
    /// Events that are neither settled nor dropped, and one for the body as long as it is read.
    unsettled: AtomicUsize,
    dropped: AtomicUsize,
    poison: Mutex<Listed>,
    finished: Notify,
}

#[derive(Default)]
struct Listed {
    /// By line, and by arrival where several are on one.
    first: BTreeMap<(u32, u64), Poison>,
    total: u64,
}

/// The poison of a request whose events are all settled.
pub(super) struct Outcome {
    /// How many events it had.
    pub(super) received: usize,
    /// The first of the poison, with the lines.
    pub(super) first: Vec<(u32, Poison)>,
    /// How many of the events are poison.
    pub(super) total: u64,
}

impl Request {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            received: AtomicUsize::new(0),
            unsettled: AtomicUsize::new(1),
            dropped: AtomicUsize::new(0),
            poison: Mutex::default(),
            finished: Notify::new(),
        })
    }

    /// One more event, whose token is about to be made.
    pub(super) fn one_more(&self) {
        self.received.fetch_add(1, Ordering::AcqRel);
        self.unsettled.fetch_add(1, Ordering::AcqRel);
    }

    /// The body has ended: returns when each of its events is settled or dropped.
    pub(super) async fn finished(&self) {
        self.one_less();
        self.finished.notified().await;
    }

    fn one_less(&self) {
        if self.unsettled.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finished.notify_one();
        }
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        // A panic between two of its changes leaves a number that is one off, in an answer that nobody gets.
        self.poison.locked()
    }

    /// Events that were taken so far.
    pub(super) fn received(&self) -> usize {
        self.received.load(Ordering::Acquire)
    }

    /// What became of them, or `None` when some event must be sent again.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let all_settled = self.unsettled.load(Ordering::Acquire) == 0 && self.dropped.load(Ordering::Acquire) == 0;
        all_settled.then(|| {
            let listed = std::mem::take(&mut *self.listed());
            let first = listed.first.into_iter().map(|((line, _), poison)| (line, poison)).collect();
            Outcome { received: self.received(), first, total: listed.total }
        })
    }
}

impl SettleMany for Request {
    fn settled(&self, line: u32, how: &Settlement) {
        if let Settlement::Quarantined(poison) = how {
            let mut listed = self.listed();
            let key = (line, listed.total);
            listed.total += 1;
            if listed.first.len() < MAX_LISTED || listed.first.last_key_value().is_some_and(|(last, _)| key < *last) {
                listed.first.insert(key, poison.clone());
            }
            if listed.first.len() > MAX_LISTED {
                listed.first.pop_last();
            }
        }
        self.one_less();
    }

    fn dropped(&self, _: u32) {
        self.dropped.fetch_add(1, Ordering::AcqRel);
        self.one_less();
    }
}
