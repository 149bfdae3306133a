//! A hash table over records in one arena: what a generation holds in memory.
//!
//! An insert appends to the arena and sets one slot; a lookup of something absent reads one cache line. That is several
//! times cheaper than a sorted structure, and sorting is left to the thread that has the time.

use super::layout::{COUNTER_BYTES, RECORD_HEAD, REPLACED, Record, Records, record};
use foldhash::quality::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Hashes keys with a seed of this process, so that nobody outside can choose keys that collide.
#[derive(Clone, Default)]
pub(super) struct KeyHasher(RandomState);

impl KeyHasher {
    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        // The upper half is as good as the lower.
        (hasher.finish() >> 32) as u32
    }
}

/// Keys to values. It never shrinks and has no removal.
#[derive(Default)]
pub(super) struct Table {
    arena: Vec<u8>,
    /// Open addressing with linear probing: the hash above, the record's place plus one below; 0 is free.
    slots: Vec<u64>,
    used: usize,
}

impl Table {
    /// A table that takes as many records as `like` held before it grows.
    pub(super) fn sized_like(like: &Table) -> Self {
        Self { arena: Vec::with_capacity(like.arena.len()), slots: vec![0; like.slots.len()], used: 0 }
    }

    /// Bytes of the records. The slots that find them come on top, 13 to 26 bytes a record.
    pub(super) fn record_bytes(&self) -> usize {
        self.arena.len()
    }

    /// Forgets all records and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.arena.clear();
        self.slots.fill(0);
        self.used = 0;
    }

    /// The value stored for `key`.
    pub(super) fn get(&self, hash: u32, key: &[u8]) -> Option<&[u8]> {
        if self.used == 0 {
            return None;
        }
        self.find(hash, key).ok().map(|at| self.at(at).value)
    }

    /// Brings what lookups of these hashes will read into the processor's cache. One lookup after the other would wait
    /// for memory each time; here nothing depends on what was read before, so the processor fetches many at once.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u32> + Clone) {
        if self.used == 0 {
            return;
        }
        let mask = self.slots.len() - 1;
        let slots = hashes.clone().fold(0, |sum, hash| sum ^ self.slots[hash as usize & mask]);
        let found = hashes.map(|hash| (hash, self.slots[hash as usize & mask]));
        let known = found.filter(|&(hash, entry)| entry != 0 && (entry >> 32) as u32 == hash);
        let records = known.fold(0, |sum, (_, entry)| sum ^ self.arena[place(entry)]);
        std::hint::black_box((slots, records));
    }

    /// Stores a record as [`super::layout`] writes it, in place of one with the same key.
    pub(super) fn put(&mut self, hash: u32, bytes: &[u8]) {
        let Some(new) = record(bytes) else { return };
        self.reserve();
        match self.find(hash, new.key) {
            Ok(at) => {
                let start = at + RECORD_HEAD + new.key.len();
                let old_len = self.at(at).value.len();
                if old_len == new.value.len() {
                    self.arena[start..start + old_len].copy_from_slice(new.value);
                } else {
                    self.arena[at + 1] |= (REPLACED >> 8) as u8;
                    let slot = self.slot_of(hash, at);
                    self.append(slot, hash, new.bytes);
                }
            }
            Err(slot) => {
                self.used += 1;
                self.append(slot, hash, new.bytes);
            }
        }
    }

    /// Adds `delta` to the counter `key`, which is 0 where there is none.
    pub(super) fn add(&mut self, hash: u32, key: &[u8], delta: i64) {
        self.reserve();
        match self.find(hash, key) {
            Ok(at) => {
                let start = at + RECORD_HEAD + key.len();
                if let Some(value) = self.arena[start..].first_chunk_mut::<COUNTER_BYTES>() {
                    *value = i64::from_le_bytes(*value).wrapping_add(delta).to_le_bytes();
                }
            }
            Err(slot) => {
                self.used += 1;
                let at = self.arena.len();
                self.slots[slot] = entry(hash, at);
                push_counter_record(&mut self.arena, key, delta);
            }
        }
    }

    /// The live records in order of arrival: in sorted runs where batches came sorted.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        // The arena holds only what `put` and `add` appended, so no record of it is cut short.
        Records::new(&self.arena).map_while(Result::ok).filter(|record| !record.replaced)
    }

    /// The live records whose keys are `wanted`, copied one after the other.
    pub(super) fn copy_of(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut copy = Vec::new();
        self.records().filter(|record| wanted(record.key)).for_each(|record| copy.extend_from_slice(record.bytes));
        copy
    }

    fn at(&self, at: usize) -> Record<'_> {
        // Slots hold only places where a record was appended.
        record(&self.arena[at..]).unwrap_or(Record { replaced: true, key: &[], value: &[], bytes: &[] })
    }

    fn append(&mut self, slot: usize, hash: u32, bytes: &[u8]) {
        self.slots[slot] = entry(hash, self.arena.len());
        self.arena.extend_from_slice(bytes);
    }

    /// Where the record of `key` lies, or the free slot that would take it.
    fn find(&self, hash: u32, key: &[u8]) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let entry = self.slots[slot];
            if entry == 0 {
                return Err(slot);
            }
            if (entry >> 32) as u32 == hash {
                let at = place(entry);
                if self.at(at).key == key {
                    return Ok(at);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The slot that points to the record at `at`, which exists.
    fn slot_of(&self, hash: u32, at: usize) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != entry(hash, at) {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Makes room for one more: at most five slots in eight are used, so a free one always ends a search soon.
    fn reserve(&mut self) {
        if (self.used + 1) * 8 <= self.slots.len() * 5 {
            return;
        }
        let mut slots = vec![0; (self.slots.len() * 2).max(1 << 10)];
        let mask = slots.len() - 1;
        for entry in self.slots.iter().copied().filter(|&entry| entry != 0) {
            let mut slot = (entry >> 32) as usize & mask;
            while slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            slots[slot] = entry;
        }
        self.slots = slots;
    }
}

fn entry(hash: u32, at: usize) -> u64 {
    // An arena is a generation and a group at most, far under the 4 GiB that 32 bits address.
    (u64::from(hash) << 32) | (at as u64 + 1)
}

fn place(entry: u64) -> usize {
    (entry & 0xFFFF_FFFF) as usize - 1
}

/// Appends a counter as one record.
pub(super) fn push_counter_record(out: &mut Vec<u8>, key: &[u8], value: i64) {
    // A counter's key is a post and a shard: it fits in 15 bits.
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(COUNTER_BYTES as u16).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::layout::{membership, post_prefix, push_member_record};
    use super::*;
    use crate::event::Like;
    use std::collections::BTreeMap;

    #[test]
    fn what_was_put_last_is_found_whatever_the_hashes_are() {
        for bits in [0, 3, 32] {
            let hasher = KeyHasher::default();
            let hash = |key: &[u8]| if bits == 0 { 0 } else { hasher.hash(key) >> (32 - bits) };
            let mut table = Table::default();
            let mut model = BTreeMap::new();
            for i in 0..500_u32 {
                let user = format!("user-{}", i * 7 % 200);
                let like = Like::new("post", &user, &"e".repeat(1 + (i % 3) as usize), i % 2 == 0, i64::from(i));
                let mut bytes = Vec::new();
                push_member_record(&mut bytes, &post_prefix("post"), &like);
                let key = record(&bytes).expect("a record").key.to_vec();
                table.put(hash(&key), &bytes);
                model.insert(key, like);
            }
            for (key, like) in &model {
                assert_eq!(membership(table.get(hash(key), key).expect("there")).expect("whole"), like.membership());
            }
            let live: BTreeMap<_, _> = table.records().map(|r| (r.key.to_vec(), r.value.to_vec())).collect();
            assert_eq!(live.len(), model.len());
            assert_eq!(table.records().count(), model.len());
            assert!(table.get(hash(b"nobody"), b"nobody").is_none());
        }
    }

    #[test]
    fn counters_add_up() {
        let (hasher, mut table) = (KeyHasher::default(), Table::default());
        for i in 0..300_i64 {
            let key = [b'k', (i % 3) as u8];
            table.add(hasher.hash(&key), &key, i - 100);
        }
        let sum: i64 = table.records().map(|r| i64::from_le_bytes(r.value.try_into().expect("eight"))).sum();
        assert_eq!((sum, table.records().count()), ((0..300).sum::<i64>() - 30_000, 3));
        table.clear();
        assert!(table.get(0, b"k").is_none() && table.records().next().is_none());
    }
}
