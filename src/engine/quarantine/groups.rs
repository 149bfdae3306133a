//! The poison that is held: what is new, and groups that wait to be tried again, each with its own time. Pure.

use crate::common::backoff::Lasting;
use crate::engine::receipt::Receipt;
use crate::like::event::Poison;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A delivery and why it can never succeed.
pub(super) type Entry = (Receipt, Poison);

/// Parts of a group that fails while the store works.
const PARTS: usize = 8;

/// What an entry adds to a call beside its payload: names and types of its fields, and its reason.
const ENTRY_BYTES: usize = 1_024;

/// An entry that is refused alone so often, for so long, while the store takes other writes, is refused for good; as a like is.
const LONE_REFUSALS: u32 = 5;
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Entries that are kept with one call.
pub(super) struct Group {
    pub(super) poison: Vec<Entry>,
    /// When they are left to redelivery.
    pub(super) give_up: Instant,
    /// Failures in a row; they lengthen the wait.
    pub(super) failures: u32,
    /// Since when they fail, together or apart.
    failing_since: Option<Instant>,
    /// Refusals of it as a group of one.
    lone_refusals: Lasting,
}

impl Group {
    fn new(poison: Vec<Entry>, give_up: Instant) -> Self {
        Self { poison, give_up, failures: 0, failing_since: None, lone_refusals: Lasting::default() }
    }

    /// Notes a failure.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert(now);
    }

    /// Notes that it was refused alone, and answers whether it is refused for good.
    pub(super) fn refused_alone(&mut self, now: Instant) -> bool {
        self.lone_refusals.came(now);
        self.lone_refusals.is(LONE_REFUSALS, REFUSED_FOR)
    }

    /// Whether it fails alone: then it is not to hold the place of others.
    pub(super) fn is_alone(&self) -> bool {
        self.poison.len() == 1 && self.failures > 0
    }

    pub(super) fn divide(mut self) -> Vec<Self> {
        let size = self.poison.len().div_ceil(PARTS).max(1);
        let mut parts = Vec::with_capacity(PARTS);
        while !self.poison.is_empty() {
            let rest = self.poison.split_off(size.min(self.poison.len()));
            let part = Self::new(std::mem::replace(&mut self.poison, rest), self.give_up);
            parts.push(Self { failing_since: self.failing_since, ..part });
        }
        parts
    }
}

/// How much is kept with one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

/// What is held and not on its way to the store.
#[derive(Default)]
pub(super) struct Groups {
    fresh: VecDeque<Entry>,
    later: BTreeMap<(Instant, u64), Group>,
    next: u64,
    /// Entries in `later`, and those of them that fail alone.
    later_entries: usize,
    alone: usize,
}

impl Groups {
    pub(super) fn push(&mut self, entry: Entry) {
        self.fresh.push_back(entry);
    }

    /// Entries that were never tried.
    pub(super) fn fresh(&self) -> usize {
        self.fresh.len()
    }

    pub(super) fn entries(&self) -> usize {
        self.fresh.len() + self.later_entries
    }

    /// Entries that fail alone.
    pub(super) fn alone(&self) -> usize {
        self.alone
    }

    /// The oldest of what is new, as much as goes into one call.
    pub(super) fn take_fresh(&mut self, size: Size, give_up: Instant) -> Option<Group> {
        let (mut bytes, mut count) = (0, 0);
        for (receipt, _) in self.fresh.iter().take(size.entries) {
            bytes += receipt.bytes() + ENTRY_BYTES;
            if count > 0 && bytes > size.bytes {
                break;
            }
            count += 1;
        }
        (count > 0).then(|| Group::new(self.fresh.drain(..count).collect(), give_up))
    }

    pub(super) fn push_later(&mut self, group: Group, due: Instant) {
        self.later_entries += group.poison.len();
        self.alone += usize::from(group.is_alone());
        self.later.insert((due.min(group.give_up), self.next), group);
        self.next += 1;
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.keys().next().map(|(due, _)| *due)
    }

    /// The first group whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Group> {
        let entry = self.later.first_entry().filter(|entry| entry.key().0 <= now)?;
        let group = entry.remove();
        Some(self.taken(group))
    }

    fn taken(&mut self, group: Group) -> Group {
        self.later_entries -= group.poison.len();
        self.alone -= usize::from(group.is_alone());
        group
    }

    /// The entry that has failed alone for the longest, if it has failed since `since`.
    pub(super) fn take_alone(&mut self, since: Instant) -> Option<Group> {
        let alone = self.later.iter().filter(|(_, group)| group.is_alone());
        let (key, oldest) = alone.min_by_key(|(_, group)| group.failing_since)?;
        if oldest.failing_since? > since {
            return None;
        }
        let key = *key;
        let group = self.later.remove(&key)?;
        Some(self.taken(group))
    }

    /// The newest entry.
    pub(super) fn take_newest(&mut self) -> Option<Entry> {
        if let Some(entry) = self.fresh.pop_back() {
            return Some(entry);
        }
        let (due, mut group) = self.later.pop_last().map(|((due, _), group)| (due, group))?;
        group = self.taken(group);
        let entry = group.poison.pop();
        if !group.poison.is_empty() {
            self.push_later(group, due);
        }
        entry
    }
}
