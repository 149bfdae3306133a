//! A text of events, read in chunks of any size. Wherever a chunk ends, the records are the same; and where the text is
//! plain JSON, they are what a plain reading finds.

use bytes::Bytes;
use hotcount::like::framing::{Framer, Framing, Record, Refusal};
use hotcount::like::inflate::Coding;
use hotcount::source::Source;
use hotcount::source::jsonl::Jsonl;
use serde_json::Value;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// The source reads blocks of this size; an input with its highest bit set is moved to the border of two.
const BLOCK_BYTES: usize = 256 << 10;

const MAX_RECORD_BYTES: usize = 10 << 20;

/// The first byte says how the text is read, the rest is the text.
pub fn lines(data: &[u8]) {
    let Some((how, text)) = data.split_first() else { return };
    let (chunk, max) = (usize::from(how & 7) + 1, usize::from(how >> 3 & 7) + 1);
    let far = how & 64 != 0;
    let mut file = vec![b'x'; if far { BLOCK_BYTES - text.len().min(9) } else { 0 }];
    let near = file.len();
    file.extend_from_slice(text);
    for framing in [Framing::Lines, Framing::Sequence, Framing::Objects, Framing::One] {
        // A small limit, so that records are cut too.
        for most in [1 << 10, MAX_RECORD_BYTES] {
            let whole = cut(framing, text, text.len().max(1), most);
            assert!(cut(framing, text, chunk, most) == whole, "{framing:?} in chunks of {chunk}");
            assert!(whole.0.iter().all(|record| record.payload.len() <= most && !record.payload.is_empty()));
        }
    }
    agrees_with_a_plain_reading(text);
    let expected: Vec<Bytes> = cut(Framing::Objects, &file, file.len().max(1), MAX_RECORD_BYTES)
        .0
        .into_iter()
        .map(|record| record.payload)
        .collect();
    if Coding::of(&file).is_none() {
        let mut chunks: VecDeque<Vec<u8>> = file[..near].chunks(BLOCK_BYTES / 2).map(<[u8]>::to_vec).collect();
        chunks.extend(file[near..].chunks(chunk).map(<[u8]>::to_vec));
        let got = super::block_on(delivered(chunks, max));
        assert!(got == expected, "{} records instead of {}", got.len(), expected.len());
    }
}

/// The records of a text that is pushed in chunks, and why there are none.
fn cut(framing: Framing, text: &[u8], chunk: usize, most: usize) -> (Vec<Record>, Option<Refusal>, bool) {
    let mut framer = Framer::new(framing, most);
    let mut records = Vec::new();
    for chunk in text.chunks(chunk) {
        framer.push(chunk);
        records.extend(std::iter::from_fn(|| framer.next_record()));
        let held = framer.held_bytes();
        assert!(held <= 2 * (most + chunk.len()) + (1 << 20), "{held} bytes held");
    }
    framer.finish();
    records.extend(std::iter::from_fn(|| framer.next_record()));
    (records, framer.refusal(), framer.many())
}

fn agrees_with_a_plain_reading(text: &[u8]) {
    let (of_lines, refusal, _) = cut(Framing::Lines, text, text.len().max(1), MAX_RECORD_BYTES);
    if refusal.is_some() {
        return;
    }
    let is_object = |text: &[u8]| matches!(serde_json::from_slice(text), Ok(Value::Object(_)));
    // A line that is an object is a record, whatever the other lines are.
    let good = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| is_object(line));
    let mut records = of_lines.iter().map(|record| &record.payload[..]);
    for line in good {
        assert!(records.any(|record| record == line), "the line {} is no record", line.escape_ascii());
    }
    // Objects that follow each other are the records, however they do.
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let mut objects = Vec::new();
    let mut from = 0;
    while let Some(value) = values.next() {
        let Ok(Value::Object(_)) = value else { return };
        objects.push(text[from..values.byte_offset()].trim_ascii());
        from = values.byte_offset();
    }
    for framing in [Framing::Sequence, Framing::Objects] {
        let (records, ..) = cut(framing, text, text.len().max(1), MAX_RECORD_BYTES);
        assert!(records.iter().map(|record| &record.payload[..]).eq(objects.iter().copied()), "{framing:?}");
    }
}

async fn delivered(chunks: VecDeque<Vec<u8>>, max: usize) -> Vec<Bytes> {
    let mut got = Vec::new();
    let mut stream = Jsonl::new("a file", Pieces(chunks)).open(0).await.expect("opened for the first time");
    loop {
        let deliveries = stream.pull(max).await.expect("memory can be read");
        assert!(deliveries.len() <= max);
        if deliveries.is_empty() {
            return got;
        }
        got.extend(deliveries.into_iter().map(|delivery| delivery.payload));
    }
}

/// Every read gives one chunk.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if let Some(mut chunk) = self.0.pop_front() {
            let rest = chunk.split_off(chunk.len().min(into.remaining()));
            into.put_slice(&chunk);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}
