//! gzip: members, each a header, a deflated body, and a trailer.

use super::Step;
use flate2::{Crc, Decompress, FlushDecompress, Status};

/// The window and the tables of the inflater, rounded up.
pub(super) const HELD_BYTES: usize = 64 << 10;

/// The longest header. Its file name and comment have no limit of their own.
const MAX_HEADER_BYTES: usize = 64 << 10;

const HAS_CHECKSUM: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;

#[derive(Debug)]
enum Place {
    /// Before the first member.
    Beginning,
    /// After one: another, padding with zeros, or nothing.
    Between,
    Header,
    Body,
    Trailer,
}

/// Where the unpacking stands.
#[derive(Debug)]
pub(super) struct Gzip {
    place: Place,
    inflater: Decompress,
    checksum: Crc,
}

impl Default for Gzip {
    fn default() -> Self {
        Self { place: Place::Beginning, inflater: Decompress::new(false), checksum: Crc::new() }
    }
}

impl Gzip {
    pub(super) fn is_between_members(&self) -> bool {
        matches!(self.place, Place::Beginning | Place::Between)
    }

    /// Unpacks some of `input`.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        match self.place {
            Place::Beginning | Place::Between if input.is_empty() => Ok(Step::default()),
            Place::Between if input[0] == 0 => Ok(Step::over(input.iter().take_while(|byte| **byte == 0).count())),
            Place::Between if input[0] != 0x1f => Err("something else follows it".to_owned()),
            Place::Beginning | Place::Between => {
                self.place = Place::Header;
                self.step(input, output)
            }
            Place::Header => match header_bytes(input)? {
                None if input.len() > MAX_HEADER_BYTES => Err("its header is too long".to_owned()),
                None => Ok(Step::default()),
                Some(bytes) => {
                    self.inflater.reset(false);
                    self.checksum.reset();
                    self.place = Place::Body;
                    Ok(Step::over(bytes))
                }
            },
            Place::Body => self.body(input, output),
            Place::Trailer => {
                let Some(trailer) = input.first_chunk::<8>() else { return Ok(Step::default()) };
                let expected = [self.checksum.sum().to_le_bytes(), self.checksum.amount().to_le_bytes()];
                if trailer != expected.as_flattened() {
                    return Err("its checksum differs".to_owned());
                }
                self.place = Place::Between;
                Ok(Step::over(trailer.len()))
            }
        }
    }

    fn body(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        let (read, written) = (self.inflater.total_in(), self.inflater.total_out());
        let status = self.inflater.decompress(input, output, FlushDecompress::None).map_err(|e| e.to_string())?;
        // Both are lengths of slices in memory.
        let taken = (self.inflater.total_in() - read) as usize;
        let written = (self.inflater.total_out() - written) as usize;
        self.checksum.update(&output[..written]);
        if status == Status::StreamEnd {
            self.place = Place::Trailer;
            // A body may end without a byte taken or written; the trailer is looked at all the same.
            return if taken + written == 0 { self.step(input, output) } else { Ok(Step { taken, written }) };
        }
        Ok(Step { taken, written })
    }
}

/// How long the header at the beginning of `input` is; `None` when it is not all there.
fn header_bytes(input: &[u8]) -> Result<Option<usize>, String> {
    let Some(fixed) = input.first_chunk::<10>() else { return Ok(None) };
    if !fixed.starts_with(&[0x1f, 0x8b, 8]) {
        return Err("what follows is no member".to_owned());
    }
    let flags = fixed[3];
    let mut end = fixed.len();
    if flags & HAS_EXTRA != 0 {
        let Some(&[low, high]) = input.get(end..).and_then(<[u8]>::first_chunk::<2>) else { return Ok(None) };
        end += 2 + usize::from(u16::from_le_bytes([low, high]));
    }
    for _ in 0..(flags & (HAS_NAME | HAS_COMMENT)).count_ones() {
        let Some(zero) = input.get(end..).and_then(|rest| memchr::memchr(0, rest)) else { return Ok(None) };
        end += zero + 1;
    }
    if flags & HAS_CHECKSUM != 0 {
        end += 2;
    }
    Ok((end <= input.len()).then_some(end))
}
