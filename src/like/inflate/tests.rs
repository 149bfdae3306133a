//! What was packed comes out as it was, in chunks, or with the reason why not.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::Write;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

/// All that comes out of `packed`, pushed in chunks of that many bytes.
fn unpack(packed: &[u8], chunk: usize, limit_bytes: u64) -> (Vec<u8>, Result<(), InflateError>) {
    let coding = Coding::of(packed).expect("its first bytes say what it is");
    let mut inflate = Inflate::new(coding, limit_bytes);
    let mut text = Vec::new();
    let mut chunks = packed.chunks(chunk);
    loop {
        let ended = match chunks.next() {
            Some(chunk) => {
                inflate.push(chunk);
                false
            }
            None => {
                inflate.finish();
                true
            }
        };
        loop {
            match inflate.next_chunk() {
                Ok(Some(chunk)) => {
                    assert!(chunk.len() <= PIECE_BYTES);
                    text.extend_from_slice(chunk);
                }
                Ok(None) => break,
                Err(error) => return (text, Err(error)),
            }
            assert!(inflate.held_bytes() < packed.len() + (10 << 20), "{} bytes", inflate.held_bytes());
        }
        if ended {
            return (text, Ok(()));
        }
    }
}

fn some_text(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (50 + n % 9)) as u8).collect()
}

#[test]
fn what_was_packed_comes_out_however_it_is_pushed() {
    for bytes in [0, 1, 100, 70_000, 300_000] {
        let text = some_text(bytes);
        for packed in [gzip(&text), zstd(&text)] {
            for chunk in [1, 7, 4_096, usize::MAX] {
                assert_eq!(unpack(&packed, chunk, u64::MAX), (text.clone(), Ok(())), "{bytes} in chunks of {chunk}");
            }
        }
    }
}

#[test]
fn members_and_frames_follow_each_other() {
    let text = [b"one\n".as_slice(), b"two\n", b"three\n"].map(<[u8]>::to_vec);
    let skippable = [&b"\x5a\x2a\x4d\x18\x03\0\0\0"[..], b"abc"].concat();
    for packed in [
        text.each_ref().map(|text| gzip(text)).concat(),
        [gzip(&text[0]), gzip(b""), gzip(&text[1..].concat()), vec![0; 700]].concat(),
        text.each_ref().map(|text| zstd(text)).concat(),
        [skippable.clone(), zstd(&text[0]), skippable, zstd(&text[1..].concat())].concat(),
    ] {
        for chunk in [1, 5, usize::MAX] {
            assert_eq!(unpack(&packed, chunk, u64::MAX), (text.concat(), Ok(())));
        }
    }
}

#[test]
fn a_header_of_gzip_may_have_every_part() {
    let plain = gzip(b"text");
    let header = b"\x1f\x8b\x08\x1e\0\0\0\0\0\x03\x05\0extraname\0comment\0\x12\x34";
    let packed = [&header[..], &plain[10..]].concat();
    for chunk in [1, usize::MAX] {
        assert_eq!(unpack(&packed, chunk, u64::MAX), (b"text".to_vec(), Ok(())));
    }
}

#[test]
fn an_end_that_is_missing_is_said_and_what_was_before_it_comes_out() {
    let text = some_text(300_000);
    for (packed, coding) in [(gzip(&text), Coding::Gzip), (zstd(&text), Coding::Zstd)] {
        for cut in [4, 11, packed.len() / 2, packed.len() - 5, packed.len() - 1] {
            let (got, end) = unpack(&packed[..cut], 1_000, u64::MAX);
            assert_eq!(end, Err(InflateError::Truncated(coding)), "cut at {cut}");
            assert!(text.starts_with(&got) && (cut < packed.len() / 2 || got.len() > 50_000), "{}", got.len());
        }
    }
}

#[test]
fn damage_is_said() {
    let text = some_text(10_000);
    for packed in [gzip(&text), zstd(&text)] {
        let mut wrong_sum = packed.clone();
        let sum = if Coding::of(&packed) == Some(Coding::Gzip) { packed.len() - 6 } else { packed.len() - 1 };
        wrong_sum[sum] ^= 1;
        let follows = [packed.clone(), b"{\"eventId\":\"e\"}".to_vec()].concat();
        for damaged in [wrong_sum, follows] {
            let (got, end) = unpack(&damaged, 100, u64::MAX);
            assert!(matches!(end, Err(InflateError::Damaged(..))), "{end:?}");
            assert_eq!(got, text);
        }
    }
}

#[test]
fn a_few_bytes_that_stand_for_many_end_at_the_limit() {
    let text = vec![0; 40 << 20];
    // A frame whose blocks repeat a zero 128 KiB long, four bytes each.
    let mut blocks = b"\x28\xb5\x2f\xfd\x00\x38".to_vec();
    blocks.extend(b"\x02\0\x10\0".repeat(1_000));
    for packed in [gzip(&text), blocks] {
        let (got, end) = unpack(&packed, usize::MAX, 1 << 20);
        assert_eq!(end, Err(InflateError::TooLarge(1 << 20)));
        assert!(got.len() <= 1 << 20);
    }
}

#[test]
fn a_window_that_is_too_large_is_refused_with_what_to_do() {
    let (_, end) = unpack(b"\x28\xb5\x2f\xfd\x00\xa0\x01\0\0", 100, u64::MAX);
    assert!(end.unwrap_err().to_string().contains("zstd -d"));
}

proptest! {
    #[test]
    fn any_change_of_packed_bytes_ends_and_never_panics(
        text in prop::collection::vec(any::<u8>(), 0..2_000), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        zstandard in any::<bool>(), chunk in 1..300_usize,
    ) {
        let text: Vec<u8> = text.iter().map(|byte| byte % 16).collect();
        let mut packed = if zstandard { zstd(&text) } else { gzip(&text) };
        let at = 4 + at.index(packed.len() - 4);
        packed[at] = byte;
        let _ = unpack(&packed, chunk, 1 << 20);
    }
}
