//! Packed bytes. What comes out is the same wherever a chunk ends, never more than may, and what was packed.

use hotcount::like::inflate::{Coding, Inflate, InflateError, PIECE_BYTES};

const LIMIT_BYTES: u64 = 1 << 20;

/// The first byte says how long the chunks are, the rest is packed.
pub fn unpack(data: &[u8]) {
    let Some((how, packed)) = data.split_first() else { return };
    for coding in [Coding::Gzip, Coding::Zstd] {
        let whole = unpacked(coding, packed, packed.len().max(1));
        let chunks = unpacked(coding, packed, usize::from(*how) + 1);
        assert_eq!(whole.1.is_ok(), chunks.1.is_ok(), "{:?} and {:?}", whole.1, chunks.1);
        // What comes out last before a failure depends on the chunks.
        let common = whole.0.len().min(chunks.0.len());
        assert!(whole.0[..common] == chunks.0[..common] && (whole.1.is_err() || whole.0.len() == chunks.0.len()));
        assert!(whole.0.len() as u64 <= LIMIT_BYTES);
    }
}

fn unpacked(coding: Coding, packed: &[u8], chunk: usize) -> (Vec<u8>, Result<(), InflateError>) {
    let mut inflate = Inflate::new(coding, LIMIT_BYTES);
    let mut text = Vec::new();
    for chunk in packed.chunks(chunk).map(Some).chain([None]) {
        match chunk {
            Some(chunk) => inflate.push(chunk),
            None => inflate.finish(),
        }
        loop {
            match inflate.next_chunk() {
                Ok(Some(chunk)) => {
                    assert!((1..=PIECE_BYTES).contains(&chunk.len()));
                    text.extend_from_slice(chunk);
                }
                Ok(None) => break,
                Err(error) => return (text, Err(error)),
            }
        }
        assert!(inflate.held_bytes() <= 2 * packed.len() + (10 << 20), "{} bytes held", inflate.held_bytes());
    }
    (text, Ok(()))
}
