//! A sealed batch with what must be settled when it is durable.

use crate::like::batch::{Batch, BatchKey};
use std::time::Instant;
use thin_vec::ThinVec;

/// The receipts of one like of a batch.
#[derive(Debug)]
pub struct Receipts<R> {
    /// Of the like itself, which is the newest of its (post, user) in the batch.
    pub own: Option<R>,
    /// Of the likes that were folded into it.
    pub folded: ThinVec<R>,
}

impl<R> IntoIterator for Receipts<R> {
    type Item = R;
    type IntoIter = std::iter::Chain<std::option::IntoIter<R>, thin_vec::IntoIter<R>>;

    fn into_iter(self) -> Self::IntoIter {
        self.own.into_iter().chain(self.folded)
    }
}

/// A batch and, place by place, the receipts of its likes. Dropping it drops them, and dropped means delivered again.
#[derive(Debug)]
pub struct Sealed<R> {
    batch: Batch,
    receipts: Vec<Receipts<R>>,
    oldest: Instant,
}

impl<R> Sealed<R> {
    pub(super) fn new(batch: Batch, receipts: Vec<Receipts<R>>, oldest: Instant) -> Self {
        debug_assert_eq!(batch.likes().len(), receipts.len());
        Self { batch, receipts, oldest }
    }

    /// The batch.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// How many likes it has, each of another (post, user).
    #[must_use]
    pub fn likes(&self) -> usize {
        self.receipts.len()
    }

    /// How many deliveries are settled with it: one a like, and those folded.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.receipts.iter().map(|r| usize::from(r.own.is_some()) + r.folded.len()).sum()
    }

    /// When the oldest of its likes arrived.
    #[must_use]
    pub fn oldest(&self) -> Instant {
        self.oldest
    }

    /// The receipts, place by place.
    #[must_use]
    pub fn into_receipts(self) -> Vec<Receipts<R>> {
        self.receipts
    }

    /// Two batches with keys of their own: the likes at `places`, and the others. A batch whose content changes never
    /// keeps its key, for the key stands for the content.
    #[must_use]
    pub fn split(self, places: &[usize], keys: [BatchKey; 2]) -> [Self; 2] {
        let mut inside = vec![false; self.receipts.len()];
        places.iter().for_each(|place| inside[*place] = true);
        let mut parts = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        for ((like, receipts), inside) in self.batch.into_likes().into_iter().zip(self.receipts).zip(inside) {
            let part = &mut parts[usize::from(!inside)];
            part.0.push(like);
            part.1.push(receipts);
        }
        let [(likes_a, receipts_a), (likes_b, receipts_b)] = parts;
        [
            Self::new(Batch::from_sorted(keys[0], likes_a), receipts_a, self.oldest),
            Self::new(Batch::from_sorted(keys[1], likes_b), receipts_b, self.oldest),
        ]
    }

    /// So many parts of about the same size, each with a key of its own; fewer when there are fewer likes.
    #[must_use]
    pub fn divide(self, parts: usize, mut key: impl FnMut() -> BatchKey) -> Vec<Self> {
        let mut left = self.likes();
        let mut parts = parts.clamp(1, left.max(1));
        let mut members = self.batch.into_likes().into_iter().zip(self.receipts);
        let mut divided = Vec::with_capacity(parts);
        while left > 0 {
            let size = left.div_ceil(parts);
            let (likes, receipts) = members.by_ref().take(size).unzip();
            divided.push(Self::new(Batch::from_sorted(key(), likes), receipts, self.oldest));
            left -= size;
            parts -= 1;
        }
        divided
    }
}
