//! Unpacking gzip and zstd, a chunk at a time.
//!
//! Pure: compressed bytes are pushed in, chunks of at most [`PIECE_BYTES`] come out, so a few bytes that stand for gigabytes
//! fill no memory. Members and frames may follow each other, as `cat` leaves them. Checksums are compared.

mod gzip;
mod zstd;

use gzip::Gzip;
use std::fmt;
use zstd::Zstd;

/// The most that comes out at once.
pub const PIECE_BYTES: usize = 64 << 10;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// First bytes that [`Coding::of`] needs.
    pub const MARK_BYTES: usize = 4;

    /// What the first bytes say; [`Coding::MARK_BYTES`] decide.
    #[must_use]
    pub fn of(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// What HTTP's `Content-Encoding` calls it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// Why compressed bytes do not unpack. What came out before stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// Not what its first bytes said.
    #[error("the {0} data is damaged: {1}")]
    Damaged(Coding, String),
    /// It ends in the middle.
    #[error("the {0} data ends in the middle: its end is missing")]
    Truncated(Coding),
    /// More came out than may.
    #[error("unpacked it has more than {0} bytes")]
    TooLarge(u64),
}

/// Unpacks one stream of bytes.
#[derive(Debug)]
pub struct Inflate {
    coding: Coding,
    decoder: Decoder,
    input: Vec<u8>,
    taken: usize,
    output: Vec<u8>,
    inflated: u64,
    limit_bytes: u64,
    finished: bool,
}

/// What a step of a decoder came to. Neither taken nor written means that it needs more.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// Bytes of the input.
    taken: usize,
    /// Bytes at the beginning of the output.
    written: usize,
}

impl Step {
    /// Input that stands for nothing.
    fn over(taken: usize) -> Self {
        Self { taken, written: 0 }
    }
}

#[derive(Debug)]
enum Decoder {
    Gzip(Box<Gzip>),
    Zstd(Box<Zstd>),
}

impl Inflate {
    /// Unpacks `limit_bytes` at most, and then fails.
    #[must_use]
    pub fn new(coding: Coding, limit_bytes: u64) -> Self {
        let decoder = match coding {
            Coding::Gzip => Decoder::Gzip(Box::default()),
            Coding::Zstd => Decoder::Zstd(Box::default()),
        };
        Self {
            coding,
            decoder,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            inflated: 0,
            limit_bytes,
            finished: false,
        }
    }

    /// More compressed bytes. Take all chunks before.
    pub fn push(&mut self, compressed: &[u8]) {
        self.input.drain(..self.taken);
        self.taken = 0;
        self.input.extend_from_slice(compressed);
    }

    /// There is no more input. The last chunks are still to be taken, and then the end.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The next chunk; `None` until more is pushed, or at the end.
    ///
    /// # Errors
    /// The data is damaged, ends in the middle, or more comes out than may. Nothing comes after an error.
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, InflateError> {
        // Kept, so that a byte at a time does not cost a buffer each.
        self.output.resize(PIECE_BYTES, 0);
        loop {
            let input = &self.input[self.taken..];
            let step = match &mut self.decoder {
                Decoder::Gzip(gzip) => gzip.step(input, &mut self.output),
                Decoder::Zstd(zstd) => zstd.step(input, &mut self.output),
            };
            let step = step.map_err(|problem| InflateError::Damaged(self.coding, problem))?;
            self.taken += step.taken;
            self.inflated += step.written as u64;
            if self.inflated > self.limit_bytes {
                return Err(InflateError::TooLarge(self.limit_bytes));
            }
            if step.written > 0 {
                return Ok(Some(&self.output[..step.written]));
            }
            if step.taken > 0 {
                continue;
            }
            if !self.finished || self.is_complete() {
                return Ok(None);
            }
            if !self.gives_up() {
                return Err(InflateError::Truncated(self.coding));
            }
        }
    }

    fn is_complete(&self) -> bool {
        let between = match &self.decoder {
            Decoder::Gzip(gzip) => gzip.is_between_members(),
            Decoder::Zstd(zstd) => zstd.is_between_frames(),
        };
        between && self.taken == self.input.len()
    }

    /// Whether something is still to come out of data that ends in the middle.
    fn gives_up(&mut self) -> bool {
        match &mut self.decoder {
            Decoder::Gzip(_) => false,
            Decoder::Zstd(zstd) => zstd.gives_up(),
        }
    }

    /// The memory that it holds, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let decoder = match &self.decoder {
            Decoder::Gzip(_) => gzip::HELD_BYTES,
            Decoder::Zstd(zstd) => zstd.held_bytes(),
        };
        self.input.capacity() + self.output.capacity() + decoder
    }
}

#[cfg(test)]
mod tests;
