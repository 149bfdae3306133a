//! A file of events, read in pieces of any size. Wherever a piece ends, the lines are the same.

use hotcount::source::Source;
use hotcount::source::jsonl::Jsonl;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// The source reads blocks of this size; an input with its highest bit set is moved to the border of two.
const BLOCK_BYTES: usize = 256 << 10;

/// The first byte says how the file is read, the rest is the file.
pub fn lines(data: &[u8]) {
    let Some((how, text)) = data.split_first() else { return };
    let (piece, max) = (usize::from(how & 7) + 1, usize::from(how >> 3 & 7) + 1);
    let far = how & 64 != 0;
    let mut file = vec![b'x'; if far { BLOCK_BYTES - text.len().min(9) } else { 0 }];
    let near = file.len();
    file.extend_from_slice(text);
    let expected: Vec<Vec<u8>> = file
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.iter().all(u8::is_ascii_whitespace))
        .map(<[u8]>::to_vec)
        .collect();
    let mut pieces: VecDeque<Vec<u8>> = file[..near].chunks(BLOCK_BYTES / 2).map(<[u8]>::to_vec).collect();
    pieces.extend(file[near..].chunks(piece).map(<[u8]>::to_vec));
    let got = super::block_on(async move {
        let mut got: Vec<Vec<u8>> = Vec::new();
        let mut stream = Jsonl::new("a file", Pieces(pieces)).open(0).await.expect("opened for the first time");
        loop {
            let deliveries = stream.pull(max).await.expect("memory can be read");
            assert!(deliveries.len() <= max);
            if deliveries.is_empty() {
                return got;
            }
            got.extend(deliveries.into_iter().map(|delivery| delivery.payload.to_vec()));
        }
    });
    assert!(got == expected, "{} lines instead of {}", got.len(), expected.len());
}

/// Every read gives one piece.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(into.remaining()));
            into.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}
