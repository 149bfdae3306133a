//! What one core spends on an event before the store, against `serde_json`'s typed parse of the same line in the same
//! run.
//!
//! `cargo bench --bench aggregate --no-default-features [-- events=N rounds=N only=ROW]`; with `only`, a row from 0, an
//! instruction counter such as callgrind can be put in front.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a benchmark whose parts cannot be set up has nothing to say"
)]

use hotcount::engine::aggregate::{Added, Aggregator, Config};
use hotcount::like::batch::BatchKey;
use hotcount::like::event::{OrderPolicy, decode};
use serde::Deserialize;
use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Instant, SystemTime};

#[path = "support/events.rs"]
mod events;

/// Likes a seal, as the target says.
const SEAL: usize = 500;

/// The event as a user would declare it: every field typed and borrowed where it can be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Typed<'a> {
    #[serde(borrow)]
    event_id: Cow<'a, str>,
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    post_id: Cow<'a, str>,
    #[serde(borrow)]
    user_id: Cow<'a, str>,
    #[serde(borrow)]
    occurred_at: Cow<'a, str>,
}

fn main() {
    let argument =
        |name: &str| std::env::args().find_map(|a| a.strip_prefix(name)?.strip_prefix('=')?.parse::<usize>().ok());
    let rounds = argument("rounds").unwrap_or(7);
    let runs = |row: usize| argument("only").is_none_or(|only| only == row);
    let text = events::jsonl(argument("events").unwrap_or(1_000_000), 1);
    let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
    let seen_at = SystemTime::now();
    println!(
        "{} events, {} bytes each, one core, median of {rounds} rounds, ns an event",
        lines.len(),
        text.len() / lines.len()
    );

    let mut rows: Vec<(&str, Vec<f64>)> =
        ["typed parse (serde_json, borrowed)", "decode", "decode + aggregate, no window", "decode + aggregate"]
            .map(|name| (name, Vec::new()))
            .into();
    for _ in 0..rounds {
        if runs(0) {
            rows[0].1.push(per_event(&lines, |line| {
                let event: Typed<'_> = serde_json::from_slice(line).expect("a typed event");
                black_box((&event.event_id, &event.r#type, &event.post_id, &event.user_id, &event.occurred_at));
            }));
        }
        if runs(1) {
            rows[1].1.push(per_event(&lines, |line| {
                black_box(decode(line, OrderPolicy::OccurredAt, seen_at).expect("an event"));
            }));
        }
        for (row, recent_likes) in [(2, 0), (3, Config::default().recent_likes)] {
            if !runs(row) {
                continue;
            }
            // Room for as many posts as likes, so that one seal takes them all.
            let config = Config { recent_likes, max_writes: 4 * SEAL, ..Config::default() };
            let buffer: Aggregator<()> = Aggregator::new(config);
            let now = Instant::now();
            let (mut waiting, mut sealed) = (0, 0_u64);
            let started = Instant::now();
            // As a puller does: some deliveries at once.
            for pulled in lines.chunks(SEAL / 4) {
                let mut adder = buffer.adder(now);
                for line in pulled {
                    let like = decode(line, OrderPolicy::OccurredAt, seen_at).expect("an event");
                    waiting += usize::from(adder.add(like, ()) == Added::Buffered);
                }
                drop(adder);
                if waiting >= SEAL {
                    waiting = 0;
                    sealed += 1;
                    while let Some(batch) = buffer.seal(BatchKey::from_random(u128::from(sealed))) {
                        if recent_likes > 0 {
                            buffer.remember(batch.batch());
                        }
                        black_box(batch);
                    }
                }
            }
            rows[row].1.push(started.elapsed().as_nanos() as f64 / lines.len() as f64);
        }
    }
    let base = median(&mut rows[0].1);
    for (name, mut times) in rows.into_iter().filter(|(_, times)| !times.is_empty()) {
        let ns = median(&mut times);
        println!("{name:<36} {ns:>7.1}   {:>5.2} × typed parse", ns / base);
    }
}

fn per_event(lines: &[&[u8]], mut work: impl FnMut(&[u8])) -> f64 {
    let started = Instant::now();
    lines.iter().for_each(|line| work(line));
    started.elapsed().as_nanos() as f64 / lines.len() as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
