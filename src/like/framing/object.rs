//! Where a JSON object ends, byte by byte.

/// Objects and arrays inside each other, at most. The stack is one number, and no event is nested like this.
const MAX_DEPTH: u32 = u128::BITS;

/// What one byte did to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes on.
    On,
    /// The byte closed it.
    Closed,
    /// The byte cannot stand here.
    Broken,
}

#[derive(Clone, Copy, Debug)]
enum Expects {
    /// A key, or the end of an object that has none.
    FirstKey,
    Key,
    Colon,
    Value,
    /// A value, or the end of an array that has none.
    FirstValue,
    CommaOrEnd,
    /// More of a number or a literal; anything else ends it.
    Scalar,
    Text,
    /// What follows a backslash.
    Escaped,
}

/// A scan of one object. It knows JSON's brackets, texts and commas, and leaves numbers and escapes to whoever decodes: a
/// byte that it calls broken is broken for every reader of JSON.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// A bit for each bracket that is open, the innermost lowest: 1 for an object.
    open: u128,
    depth: u32,
    expects: Expects,
    /// Whether the text that is being read is a key.
    in_key: bool,
}

impl Object {
    /// After its opening brace.
    pub(super) fn new() -> Self {
        Self { open: 1, depth: 1, expects: Expects::FirstKey, in_key: false }
    }

    /// Takes the next byte.
    pub(super) fn step(&mut self, byte: u8) -> Step {
        match self.expects {
            Expects::Text => match byte {
                b'"' => self.expects = if self.in_key { Expects::Colon } else { Expects::CommaOrEnd },
                b'\\' => self.expects = Expects::Escaped,
                0..=0x1f => return Step::Broken,
                _ => {}
            },
            Expects::Escaped => match byte {
                0..=0x1f => return Step::Broken,
                _ => self.expects = Expects::Text,
            },
            Expects::Scalar if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.') => {}
            _ if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') => {
                if matches!(self.expects, Expects::Scalar) {
                    self.expects = Expects::CommaOrEnd;
                }
            }
            Expects::Scalar | Expects::CommaOrEnd => return self.comma_or_end(byte),
            Expects::FirstKey if byte == b'}' => return self.close(),
            Expects::FirstKey | Expects::Key if byte == b'"' => {
                (self.in_key, self.expects) = (true, Expects::Text);
            }
            Expects::Colon if byte == b':' => self.expects = Expects::Value,
            Expects::FirstValue if byte == b']' => return self.close(),
            Expects::FirstValue | Expects::Value => return self.value(byte),
            Expects::FirstKey | Expects::Key | Expects::Colon => return Step::Broken,
        }
        Step::On
    }

    fn value(&mut self, byte: u8) -> Step {
        match byte {
            b'"' => (self.in_key, self.expects) = (false, Expects::Text),
            b'{' | b'[' if self.depth == MAX_DEPTH => return Step::Broken,
            b'{' => {
                (self.open, self.depth) = (self.open << 1 | 1, self.depth + 1);
                self.expects = Expects::FirstKey;
            }
            b'[' => {
                (self.open, self.depth) = (self.open << 1, self.depth + 1);
                self.expects = Expects::FirstValue;
            }
            b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => self.expects = Expects::Scalar,
            _ => return Step::Broken,
        }
        Step::On
    }

    fn comma_or_end(&mut self, byte: u8) -> Step {
        let in_object = self.open & 1 == 1;
        match byte {
            b',' => self.expects = if in_object { Expects::Key } else { Expects::Value },
            b'}' if in_object => return self.close(),
            b']' if !in_object => return self.close(),
            _ => return Step::Broken,
        }
        Step::On
    }

    fn close(&mut self) -> Step {
        (self.open, self.depth) = (self.open >> 1, self.depth - 1);
        self.expects = Expects::CommaOrEnd;
        if self.depth == 0 { Step::Closed } else { Step::On }
    }
}
