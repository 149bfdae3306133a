//! Where one event ends and the next begins in a text that holds many: a file, or the body of a request.
//!
//! Pure: bytes are pushed in, records come out. However the bytes are cut into chunks, the records are the same. What is
//! held is one record and what was pushed since; [`Framer::held_bytes`] says how much.
//!
//! - Records are JSON objects: one a line, one after the other without a newline, printed over several lines, the elements
//!   of an array, or each behind a record separator (RFC 7464).
//! - White space, NUL padding, byte order marks and the brackets and commas of an array between records belong to none.
//! - What is no object is a record all the same, to the end of its line: somebody may want to see it.
//! - A broken record costs no other line: after it, reading goes on at the next line, or where `}` meets `{`. An object over
//!   several lines that turns out broken is given up from its first line, and the lines after it are read anew.

mod cut;
mod object;
mod refusal;

pub use refusal::Refusal;

use bytes::Bytes;
use cut::Turn;
use object::Object;

/// What is kept of a text that is refused as a whole.
const REFUSED_BYTES: usize = 1 << 10;

/// Memory that is given back when nothing is held.
const KEEP_BYTES: usize = 1 << 20;

/// What is known beforehand about a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// A newline ends a record, whatever it is.
    Lines,
    /// Objects behind record separators; any of the ways above is understood too.
    Sequence,
    /// Objects in any of the ways above: what files and bodies without a known type hold.
    #[default]
    Objects,
    /// One value: an object, or an array of them. Several objects are refused, and none of them is a record.
    One,
}

impl Framing {
    /// What a content type says.
    #[must_use]
    pub fn of(content_type: &str) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if ["ndjson", "jsonl", "ldjson", "jsonlines", "json-lines"].iter().any(|name| kind.contains(name)) {
            Self::Lines
        } else if kind.contains("json-seq") {
            Self::Sequence
        } else if kind.contains("json") && !kind.contains("stream") {
            Self::One
        } else {
            Self::Objects
        }
    }
}

/// One record of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place among the records, from 1.
    pub number: u32,
    /// The line that it begins on, from 1.
    pub line: u32,
    /// Its bytes, with nothing around them. They keep no more memory than they need.
    pub payload: Bytes,
}

/// Cuts a text into records.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    max_record_bytes: usize,
    buffer: Vec<u8>,
    /// Everything before this is done with.
    at: usize,
    /// Everything before this has been looked at, and led to `state`.
    seen: usize,
    state: State,
    finished: bool,
    refusal: Option<Refusal>,
    /// Whether an array began before the first record.
    array: bool,
    records: u32,
    /// The line of `at`, from 1.
    line: u32,
}

#[derive(Debug)]
enum State {
    /// The first bytes are not here yet.
    Opening,
    /// A text that is refused: its beginning is the only record.
    Refused,
    /// All of the text is one record.
    One,
    /// Between records. The first of the brackets and commas since the last record or line stands there.
    Between { punctuation: Option<usize> },
    /// An opening brace at `at`; its line has no end yet.
    Line,
    /// In the object that begins at `at`, whose first line ends there.
    Object { scan: Object, first_line: Option<usize> },
    /// In something that is no object, or was one until it broke. `last` is the last byte of it that is no space.
    Broken { last: u8 },
    /// The same, in what is too long to be kept.
    Skipped { last: u8 },
    /// In the lines that belong to an object that broke; this one begins there.
    BrokenLines {
        line: usize,
        /// Whether the line begins with something else than a brace.
        foreign: bool,
    },
    /// The same, in what is too long to be kept.
    SkippedLines { foreign: bool },
    /// Nothing more will come.
    Ended,
}

impl Framer {
    /// Nothing pushed yet. A record of more than `max_record_bytes` is cut to that, and the rest of it is skipped.
    #[must_use]
    pub fn new(framing: Framing, max_record_bytes: usize) -> Self {
        Self {
            framing,
            max_record_bytes: max_record_bytes.max(REFUSED_BYTES),
            buffer: Vec::new(),
            at: 0,
            seen: 0,
            state: State::Opening,
            finished: false,
            refusal: None,
            array: false,
            records: 0,
            line: 1,
        }
    }

    /// The next chunk of the text. Take all records before another one.
    pub fn push(&mut self, chunk: &[u8]) {
        self.forget();
        self.buffer.extend_from_slice(chunk);
    }

    /// The text has ended.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether the text holds many events rather than one, as far as it is known.
    #[must_use]
    pub fn many(&self) -> bool {
        matches!(self.framing, Framing::Lines | Framing::Sequence) || self.array || self.records > 1
    }

    /// Why the text as a whole holds no events. Known by the first bytes, or at the end where it was to be one value.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Bytes that were pushed and may be the beginning of the next record. Take all records before.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// The memory that it holds, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// The next record that is complete. `None` until more is pushed, or after the last one.
    pub fn next_record(&mut self) -> Option<Record> {
        loop {
            let turn = match &mut self.state {
                State::Opening => self.open(),
                State::Refused => self.refuse(),
                State::One => self.one(),
                State::Between { .. } => self.between(),
                State::Line => self.line(),
                State::Object { .. } => self.object(),
                State::Broken { .. } | State::Skipped { .. } => self.broken(),
                State::BrokenLines { .. } | State::SkippedLines { .. } => self.broken_lines(),
                State::Ended => {
                    (self.at, self.seen) = (self.buffer.len(), self.buffer.len());
                    self.forget();
                    return None;
                }
            };
            match turn {
                Turn::Again => {}
                Turn::More => return None,
                Turn::Record(record) => return Some(record),
            }
        }
    }

    /// Drops what is done with.
    fn forget(&mut self) {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(KEEP_BYTES);
        } else {
            self.buffer.drain(..self.at);
        }
        self.seen -= self.at;
        match &mut self.state {
            State::Between { punctuation: Some(place) }
            | State::Object { first_line: Some(place), .. }
            | State::BrokenLines { line: place, .. } => *place -= self.at,
            _ => {}
        }
        self.at = 0;
    }
}

#[cfg(test)]
mod tests;
