//! What one commit carries: at most one like per (post, user), in one order, under one random key.

use crate::like::event::Like;
use std::fmt;
use uuid::Uuid;

/// The key of a batch: random, never time-ordered, and fixed for the life of the batch.
///
/// It saves work after a lost answer: the retry reads one document and knows that the batch had committed. It carries
/// no other guarantee; the memberships do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchKey(Uuid);

impl BatchKey {
    /// A version 4 UUID made of the given random bits; the caller holds the seeded generator.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// The 16 bytes of the UUID.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for BatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for BatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A sealed batch: sorted by (post, user), no (post, user) twice.
///
/// Every writer writes in this one order, so two writers of the same rows cannot deadlock.
#[derive(Clone)]
pub struct Batch {
    key: BatchKey,
    likes: Vec<Like>,
}

impl Batch {
    /// A batch of `likes`, which are sorted here.
    ///
    /// # Panics
    /// When two likes are of the same (post, user): a store would write one document twice in one commit.
    #[must_use]
    pub fn new(key: BatchKey, mut likes: Vec<Like>) -> Self {
        likes.sort_unstable_by(|a, b| a.member().cmp(&b.member()));
        Self::from_sorted(key, likes)
    }

    /// A batch of likes that are in order already.
    ///
    /// # Panics
    /// When they are not, or when two are of the same (post, user).
    #[must_use]
    pub fn from_sorted(key: BatchKey, likes: Vec<Like>) -> Self {
        assert!(likes.is_sorted_by(|a, b| a.member() < b.member()), "a batch is sorted and has each member once");
        Self { key, likes }
    }

    /// The key this batch commits under.
    #[must_use]
    pub fn key(&self) -> BatchKey {
        self.key
    }

    /// The likes, sorted by (post, user).
    #[must_use]
    pub fn likes(&self) -> &[Like] {
        &self.likes
    }

    /// The likes, given back.
    #[must_use]
    pub fn into_likes(self) -> Vec<Like> {
        self.likes
    }

    /// The likes grouped by post, in order.
    pub fn by_post(&self) -> impl Iterator<Item = &[Like]> {
        self.likes.chunk_by(|a, b| a.post() == b.post())
    }
}

/// Prints like a ledger: the key, then a line a like. Event ids are left out when they would only repeat noise; with
/// `{:#?}` they are there.
impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {} · {} likes", self.key, self.likes.len())?;
        for likes in self.by_post() {
            for like in likes {
                let sign = if like.liked() { '+' } else { '-' };
                write!(f, "\n{sign} {} {} @{}", like.post(), like.user(), like.order())?;
                if f.alternate() {
                    write!(f, " {}", like.event_id())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_prints_like_a_ledger_sorted_by_post_and_user() {
        let batch = Batch::new(
            BatchKey::from_random(7),
            vec![
                Like::new("b", "2", "e3", false, 9),
                Like::new("a", "2", "e2", true, 8),
                Like::new("a", "1", "e1", true, 7),
            ],
        );
        insta::assert_snapshot!(format!("{batch:#?}"), @r"
        batch 00000000-0000-4000-8000-000000000007 · 3 likes
        + a 1 @7 e1
        + a 2 @8 e2
        - b 2 @9 e3
        ");
        assert_eq!(batch.by_post().map(<[Like]>::len).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    #[should_panic(expected = "each member once")]
    fn a_member_cannot_be_in_a_batch_twice() {
        let _ = Batch::new(
            BatchKey::from_random(1),
            vec![Like::new("a", "1", "e1", true, 7), Like::new("a", "1", "e2", true, 8)],
        );
    }
}
