//! Events for benchmarks: half of them on one post, 27 % duplicates (redeliveries and double clicks), by seed.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write;

/// `events` lines of JSON.
pub(crate) fn jsonl(events: usize, seed: u64) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut text = String::with_capacity(events * 160);
    let mut starts = Vec::with_capacity(events);
    let mut line = String::new();
    for n in 0..events {
        let again = n > 100 && rng.random_bool(0.27);
        if again {
            // Most duplicates follow soon; some much later.
            let back = if rng.random_bool(0.8) { rng.random_range(1..=100) } else { rng.random_range(1..=n) };
            let start: usize = starts[n - back];
            let end = text[start..].find('\n').map_or(text.len(), |at| start + at + 1);
            line.clear();
            line.push_str(&text[start..end]);
            starts.push(text.len());
            text.push_str(&line);
            continue;
        }
        starts.push(text.len());
        let post = if rng.random_bool(0.5) { 0 } else { rng.random_range(1..10_000) };
        let micros = 1_000_000 + n % 9_000_000;
        let _ = writeln!(
            text,
            r#"{{"eventId":"{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}","type":"like.added","postId":"post-{post}","userId":"user-{}","occurredAt":"2026-01-01T{:02}:{:02}:{:02}.{micros:07}Z"}}"#,
            rng.random::<u32>(),
            rng.random::<u16>(),
            rng.random_range(0..4096),
            rng.random_range(0..4096),
            rng.random_range(0..1_u64 << 48),
            n,
            n / 3_600_000 % 24,
            n / 60_000 % 60,
            n / 1_000 % 60,
        );
    }
    text.into_bytes()
}
