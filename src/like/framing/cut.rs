//! The turns of a [`Framer`]: from what is known so far to the next record.

use super::object::{Object, Step};
use super::refusal::DECIDE_BYTES;
use super::{Framer, Framing, REFUSED_BYTES, Record, Refusal, State};
use bytes::Bytes;

/// A line up to this long is looked at as a whole first: most are one flat object, which is told without a scan.
const WHOLE_LINE_BYTES: usize = 64 << 10;

/// Brackets and commas before a record, at most. More of them are no array.
const MAX_PUNCTUATION: usize = 1 << 10;

/// A record from this length on takes the memory that it lies in along, rather than a copy.
const LARGE_BYTES: usize = 64 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const RECORD_SEPARATOR: u8 = 0x1e;

/// What a turn came to.
pub(super) enum Turn {
    /// Another state; look again.
    Again,
    /// Nothing, before more is pushed or the text has ended.
    More,
    /// A record.
    Record(Record),
}

/// Bytes that end a record wherever they stand: no JSON has them between its braces, but for the newline.
fn ends_a_line(byte: u8) -> bool {
    matches!(byte, b'\n' | 0 | RECORD_SEPARATOR)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0 | RECORD_SEPARATOR)
}

/// Without what may stand around a record.
fn trimmed(mut text: &[u8]) -> &[u8] {
    while let Some((last, rest)) = text.split_last()
        && is_blank(*last)
    {
        text = rest;
    }
    text
}

/// Whether a line is one object without another inside, as far as braces tell.
fn is_flat(line: &[u8]) -> bool {
    line.len() > 1 && memchr::memchr2(b'{', b'}', &line[1..]) == Some(line.len() - 2) && line.ends_with(b"}")
}

/// Whether `text`, which begins with a brace, is an object and then the beginning of another.
fn has_several(text: &[u8]) -> bool {
    let mut scan = Object::new();
    let mut rest = text[1..].iter();
    let ends = rest.by_ref().map(|byte| scan.step(*byte)).find(|step| *step != Step::On);
    ends == Some(Step::Closed) && rest.find(|byte| !is_blank(**byte) && **byte != b',') == Some(&b'{')
}

impl Framer {
    pub(super) fn open(&mut self) -> Turn {
        if self.buffer.len() < DECIDE_BYTES && !self.finished {
            return Turn::More;
        }
        self.refusal = Refusal::of(&self.buffer);
        self.state = match (self.refusal, self.framing) {
            (Some(_), _) => State::Refused,
            (None, Framing::One) => State::One,
            (None, _) => State::Between { punctuation: None },
        };
        Turn::Again
    }

    /// The beginning of a refused text, so that somebody can look at it.
    pub(super) fn refuse(&mut self) -> Turn {
        if self.buffer.len() < REFUSED_BYTES && !self.finished {
            return Turn::More;
        }
        self.state = State::Ended;
        self.record(self.buffer.len().min(REFUSED_BYTES), 0)
    }

    /// An array is read element by element, anything else as a whole.
    pub(super) fn one(&mut self) -> Turn {
        self.skip_blanks();
        match self.buffer.get(self.at) {
            None if !self.finished => return Turn::More,
            Some(b'\xef') if self.buffer.len() - self.at < 3 && !self.finished => return Turn::More,
            None => self.state = State::Ended,
            Some(b'[') => self.state = State::Between { punctuation: None },
            Some(_) if self.finished || self.buffer.len() - self.at > self.max_record_bytes => {
                self.state = State::Ended;
                let most = self.buffer.len().min(self.at + self.max_record_bytes);
                let text = &self.buffer[self.at..most];
                if text[0] == b'{' && has_several(text) {
                    self.refusal = Some(Refusal::Several);
                    return Turn::Again;
                }
                let end = self.at + trimmed(text).len();
                return self.record(end, 0);
            }
            Some(_) => return Turn::More,
        }
        Turn::Again
    }

    /// Moves over what stands before a text.
    fn skip_blanks(&mut self) {
        while let Some(byte) = self.buffer.get(self.at) {
            let step = match byte {
                b'\n' => {
                    self.line = self.line.saturating_add(1);
                    1
                }
                byte if is_blank(*byte) => 1,
                _ if self.buffer[self.at..].starts_with(BYTE_ORDER_MARK) => BYTE_ORDER_MARK.len(),
                _ => break,
            };
            self.at += step;
        }
        self.seen = self.at;
    }

    pub(super) fn between(&mut self) -> Turn {
        let State::Between { mut punctuation } = self.state else { return Turn::Again };
        while let Some(&byte) = self.buffer.get(self.seen) {
            match byte {
                b'{' => {
                    self.at = self.seen;
                    self.state = State::Line;
                    return Turn::Again;
                }
                b'[' | b']' | b',' if self.seen - punctuation.unwrap_or(self.seen) < MAX_PUNCTUATION => {
                    punctuation.get_or_insert(self.seen);
                    self.array |= byte == b'[' && self.records == 0;
                }
                b' ' | b'\t' | b'\r' => {}
                _ if ends_a_line(byte) => {
                    self.line = self.line.saturating_add(u32::from(byte == b'\n'));
                    punctuation = None;
                }
                _ if self.buffer[self.seen..].starts_with(BYTE_ORDER_MARK) => self.seen += BYTE_ORDER_MARK.len() - 1,
                _ if BYTE_ORDER_MARK.starts_with(&self.buffer[self.seen..]) && !self.finished => break,
                _ => {
                    self.at = punctuation.unwrap_or(self.seen);
                    self.state = State::Broken { last: b' ' };
                    return Turn::Again;
                }
            }
            self.seen += 1;
            self.at = punctuation.unwrap_or(self.seen);
        }
        self.state = if self.finished { State::Ended } else { State::Between { punctuation } };
        if self.finished { Turn::Again } else { Turn::More }
    }

    /// Nearly every line is one flat object.
    pub(super) fn line(&mut self) -> Turn {
        let longest = self.at + WHOLE_LINE_BYTES.min(self.max_record_bytes);
        let most = self.buffer.len().min(longest);
        let newline = memchr::memchr(b'\n', &self.buffer[self.seen..most]).map(|place| self.seen + place);
        let whole = self.buffer.len() >= longest;
        let end = match newline {
            Some(newline) => newline,
            None if whole => {
                self.seen = self.at;
                most
            }
            None if self.finished => most,
            None => {
                self.seen = most;
                return Turn::More;
            }
        };
        let line = trimmed(&self.buffer[self.at..end]);
        if (newline.is_some() || !whole) && is_flat(line) {
            let end = self.at + line.len();
            self.state = State::Between { punctuation: None };
            return self.record(end, 0);
        }
        self.seen = self.at + 1;
        self.state = State::Object { scan: Object::new(), first_line: None };
        Turn::Again
    }

    pub(super) fn object(&mut self) -> Turn {
        let State::Object { scan, first_line } = &mut self.state else { return Turn::Again };
        let most = self.buffer.len().min(self.at + self.max_record_bytes);
        while self.seen < most {
            let byte = self.buffer[self.seen];
            let step = if byte == b'\n' && self.framing == Framing::Lines { Step::Broken } else { scan.step(byte) };
            match step {
                Step::On if byte == b'\n' => {
                    first_line.get_or_insert(self.seen);
                }
                Step::On => {}
                Step::Closed => {
                    let lines = first_line.map_or(0, |_| newlines(&self.buffer[self.at..self.seen]));
                    self.state = State::Between { punctuation: None };
                    return self.record(self.seen + 1, lines);
                }
                Step::Broken => return self.breaks(),
            }
            self.seen += 1;
        }
        if self.finished || most < self.buffer.len() { self.breaks() } else { Turn::More }
    }

    /// The object turned out to be none, or too long.
    fn breaks(&mut self) -> Turn {
        let State::Object { first_line, .. } = self.state else { return Turn::Again };
        self.state = match first_line {
            Some(newline) => {
                self.seen = newline + 1;
                State::BrokenLines { line: newline + 1, foreign: false }
            }
            None => {
                let last = trimmed(&self.buffer[self.at..self.seen]).last();
                State::Broken { last: last.copied().unwrap_or(b' ') }
            }
        };
        Turn::Again
    }

    /// To the end of the line, or to where `}` meets `{`.
    pub(super) fn broken(&mut self) -> Turn {
        let (skipped, mut last) = match self.state {
            State::Broken { last } => (false, last),
            State::Skipped { last } => (true, last),
            _ => return Turn::Again,
        };
        let most = if skipped { usize::MAX } else { self.at + self.max_record_bytes };
        while self.seen < self.buffer.len().min(most) {
            let byte = self.buffer[self.seen];
            if ends_a_line(byte) || byte == b'{' && last == b'}' {
                self.state = State::Between { punctuation: None };
                if skipped {
                    self.at = self.seen;
                    return Turn::Again;
                }
                let end = self.at + trimmed(&self.buffer[self.at..self.seen]).len();
                return self.record(end, 0);
            }
            if !is_blank(byte) {
                last = byte;
            }
            self.seen += 1;
        }
        let (cut, ends) = (self.seen == most && self.seen < self.buffer.len(), self.finished);
        self.state = match (skipped, cut, ends) {
            (true, _, false) | (false, true, _) => State::Skipped { last },
            (true, _, true) | (false, false, true) => State::Ended,
            (false, false, false) => State::Broken { last },
        };
        if !skipped && (cut || ends) {
            let end = self.at + trimmed(&self.buffer[self.at..self.seen]).len();
            return self.record(end, 0);
        }
        self.at = if skipped { self.seen } else { self.at };
        if ends { Turn::Again } else { Turn::More }
    }

    /// To the next line that begins with a brace: the lines of an object that broke are one record, not one each.
    pub(super) fn broken_lines(&mut self) -> Turn {
        let (skipped, mut line, mut foreign) = match self.state {
            State::BrokenLines { line, foreign } => (false, line, foreign),
            State::SkippedLines { foreign } => (true, self.at, foreign),
            _ => return Turn::Again,
        };
        let most = if skipped { usize::MAX } else { self.at + self.max_record_bytes };
        while self.seen < self.buffer.len().min(most) {
            match self.buffer[self.seen] {
                b'\n' => {
                    (line, foreign) = (self.seen + 1, false);
                    self.line = self.line.saturating_add(u32::from(skipped));
                }
                RECORD_SEPARATOR => return self.end_broken_lines(self.seen, skipped),
                b'{' if !foreign => return self.end_broken_lines(line, skipped),
                b'[' | b']' | b',' => {}
                byte => foreign |= !is_blank(byte),
            }
            self.seen += 1;
        }
        let cut = self.seen == most && self.seen < self.buffer.len();
        if !skipped && (cut || self.finished) {
            let text = &self.buffer[self.at..self.seen];
            let (end, lines) = (self.at + text.len(), newlines(text));
            self.state = if cut { State::SkippedLines { foreign: true } } else { State::Ended };
            return self.record(end, lines);
        }
        if skipped {
            self.at = if foreign { self.seen } else { line };
        }
        self.state = match (skipped, self.finished) {
            (_, true) => State::Ended,
            (true, false) => State::SkippedLines { foreign },
            (false, false) => State::BrokenLines { line, foreign },
        };
        if self.finished { Turn::Again } else { Turn::More }
    }

    fn end_broken_lines(&mut self, end: usize, skipped: bool) -> Turn {
        self.state = State::Between { punctuation: None };
        if skipped {
            (self.at, self.seen) = (end, end);
            return Turn::Again;
        }
        let text = trimmed(&self.buffer[self.at..end]);
        let (end, lines) = (self.at + text.len(), newlines(text));
        self.record(end, lines)
    }

    /// What lies from `at` to `end`, over so many newlines, is a record.
    fn record(&mut self, end: usize, lines: u32) -> Turn {
        self.records = self.records.saturating_add(1);
        let (number, line) = (self.records, self.line);
        self.line = line.saturating_add(lines);
        let payload = self.take(end);
        Turn::Record(Record { number, line, payload })
    }

    /// A large record takes its memory along and leaves a copy of the little that comes after it. A small one is copied:
    /// otherwise the last one that waits would keep all that was read with it.
    fn take(&mut self, end: usize) -> Bytes {
        let start = self.at;
        if end - start >= LARGE_BYTES && end - start >= self.buffer.len() / 2 {
            let rest = self.buffer[end..].to_vec();
            let mut whole = std::mem::replace(&mut self.buffer, rest);
            whole.truncate(end);
            whole.shrink_to_fit();
            (self.at, self.seen) = (0, 0);
            return Bytes::from(whole).slice(start..);
        }
        (self.at, self.seen) = (end, end);
        Bytes::copy_from_slice(&self.buffer[start..end])
    }
}

fn newlines(text: &[u8]) -> u32 {
    u32::try_from(memchr::memchr_iter(b'\n', text).count()).unwrap_or(u32::MAX)
}
