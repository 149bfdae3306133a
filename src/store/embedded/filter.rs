//! Which members the tables on disk cannot hold: most likes are of new members, and looking those up in every table
//! would cost more than all else that a like costs.
//!
//! A split block Bloom filter: 8 bits of one cache line a member. It lives in memory alone, in a fixed size. It answers
//! "perhaps" until it has seen every key on disk, and more often the fuller it is; it never denies a key that is there.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// 32 bits each; a member sets one bit in every word of its block.
const WORDS: usize = 8;

/// Odd numbers that spread one hash over the words, as Parquet's filter of this kind has them.
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The filter. One thread adds, others ask.
pub(super) struct Filter {
    blocks: Vec<[AtomicU32; WORDS]>,
    complete: AtomicBool,
}

impl Filter {
    /// An empty filter of about so many bytes. At 10 bits a member it is wrong about once in a hundred times.
    pub(super) fn new(bytes: usize) -> Self {
        let blocks = (bytes / size_of::<[AtomicU32; WORDS]>()).max(1);
        Self { blocks: (0..blocks).map(|_| Default::default()).collect(), complete: AtomicBool::new(false) }
    }

    /// Every key on disk has been added.
    pub(super) fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Remembers a key. Whoever is to see that must be told after this, by a lock or by [`Filter::complete`].
    pub(super) fn add(&self, hash: u32) {
        let block = &self.blocks[self.place(hash)];
        for (word, salt) in block.iter().zip(SALTS) {
            let bit = bit(hash, salt);
            // One thread writes, so nothing is lost between the two.
            word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
    }

    /// Whether a key with this hash may have been added. Never `false` when it was.
    pub(super) fn may_hold(&self, hash: u32) -> bool {
        let block = &self.blocks[self.place(hash)];
        let held = block.iter().zip(SALTS).all(|(word, salt)| word.load(Ordering::Relaxed) & bit(hash, salt) != 0);
        held || !self.complete.load(Ordering::Acquire)
    }

    /// Brings what questions about these hashes will read into the processor's cache, many at once.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u32>) {
        let words = hashes.fold(0, |sum, hash| sum ^ self.blocks[self.place(hash)][0].load(Ordering::Relaxed));
        std::hint::black_box(words);
    }

    fn place(&self, hash: u32) -> usize {
        // The hash as a fraction of the blocks: the product's upper half is smaller than their number.
        ((u64::from(hash) * self.blocks.len() as u64) >> 32) as usize
    }
}

fn bit(hash: u32, salt: u32) -> u32 {
    1 << (hash.wrapping_mul(salt) >> 27)
}

#[cfg(test)]
mod tests {
    use super::super::table::KeyHasher;
    use super::*;

    #[test]
    fn it_never_denies_a_key_and_seldom_takes_a_stranger_for_one() {
        let hasher = KeyHasher::default();
        let filter = Filter::new(10_000 * 10 / 8);
        let hash = |n: u32| hasher.hash(&n.to_le_bytes());
        (0..5_000).for_each(|n| filter.add(hash(n)));
        assert!((0..20_000).all(|n| filter.may_hold(hash(n))), "everything may be there until it is complete");
        (5_000..10_000).for_each(|n| filter.add(hash(n)));
        filter.complete();
        assert!((0..10_000).all(|n| filter.may_hold(hash(n))));
        let wrong = (10_000..20_000).filter(|&n| filter.may_hold(hash(n))).count();
        assert!(wrong < 500, "{wrong} of 10,000 strangers");
    }
}
