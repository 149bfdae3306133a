//! What a text is by its first bytes, where it is nothing that events could be read from.

/// First bytes that decide.
pub(super) const DECIDE_BYTES: usize = 16;

/// Why a text as a whole holds no events. Says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Text of two or four bytes a letter.
    #[error("the text is UTF-16 or UTF-32; events are JSON in UTF-8, so convert it first, for instance with iconv")]
    Utf16,
    /// Compressed, and nobody has said so or unpacked it.
    #[error("the bytes are compressed ({0}); unpack them first, or send gzip or zstd with its Content-Encoding")]
    Compressed(&'static str),
    /// A format that is no text of events.
    #[error("the bytes are {0}, not events in JSON")]
    Foreign(&'static str),
    /// Several objects where one was announced.
    #[error("the body has more than one JSON object; send lines as application/x-ndjson, or a JSON array")]
    Several,
}

/// Formats that are told by their first bytes.
const MAGIC: &[(&[u8], Refusal)] = &[
    (b"\xff\xfe", Refusal::Utf16),
    (b"\xfe\xff", Refusal::Utf16),
    (b"\0\0\xfe\xff", Refusal::Utf16),
    (b"\x1f\x8b", Refusal::Compressed("gzip")),
    (b"\x28\xb5\x2f\xfd", Refusal::Compressed("zstd")),
    (b"BZh", Refusal::Compressed("bzip2")),
    (b"\xfd7zXZ\0", Refusal::Compressed("xz")),
    (b"\x04\x22\x4d\x18", Refusal::Compressed("lz4")),
    (b"\xff\x06\0\0sNaPpY", Refusal::Compressed("snappy")),
    (b"PK\x03\x04", Refusal::Foreign("a zip archive")),
    (b"PAR1", Refusal::Foreign("a Parquet file")),
    (b"Obj\x01", Refusal::Foreign("an Avro file")),
    (b"SQLite format 3", Refusal::Foreign("an SQLite database")),
    (b"%PDF", Refusal::Foreign("a PDF")),
    (b"<?xml", Refusal::Foreign("XML")),
    (b"<!DOCTYPE", Refusal::Foreign("HTML")),
    (b"<!doctype", Refusal::Foreign("HTML")),
    (b"<html", Refusal::Foreign("HTML")),
];

impl Refusal {
    /// Looks at the first bytes of a text, `DECIDE_BYTES` where it has as many.
    #[must_use]
    pub fn of(first: &[u8]) -> Option<Self> {
        let known = MAGIC.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, refusal)| *refusal);
        known.or_else(|| is_utf16(first).then_some(Self::Utf16))
    }
}

/// ASCII in UTF-16 without a byte order mark: every second byte is zero. Padding has zeros side by side.
fn is_utf16(first: &[u8]) -> bool {
    let (pairs, _) = first[..first.len().min(DECIDE_BYTES)].as_chunks::<2>();
    pairs.len() > 1
        && (pairs.iter().all(|pair| matches!(pair, [1..=0x7f, 0]))
            || pairs.iter().all(|pair| matches!(pair, [0, 1..=0x7f])))
}
