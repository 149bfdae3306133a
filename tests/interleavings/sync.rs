//! The checker's own locks, counters and map, under the names of `src/common/sync.rs`. Each of their steps is a place where
//! any other thread may run. The map has the parts of the real one, each under one lock that an entry holds.

use crate::mutants::Mutant;
use shuttle::sync as checked;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
pub(crate) use std::sync::atomic::Ordering;

shuttle::thread_local! {
    static HOLDS_A_LOCK: Cell<bool> = Cell::new(false);
}

/// The name under which the sources import locking; the lock below has it built in.
pub(crate) trait Locked {}

/// A lock that no thread takes while it holds another one of the buffer.
#[derive(Default)]
pub(crate) struct Mutex<T>(checked::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(checked::Mutex::new(value))
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, T> {
        // Asked before it waits, so that an order in which nobody else holds the other lock shows it too.
        assert!(!HOLDS_A_LOCK.with(Cell::get), "two locks of the buffer are held at once");
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        HOLDS_A_LOCK.with(|holds| holds.set(true));
        MutexGuard(guard)
    }
}

pub(crate) struct MutexGuard<'a, T>(checked::MutexGuard<'a, T>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // A thread that ends in a panic may have nothing left to say it to.
        let _ = HOLDS_A_LOCK.try_with(|holds| holds.set(false));
    }
}

/// A counter.
#[derive(Debug)]
pub(crate) struct AtomicUsize(checked::atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) fn new(value: usize) -> Self {
        Self(checked::atomic::AtomicUsize::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.0.load(order)
    }

    pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_sub(value, order)
    }

    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        change: impl FnMut(usize) -> Option<usize>,
    ) -> Result<usize, usize> {
        self.0.fetch_update(set, fetch, change)
    }
}

/// One part of the map.
type Part<K, V, S> = HashMap<K, V, S>;

/// A map in parts.
pub(crate) struct Map<K, V, S> {
    parts: Vec<Mutex<Part<K, V, S>>>,
    hasher: S,
}

impl<K: Hash + Eq + Clone, V: Default, S: BuildHasher + Clone> Map<K, V, S> {
    pub(crate) fn with_capacity_and_hasher_and_shard_amount(_: usize, hasher: S, parts: usize) -> Self {
        // Two are enough for two keys to share a part or not, and each one more is made anew in every order.
        Self { parts: (0..parts.min(2)).map(|_| Mutex::new(HashMap::with_hasher(hasher.clone()))).collect(), hasher }
    }

    fn part(&self, key: &K) -> &Mutex<Part<K, V, S>> {
        &self.parts[self.hasher.hash_one(key) as usize % self.parts.len()]
    }

    pub(crate) fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        let part = self.part(&key);
        let guard = locked(part);
        if guard.contains_key(&key) {
            return Entry::Occupied(Occupied { guard, key });
        }
        let guard = (!Mutant::InsertsInTwoSteps.is_planted()).then_some(guard);
        Entry::Vacant(Vacant { part, guard, key })
    }

    pub(crate) fn remove(&self, key: &K) -> Option<(K, V)> {
        if Mutant::RemovesInTwoSteps.is_planted() {
            let value = std::mem::take(locked(self.part(key)).get_mut(key)?);
            let (key, _) = locked(self.part(key)).remove_entry(key)?;
            return Some((key, value));
        }
        locked(self.part(key)).remove_entry(key)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.locked()
}

/// A place in the map, whose part is locked as long as it lives.
pub(crate) enum Entry<'a, K, V, S> {
    Occupied(Occupied<'a, K, V, S>),
    Vacant(Vacant<'a, K, V, S>),
}

pub(crate) struct Vacant<'a, K, V, S> {
    part: &'a Mutex<Part<K, V, S>>,
    guard: Option<MutexGuard<'a, Part<K, V, S>>>,
    key: K,
}

impl<'a, K: Hash + Eq, V, S: BuildHasher> Vacant<'a, K, V, S> {
    /// Answers with what keeps the part locked.
    pub(crate) fn insert(self, value: V) -> MutexGuard<'a, Part<K, V, S>> {
        let mut guard = self.guard.unwrap_or_else(|| locked(self.part));
        guard.insert(self.key, value);
        guard
    }
}

pub(crate) struct Occupied<'a, K, V, S> {
    guard: MutexGuard<'a, Part<K, V, S>>,
    /// As it was looked for; what is stored under it may differ where equality does not look.
    key: K,
}

impl<K: Hash + Eq + Clone, V: Default, S: BuildHasher> Occupied<'_, K, V, S> {
    pub(crate) fn key(&self) -> &K {
        self.guard.get_key_value(&self.key).map_or(&self.key, |(stored, _)| stored)
    }

    pub(crate) fn get_mut(&mut self) -> &mut V {
        self.guard.entry(self.key.clone()).or_default()
    }

    /// Replaces the stored key too.
    pub(crate) fn replace_entry(mut self, value: V) {
        self.guard.remove(&self.key);
        self.guard.insert(self.key, value);
    }
}
