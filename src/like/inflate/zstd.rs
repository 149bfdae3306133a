//! zstd: frames, each a header, blocks and a checksum. The blocks are fed one by one, so that no more comes out at once
//! than one block holds.

use super::Step;
use ruzstd::decoding::FrameDecoder;
use std::fmt;
use std::io::Read;

/// The largest window. What HTTP allows (RFC 9659) and `zstd -19` uses; `--ultra` and `--long` go beyond.
const MAX_WINDOW_BYTES: u64 = 8 << 20;

/// What a decoder holds beside its window: tables, and a block or two.
const TABLES_BYTES: usize = 512 << 10;

/// The longest block: the format's limit.
const MAX_BLOCK_BYTES: usize = 128 << 10;

#[derive(Clone, Copy, Debug)]
enum Place {
    Between,
    /// In a frame that holds nothing: so many bytes are left.
    Skippable(u64),
    Block,
    Checksum,
    /// All is read; the window comes out.
    End,
    /// The end is missing; what there is comes out.
    GivenUp,
}

/// Where the unpacking stands.
pub(super) struct Zstd {
    place: Place,
    frame: FrameDecoder,
    has_checksum: bool,
    window_bytes: usize,
}

impl fmt::Debug for Zstd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Default for Zstd {
    fn default() -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(MAX_WINDOW_BYTES);
        Self { place: Place::Between, frame, has_checksum: false, window_bytes: 0 }
    }
}

impl Zstd {
    pub(super) fn is_between_frames(&self) -> bool {
        matches!(self.place, Place::Between)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.window_bytes + TABLES_BYTES
    }

    /// Unpacks some of `input`.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        match self.place {
            Place::Between => self.begin(input),
            Place::Skippable(left) => {
                let skipped = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - skipped as u64;
                self.place = if left == 0 { Place::Between } else { Place::Skippable(left) };
                Ok(Step::over(skipped))
            }
            Place::Block => {
                let written = self.drain(output)?;
                if written == 0 { self.block(input, output) } else { Ok(Step { taken: 0, written }) }
            }
            Place::Checksum => {
                let Some(sum) = input.get(..4) else { return Ok(Step::default()) };
                self.feed(sum)?;
                self.place = Place::End;
                Ok(Step::over(sum.len()))
            }
            Place::End => {
                let written = self.drain(output)?;
                if written > 0 {
                    return Ok(Step { taken: 0, written });
                }
                if self.has_checksum && self.frame.get_checksum_from_data() != self.frame.get_calculated_checksum() {
                    return Err("its checksum differs".to_owned());
                }
                self.place = Place::Between;
                if input.is_empty() { Ok(Step::default()) } else { self.begin(input) }
            }
            Place::GivenUp => Ok(Step { taken: 0, written: self.drain(output)? }),
        }
    }

    /// The end is missing. What was unpacked waits in the window and comes out as if the frame ended here. Answers whether
    /// there is any.
    pub(super) fn gives_up(&mut self) -> bool {
        const EMPTY_LAST_BLOCK: &[u8] = &[1, 0, 0];
        if !matches!(self.place, Place::Block | Place::Checksum) {
            return false;
        }
        let ended = matches!(self.place, Place::Checksum) || self.feed(EMPTY_LAST_BLOCK).is_ok();
        self.place = Place::GivenUp;
        ended && (!self.has_checksum || self.feed(&[0; 4]).is_ok())
    }

    fn begin(&mut self, input: &[u8]) -> Result<Step, String> {
        if let [0x50..=0x5f, 0x2a, 0x4d, 0x18, rest @ ..] = input {
            let Some(size) = rest.first_chunk::<4>() else { return Ok(Step::default()) };
            self.place = Place::Skippable(u32::from_le_bytes(*size).into());
            return Ok(Step::over(8));
        }
        let Some(bytes) = header_bytes(input)? else { return Ok(Step::default()) };
        let header = &input[..bytes];
        self.window_bytes = usize::try_from(MAX_WINDOW_BYTES).unwrap_or(usize::MAX);
        self.frame.reset(header).map_err(|error| {
            format!("{error}; zstd without --ultra and --long makes what can be read here, or unpack it with zstd -d")
        })?;
        self.has_checksum = header[4] & 0b100 != 0;
        self.place = Place::Block;
        Ok(Step::over(bytes))
    }

    /// One block at a time: several of four bytes may stand for 128 KiB each.
    fn block(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        let Some(&[a, b, c]) = input.first_chunk::<3>() else { return Ok(Step::default()) };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let (is_last, kind, size) = (header & 1 == 1, header >> 1 & 3, (header >> 3) as usize);
        // A block that repeats one byte holds just that.
        let size = if kind == 1 { 1 } else { size };
        if size > MAX_BLOCK_BYTES || kind == 3 {
            return Err("a block is of no kind that there is".to_owned());
        }
        let Some(block) = input.get(..3 + size) else { return Ok(Step::default()) };
        self.feed(block)?;
        if is_last {
            self.place = if self.has_checksum { Place::Checksum } else { Place::End };
        }
        Ok(Step { taken: block.len(), written: self.drain(output)? })
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.frame.decode_from_to(bytes, &mut []).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn drain(&mut self, output: &mut [u8]) -> Result<usize, String> {
        self.frame.read(output).map_err(|error| error.to_string())
    }
}

/// How long the header of the frame at the beginning of `input` is; `None` when it is not all there.
fn header_bytes(input: &[u8]) -> Result<Option<usize>, String> {
    let Some(&[m, a, g, i, descriptor]) = input.first_chunk::<5>() else { return Ok(None) };
    if [m, a, g, i] != [0x28, 0xb5, 0x2f, 0xfd] {
        return Err("what follows is no frame".to_owned());
    }
    let is_one_segment = descriptor >> 5 & 1 == 1;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = match descriptor >> 6 {
        0 => usize::from(is_one_segment),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    let bytes = 5 + usize::from(!is_one_segment) + dictionary + size;
    Ok((bytes <= input.len()).then_some(bytes))
}
