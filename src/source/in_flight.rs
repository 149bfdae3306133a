//! The budget of a worker, whoever waits for room in it, and shares of it that give themselves back when they are dropped.

use crate::common::budget::Budget;
use crate::source::settled::Settled;
use crate::telemetry::Metric;
use std::sync::Arc;
use tokio::sync::Notify;

/// The budget, and whoever waits for room in it. Waiters are woken one at a time, in their order; one who leaves room wakes
/// the next.
#[derive(Debug)]
pub struct InFlight {
    budget: Budget,
    /// For one delivery or more.
    room: Notify,
    /// For bytes that are no delivery. Apart, because there may be room for bytes and for no delivery, and then the wrong
    /// waiter would be woken.
    room_for_bytes: Notify,
    settled: Settled,
}

impl InFlight {
    /// Nothing held yet. What was settled lately is remembered in bytes of the budget.
    #[must_use]
    pub fn new(budget: Budget) -> Arc<Self> {
        let settled = Settled::new(budget.max_deliveries(), budget.max_bytes());
        let budget = budget.without(settled.bytes());
        Arc::new(Self { budget, room: Notify::new(), room_for_bytes: Notify::new(), settled })
    }

    /// The messages that were settled lately.
    #[must_use]
    pub fn settled(&self) -> &Settled {
        &self.settled
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Shows what is held now.
    pub fn show(&self) {
        Metric::HeldDeliveries.set(self.budget.deliveries());
        Metric::HeldBytes.set(self.budget.bytes());
    }

    /// Waits until there is room for at least one delivery, and reserves it for `most` at most.
    pub async fn reserve(self: &Arc<Self>, most: usize) -> Reserved {
        let mut waited = false;
        loop {
            let deliveries = self.budget.reserve(most);
            if deliveries > 0 {
                self.wake(waited && self.budget.room() > 0, false);
                return Reserved { held: Arc::clone(self), deliveries };
            }
            // A wake between the look and the wait is kept for the next who waits.
            self.room.notified().await;
            waited = true;
        }
    }

    /// Waits until there is room, and takes `bytes` that are no delivery.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        let mut taken = HeldBytes::none(self);
        taken.grow(bytes).await;
        taken
    }

    /// Wakes one who waits for each kind of room that there is.
    fn wake(&self, for_deliveries: bool, for_bytes: bool) {
        if for_deliveries {
            self.room.notify_one();
        }
        if for_bytes {
            self.room_for_bytes.notify_one();
        }
    }
}

/// Room for deliveries that are asked for. To be dropped when what came is held.
#[derive(Debug)]
pub struct Reserved {
    held: Arc<InFlight>,
    deliveries: usize,
}

impl Reserved {
    /// For how many.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.deliveries
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.held.budget.unreserve(self.deliveries);
        self.held.wake(self.held.budget.room() > 0, false);
    }
}

/// The room of one delivery, from when it is held until it is settled or dropped.
#[derive(Debug)]
pub struct Share {
    held: Arc<InFlight>,
    bytes: usize,
}

impl Share {
    /// Holds a delivery of so many bytes.
    #[must_use]
    pub fn new(held: &Arc<InFlight>, bytes: usize) -> Self {
        held.budget.hold(bytes);
        Self { held: Arc::clone(held), bytes }
    }

    /// What it is a share of.
    #[must_use]
    pub fn held(&self) -> &InFlight {
        &self.held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let made = self.held.budget.release(self.bytes);
        self.held.wake(made.for_deliveries, made.for_bytes);
    }
}

/// Bytes that are no delivery: a body that is being read, a page that is being answered.
#[derive(Debug)]
pub struct HeldBytes {
    held: Arc<InFlight>,
    bytes: usize,
}

impl HeldBytes {
    /// None yet.
    #[must_use]
    pub fn none(held: &Arc<InFlight>) -> Self {
        Self { held: Arc::clone(held), bytes: 0 }
    }

    /// How many.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waits until there is room, and takes `more`.
    pub async fn grow(&mut self, more: usize) {
        let mut waited = false;
        while !self.held.budget.take_bytes(more) {
            self.held.room_for_bytes.notified().await;
            waited = true;
        }
        self.bytes += more;
        self.held.wake(false, waited && self.held.budget.has_bytes());
    }

    /// Gives back what is more than `bytes`, or counts what is less: that is there already, whether there is room or not.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes > before {
            self.held.budget.force_bytes(bytes - before);
        } else if bytes < before {
            let made = self.held.budget.give_bytes(before - bytes);
            self.held.wake(made.for_deliveries, made.for_bytes);
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests;
