//! One lock a document, granted in the order of asking.

use super::Name;
use crate::common::sync::Locked;
use foldhash::fast::FixedState;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The locked documents, each with those who wait for it. A document that is not here is free.
#[derive(Default)]
pub(super) struct Locks(Mutex<Waiting>);

type Waiting = HashMap<Name, VecDeque<oneshot::Sender<DocumentLock>>, FixedState>;

/// A lock. Dropping it passes it on.
pub(super) struct DocumentLock {
    locks: Option<Arc<Locks>>,
    document: Name,
}

impl Locks {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.locked()
    }

    /// Waits until the document is free; `None` when it is not before the deadline.
    pub(super) async fn lock(self: &Arc<Self>, document: Name, deadline: Instant) -> Option<DocumentLock> {
        let granted = match self.waiting().entry(document) {
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                None
            }
            Entry::Occupied(mut taken) => {
                let (grant, granted) = oneshot::channel();
                taken.get_mut().push_back(grant);
                Some(granted)
            }
        };
        match granted {
            None => Some(DocumentLock { locks: Some(Arc::clone(self)), document }),
            // A lock that is granted to somebody who has just given up lies in the channel and is dropped with it.
            Some(granted) => tokio::time::timeout_at(deadline, granted).await.ok()?.ok(),
        }
    }

    fn pass_on(self: Arc<Self>, document: Name) {
        loop {
            let next = {
                let mut waiting = self.waiting();
                let next = waiting.get_mut(&document).and_then(VecDeque::pop_front);
                if next.is_none() {
                    waiting.remove(&document);
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(DocumentLock { locks: Some(Arc::clone(&self)), document }) {
                Ok(()) => return,
                // Who waited has given up; the lock is still ours to pass on.
                Err(mut unwanted) => unwanted.locks = None,
            }
        }
    }
}

impl Drop for DocumentLock {
    fn drop(&mut self) {
        if let Some(locks) = self.locks.take() {
            locks.pass_on(self.document);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn lock(locks: &Arc<Locks>, document: Name, seconds: u64) -> Option<DocumentLock> {
        locks.lock(document, Instant::now() + Duration::from_secs(seconds)).await
    }

    #[tokio::test(start_paused = true)]
    async fn locks_are_granted_in_the_order_of_asking() {
        let locks = Arc::new(Locks::default());
        let order = Mutex::new(Vec::new());
        let first = lock(&locks, 7, 1).await;
        let ask = async |n: u32| {
            let held = lock(&locks, 7, 60).await.expect("granted");
            order.lock().expect("one thread").push(n);
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(held);
        };
        let release = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        };
        futures::join!(ask(1), ask(2), ask(3), release);
        assert_eq!(*order.lock().expect("one thread"), [1, 2, 3]);
        assert!(locks.waiting().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_is_passed_over_and_keeps_nothing() {
        let locks = Arc::new(Locks::default());
        let first = lock(&locks, 7, 1).await;
        let (gave_up, waited, ()) = futures::join!(lock(&locks, 7, 1), lock(&locks, 7, 60), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(first);
        });
        assert!(gave_up.is_none());
        assert!(waited.is_some());
        drop(waited);
        assert!(locks.waiting().is_empty());
    }
}
