//! The log's bytes: frames, what is in them, and how a broken one is told from one that was never finished.
//!
//! ```text
//! segment: [head][frame][frame]…
//! head:    "hotcount" [version u32][salt u64][first frame's number u64][checksum u64 of the head so far]
//! frame:   [bytes of payload u32][checksum u64 of all that follows][number u64][durable u64][payload]
//! payload: [tree u8][put 1, remove 0][bytes of key u16][bytes of value u32][key][value]…
//! ```
//!
//! Frames are numbered without a gap. `durable` is the number of the last frame that was known to be on disk when this one
//! was written: a broken frame that a later one vouches for was damaged; one that nobody vouches for was never synced, so
//! nothing of it was answered. The checksum begins with the store's salt, so bytes of a payload are never taken for a frame.

use xxhash_rust::xxh3::Xxh3;

/// The version of the log's format.
pub(super) const LOG_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"hotcount";

/// Bytes of a segment's head.
pub(super) const HEAD_BYTES: usize = 36;

/// Bytes of a frame before its payload.
pub(super) const FRAME_HEAD: usize = 28;

/// Bytes of an operation before its key.
const OPERATION_HEAD: usize = 8;

/// Which of the two trees a row is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Memberships, counters, batch keys.
    Rows,
    /// Poison, in a tree of its own: it is large, and what is deleted has to be gone soon.
    Quarantine,
}

/// One row that a frame writes, or removes where there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation<'a> {
    pub(super) tree: Tree,
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) number: u64,
    pub(super) durable: u64,
    pub(super) payload: &'a [u8],
}

/// The head of a segment whose first frame has this number.
pub(super) fn head(salt: u64, first: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&LOG_VERSION.to_le_bytes());
    head[12..20].copy_from_slice(&salt.to_le_bytes());
    head[20..28].copy_from_slice(&first.to_le_bytes());
    let sum = checksum(salt, &head[..28]);
    head[28..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Whether `bytes` begin with the head of this segment.
pub(super) fn has_head(bytes: &[u8], salt: u64, first: u64) -> bool {
    bytes.starts_with(&head(salt, first))
}

/// Appends an operation to a payload.
pub(super) fn push_operation(payload: &mut Vec<u8>, operation: Operation<'_>) {
    payload.push(match operation.tree {
        Tree::Rows => 0,
        Tree::Quarantine => 1,
    });
    payload.push(u8::from(operation.value.is_some()));
    let value = operation.value.unwrap_or_default();
    // A key is made of ids, each 1,500 bytes at most; a value is a delivery at most, far below 4 GiB.
    payload.extend_from_slice(&(operation.key.len() as u16).to_le_bytes());
    payload.extend_from_slice(&(value.len() as u32).to_le_bytes());
    payload.extend_from_slice(operation.key);
    payload.extend_from_slice(value);
}

/// Begins a frame in `out`; the payload is appended next. Answers where the frame begins.
pub(super) fn begin(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD]);
    at
}

/// Ends the frame that began at `at`.
pub(super) fn finish(out: &mut [u8], at: usize, salt: u64, number: u64, durable: u64) {
    let length = (out.len() - at - FRAME_HEAD) as u32;
    let frame = &mut out[at..];
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[12..20].copy_from_slice(&number.to_le_bytes());
    frame[20..28].copy_from_slice(&durable.to_le_bytes());
    let sum = checksum(salt, &frame[12..]);
    frame[4..12].copy_from_slice(&sum.to_le_bytes());
}

/// The frame at the front of `bytes`, if it is whole.
pub(super) fn frame(bytes: &[u8], salt: u64) -> Option<Frame<'_>> {
    let (number, durable, length) = plausible(bytes)?;
    let sum = u64_at(bytes, 4)?;
    let covered = bytes.get(12..FRAME_HEAD + length)?;
    (checksum(salt, covered) == sum).then(|| Frame { number, durable, payload: &covered[16..] })
}

/// Bytes of the frame at the front of `bytes`, as far as its head says; `None` before that has arrived.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    (bytes.len() >= FRAME_HEAD)
        .then(|| bytes.first_chunk().map(|length| FRAME_HEAD + u32::from_le_bytes(*length) as usize))?
}

impl Frame<'_> {
    /// Bytes of the frame, its head included.
    pub(super) fn bytes(&self) -> usize {
        FRAME_HEAD + self.payload.len()
    }
}

/// Number, durable and length of what may be a frame.
fn plausible(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let (number, durable) = (u64_at(bytes, 12)?, u64_at(bytes, 20)?);
    (durable < number && bytes.len() - FRAME_HEAD >= length).then_some((number, durable, length))
}

/// The first whole frame in `bytes` from `at` on whose number is above `after`, and where it begins.
pub(super) fn next_frame(bytes: &[u8], mut at: usize, salt: u64, after: u64) -> Option<(usize, Frame<'_>)> {
    /// A gap between two frames of one segment is far smaller.
    const FARTHEST: u64 = 1 << 32;
    while at + FRAME_HEAD <= bytes.len() {
        let candidate = plausible(&bytes[at..]);
        if candidate.is_some_and(|(number, ..)| number > after && number - after < FARTHEST)
            && let Some(frame) = frame(&bytes[at..], salt)
        {
            return Some((at, frame));
        }
        at += 1;
    }
    None
}

/// The operations in a payload, up to the first that makes no sense.
pub(super) fn operations(payload: &[u8]) -> impl Iterator<Item = Result<Operation<'_>, NoSense>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (read, left) = operation(rest).map_or((Err(NoSense), &[][..]), |(read, left)| (Ok(read), left));
        rest = left;
        Some(read)
    })
}

/// A payload that is not what this version writes, in a frame whose checksum holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoSense;

fn operation(bytes: &[u8]) -> Option<(Operation<'_>, &[u8])> {
    let (&[tree, put, k0, k1, v0, v1, v2, v3], rest) = bytes.split_first_chunk::<OPERATION_HEAD>()?;
    let tree = match tree {
        0 => Tree::Rows,
        1 => Tree::Quarantine,
        _ => return None,
    };
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([k0, k1])))?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes([v0, v1, v2, v3]) as usize)?;
    let value = match put {
        1 => Some(value),
        0 if value.is_empty() => None,
        _ => return None,
    };
    Some((Operation { tree, key, value }, rest))
}

/// The checksum of `bytes` in the store with this salt.
pub(super) fn checksum(salt: u64, bytes: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(salt);
    hash.update(bytes);
    hash.digest()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, payload) in payloads.iter().enumerate() {
            let at = begin(&mut out);
            out.extend_from_slice(payload);
            finish(&mut out, at, 7, i as u64 + 1, i as u64);
        }
        out
    }

    proptest! {
        #[test]
        fn frames_come_back_and_one_changed_bit_breaks_the_one_that_it_is_in(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = log(&payloads);
            let mut at = 0;
            for (i, payload) in payloads.iter().enumerate() {
                let read = frame(&bytes[at..], 7).expect("whole");
                prop_assert_eq!((read.number, read.durable, read.payload), (i as u64 + 1, i as u64, payload.as_slice()));
                at += read.bytes();
            }
            prop_assert_eq!(frame(&bytes, 8), None, "a frame of another store");
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (mut at, mut whole) = (0, 0);
            while let Some((place, read)) = next_frame(&bytes, at, 7, 0) {
                at = place + read.bytes();
                whole += 1;
            }
            prop_assert_eq!(whole, payloads.len() - 1);
        }

        #[test]
        fn operations_come_back(rows in prop::collection::vec((any::<bool>(), any::<Vec<u8>>(), any::<Option<Vec<u8>>>()), 0..5)) {
            let mut payload = Vec::new();
            let rows: Vec<Operation<'_>> = rows.iter().map(|(rows, key, value)| Operation {
                tree: if *rows { Tree::Rows } else { Tree::Quarantine }, key, value: value.as_deref(),
            }).collect();
            rows.iter().for_each(|row| push_operation(&mut payload, *row));
            let read: Vec<_> = operations(&payload).map(|row| row.expect("it makes sense")).collect();
            prop_assert_eq!(read, rows);
        }
    }

    #[test]
    fn bytes_of_nothing_are_no_frame() {
        assert_eq!(frame(&[0; 64], 7), None);
        assert_eq!(next_frame(&[0; 4096], 0, 7, 0), None);
        assert_eq!(operations(&[9; 20]).next(), Some(Err(NoSense)));
    }
}
