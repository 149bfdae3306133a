//! Ack tokens: settle one, or drop it and the delivery comes back.
//!
//! A source makes the token and it travels with its delivery. Settling is the last step of a flush, after the effect
//! is durable; nothing else acknowledges. A token that is lost anywhere (an early return, a panic, an aborted task) is
//! dropped, and a dropped token means redelivery, never loss.

use crate::like::event::Poison;
use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

/// Why a delivery is finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Its effect is durable: it was applied, folded, or found to be a duplicate or stale.
    Counted,
    /// It can never succeed and is kept in the quarantine, for this reason.
    Quarantined(Poison),
}

/// A settled delivery whose acknowledgement the broker did not confirm. It comes back and changes no count.
#[derive(Debug, thiserror::Error)]
#[error("the broker did not confirm an acknowledgement: {0}")]
pub struct AckError(pub String);

/// The broker's answer to an acknowledgement, where it gives one. Awaited before shutdown ends.
pub type Confirmation = BoxFuture<'static, Result<(), AckError>>;

/// A token for one delivery. Dropping it without a call to `settle` must make the source deliver again.
pub trait Settle: Send + Sync {
    /// Acknowledges the delivery.
    fn settle(self: Box<Self>, how: &Settlement) -> Option<Confirmation>;
}

/// A token shared by many deliveries of one origin (a request, a file), which tell themselves apart by an index.
pub trait SettleMany: Send + Sync {
    /// Delivery `index` is settled.
    fn settled(&self, index: u32, how: &Settlement);
    /// Delivery `index` was dropped and must be delivered again.
    fn dropped(&self, index: u32);
}

enum Token {
    One(Box<dyn Settle>),
    OfMany(Arc<dyn SettleMany>, u32),
    Spent,
}

/// The right to acknowledge one delivery, once.
pub struct Ack(Token);

impl Ack {
    /// A token of its own.
    #[must_use]
    pub fn one(token: Box<dyn Settle>) -> Self {
        Self(Token::One(token))
    }

    /// Number `index` of a shared token.
    #[must_use]
    pub fn of_many(token: Arc<dyn SettleMany>, index: u32) -> Self {
        Self(Token::OfMany(token, index))
    }

    /// Acknowledges. Call it only when the effect of the delivery is durable.
    pub fn settle(mut self, how: &Settlement) -> Option<Confirmation> {
        match std::mem::replace(&mut self.0, Token::Spent) {
            Token::One(token) => token.settle(how),
            Token::OfMany(token, index) => {
                token.settled(index, how);
                None
            }
            Token::Spent => None,
        }
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        if let Token::OfMany(token, index) = &self.0 {
            token.dropped(*index);
        }
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Token::One(_) => "Ack",
            Token::OfMany(..) => "Ack (of many)",
            Token::Spent => "Ack (spent)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Tally {
        settled: AtomicU32,
        dropped: AtomicU32,
    }

    impl SettleMany for Tally {
        fn settled(&self, _: u32, _: &Settlement) {
            self.settled.fetch_add(1, Ordering::Relaxed);
        }
        fn dropped(&self, _: u32) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_token_is_either_settled_or_dropped_and_only_once() {
        let tally = Arc::new(Tally::default());
        assert!(Ack::of_many(tally.clone(), 0).settle(&Settlement::Counted).is_none());
        drop(Ack::of_many(tally.clone(), 1));
        assert_eq!(tally.settled.load(Ordering::Relaxed), 1);
        assert_eq!(tally.dropped.load(Ordering::Relaxed), 1);
    }
}
