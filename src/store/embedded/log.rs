//! The log on disk: segments that are appended to and synced, and the mark that says how far they were.
//!
//! A segment belongs to one generation of tables in memory, and is removed when that generation is in tables on disk.
//!
//! The mark is a small file of two slots, written (not synced) after each sync of the log with the number of the last frame
//! that this sync made durable. It never claims too much. It vouches for the newest frames, which no later frame does.
//!
//! After a failed write the segment is cut back to what it was. After a failed sync nothing is written any more: what the
//! disk holds then is not known.

use super::damage::Damage;
use super::frame::{self, Frame, HEAD_BYTES};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where the second slot of the mark begins: in another sector than the first.
const SLOT: u64 = 512;

/// Bytes of a slot: the number, and its checksum.
const SLOT_BYTES: usize = 16;

/// The segment that is written to.
pub(super) struct Log {
    folder: PathBuf,
    salt: u64,
    file: File,
    /// Bytes of the segment that are frames.
    end: u64,
    /// The number of the last frame.
    last: u64,
    /// The number of the last frame that is known to be durable.
    durable: u64,
    /// Where the segment stopped to be what `end` says.
    broken: bool,
    mark: File,
    /// Which slot of the mark is written next.
    even: bool,
}

impl Log {
    /// Begins a segment after the frame `last`. What had its name before, an empty one, is replaced.
    pub(super) fn begin(store: &Path, salt: u64, last: u64) -> io::Result<Self> {
        let folder = store.join("log");
        let mark = OpenOptions::new().write(true).create(true).truncate(false).open(store.join("mark"))?;
        let file = new_segment(&folder, salt, last + 1)?;
        Ok(Self { folder, salt, file, end: HEAD_BYTES as u64, last, durable: last, broken: false, mark, even: false })
    }

    /// The number that the next frame has.
    pub(super) fn next(&self) -> u64 {
        self.last + 1
    }

    /// The last frame that is durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) fn salt(&self) -> u64 {
        self.salt
    }

    /// Writes frames whose last has the number `last`. When this fails nothing of them is left in the segment.
    pub(super) fn append(&mut self, frames: &[u8], last: u64) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write could not be undone"));
        }
        if let Err(error) = self.file.write_all_at(frames, self.end) {
            // A rest of these frames would lie between those before and those after.
            self.broken = self.file.set_len(self.end).is_err();
            return Err(error);
        }
        self.end += frames.len() as u64;
        self.last = last;
        Ok(())
    }

    /// Makes durable what was written. Nothing may be written after this has failed.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.broken = true)?;
        self.durable = self.last;
        self.mark();
        Ok(())
    }

    /// Says in the mark how far the log is durable. A mark that is not written vouches for less, which is no fault.
    fn mark(&mut self) {
        let mut slot = [0; SLOT_BYTES];
        let number = self.durable.to_le_bytes();
        slot[..8].copy_from_slice(&number);
        slot[8..].copy_from_slice(&frame::checksum(self.salt, &number).to_le_bytes());
        let _ = self.mark.write_all_at(&slot, if self.even { SLOT } else { 0 });
        self.even = !self.even;
    }

    /// Goes on in a new segment, for a new generation.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write could not be undone"));
        }
        self.file = new_segment(&self.folder, self.salt, self.last + 1)?;
        self.end = HEAD_BYTES as u64;
        Ok(())
    }

    /// Whether the segment has no frame.
    pub(super) fn is_empty(&self) -> bool {
        self.end == HEAD_BYTES as u64
    }

    /// Makes the mark durable too: after this nothing in the log can be taken for unfinished.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.mark();
        self.mark.sync_data()
    }
}

/// Makes a segment, durable under its name. One that cannot be made whole is removed again.
fn new_segment(folder: &Path, salt: u64, first: u64) -> io::Result<File> {
    let path = path_of(folder, first);
    let make = || {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        file.write_all_at(&frame::head(salt, first), 0)?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        Ok(file)
    };
    make().inspect_err(|_| drop(fs::remove_file(&path)))
}

/// Removes the segments that end before the frame `first`; they are in the tables.
pub(super) fn remove_before(store: &Path, first: u64) -> io::Result<()> {
    let folder = store.join("log");
    let mut removed = false;
    for (segment, path) in segments(&folder)? {
        if segment < first {
            fs::remove_file(path)?;
            removed = true;
        }
    }
    if removed { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The name of the segment whose first frame has this number.
fn path_of(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}"))
}

/// The segments by the number of their first frame. Whatever else lies in the folder is none.
pub(super) fn segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let first = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        segments.extend(first.filter(|&first| path_of(folder, first) == path).map(|first| (first, path)));
    }
    segments.sort();
    Ok(segments)
}

/// What the mark says: the last frame that was durable for certain. A mark that is gone or damaged says nothing.
pub(super) fn read_mark(store: &Path, salt: u64) -> io::Result<u64> {
    let bytes = match fs::read(store.join("mark")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let slot = |at: u64| {
        let slot = bytes.get(at as usize..at as usize + SLOT_BYTES)?;
        let (number, sum) = (*slot.first_chunk()?, *slot.last_chunk()?);
        (frame::checksum(salt, &number) == u64::from_le_bytes(sum)).then(|| u64::from_le_bytes(number))
    };
    Ok([0, SLOT].into_iter().filter_map(slot).max().unwrap_or_default())
}

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Damage(#[from] Damage),
}

/// Reads the log: every frame after `position`, up to which the tables hold everything. Answers the number of the last
/// frame that is whole; what follows it was never synced.
///
/// # Errors
/// When a frame that was synced is missing or broken: the mark, a later frame or a later segment vouches for it.
pub(super) fn read(
    store: &Path,
    salt: u64,
    position: u64,
    mut each: impl FnMut(Place<'_>, Frame<'_>) -> Result<(), ReadError>,
) -> Result<u64, ReadError> {
    let folder = store.join("log");
    let mark = read_mark(store, salt)?;
    let segments = segments(&folder)?;
    let mut last = position;
    for (i, (first, path)) in segments.iter().enumerate() {
        let next = segments.get(i + 1).map(|(first, _)| *first);
        if next.is_some_and(|next| next <= position + 1) {
            continue;
        }
        if *first > last + 1 {
            break;
        }
        // Whatever comes before a segment was synced before that segment was made.
        let vouched = next.map_or(mark, |next| next - 1);
        last = last.max(read_segment(path, salt, Span { first: *first, position, vouched }, &mut each)?);
    }
    let vouched = segments.last().map_or(position, |(first, _)| *first - 1).max(mark);
    if last < vouched {
        return Err(Damage::new(&folder, 0, format!("frames {} to {vouched} are missing", last + 1)).into());
    }
    Ok(last)
}

/// Where a frame was read.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) file: &'a Path,
    pub(super) offset: usize,
}

/// What has to be in a segment.
struct Span {
    /// The number of its first frame.
    first: u64,
    /// Up to here the tables hold everything.
    position: u64,
    /// Up to here everything was synced, as far as is known from outside the segment.
    vouched: u64,
}

/// Reads one segment and answers the number of its last whole frame, or of the one before it.
fn read_segment(
    path: &Path,
    salt: u64,
    span: Span,
    each: &mut impl FnMut(Place<'_>, Frame<'_>) -> Result<(), ReadError>,
) -> Result<u64, ReadError> {
    let bytes = fs::read(path)?;
    if !frame::has_head(&bytes, salt, span.first) {
        // The head is durable before the first frame is written.
        if span.vouched >= span.first || frame::next_frame(&bytes, 0, salt, 0).is_some() {
            return Err(Damage::new(path, 0, "the head of the segment".to_owned()).into());
        }
        return Ok(span.first - 1);
    }
    let (mut at, mut expected) = (HEAD_BYTES, span.first);
    loop {
        if let Some(frame) = frame::frame(&bytes[at..], salt).filter(|frame| frame.number == expected) {
            if frame.number > span.position {
                each(Place { file: path, offset: at }, frame)?;
            }
            at += frame.bytes();
            expected += 1;
            continue;
        }
        let later = frame::next_frame(&bytes, at, salt, expected);
        if let Some((place, frame)) = later
            && frame.number <= span.position + 1
        {
            // The tables hold what is broken here.
            (at, expected) = (place, frame.number);
            continue;
        }
        let vouched = later.map_or(0, |(_, frame)| frame.durable).max(span.vouched);
        if vouched >= expected.max(span.position + 1) {
            return Err(Damage::new(path, at as u64, format!("frame {expected}")).into());
        }
        return Ok(expected - 1);
    }
}
