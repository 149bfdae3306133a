//! Text for a terminal that came from strangers: what would move its cursor, change its title, break its rows or turn its
//! direction is written out instead.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a terminal, or an eye, takes the character for something else than a character.
fn is_special(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// One piece of a line, on one line.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Lines: only their own newlines stay.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let special = |c: char| is_special(c) && !stays(c);
    if !text.contains(special) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !special(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    out.into()
}

/// Standard error for logs: an event a write, whose last newline stays. The formatter's own colours stay where it has any.
pub(crate) struct PlainStderr {
    pub(crate) coloured: bool,
}

impl Write for PlainStderr {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (body, end) = text.strip_suffix('\n').map_or((&*text, ""), |body| (body, "\n"));
        let mut out = String::with_capacity(text.len());
        let mut rest = body;
        while self.coloured
            && let Some(at) = rest.find("\u{1b}[")
        {
            let codes = rest[at + 2..].find(|c: char| !c.is_ascii_digit() && c != ';').map(|end| at + 2 + end);
            let Some(end) = codes.filter(|&end| rest[end..].starts_with('m')) else { break };
            out.push_str(&plain(&rest[..at]));
            out.push_str(&rest[at..=end]);
            rest = &rest[end + 1..];
        }
        out.push_str(&plain(rest));
        out.push_str(end);
        io::stderr().write_all(hotcount::common::adapter_url::without_passwords(&out).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (text, expected) in [
            ("plain é 日本 👍", "plain é 日本 👍"),
            ("p\u{1b}[2J\u{1b}]0;owned\u{7}x", "p\\u{1b}[2J\\u{1b}]0;owned\\u{7}x"),
            ("a\nb\r\tc\u{7f}\u{9b}", "a\\nb\\r\\tc\\u{7f}\\u{9b}"),
            (
                "\u{202e}a\u{2066}b\u{200f}\u{2028}\u{feff}\u{e0041}",
                "\\u{202e}a\\u{2066}b\\u{200f}\\u{2028}\\u{feff}\\u{e0041}",
            ),
        ] {
            assert_eq!(plain(text), expected);
        }
        assert_eq!(plain_lines("a\nb\u{1b}"), "a\nb\\u{1b}");
    }
}
