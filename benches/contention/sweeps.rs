//! What is varied in the model, and the tables of it.

use crate::model::Case;
use crate::row::{Row, Strategy, rate};
use hotcount::lab::firestore_model::{Assumptions, Ranges};
use hotcount::lab::load::Shape;
use std::sync::Mutex;
use std::time::Duration;

/// Shards enough for 200 lanes: at five a lane, a fifth of the lanes meets another at first.
const SHARDS: u16 = 1_024;

const WRITERS: [usize; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// Transactions at once that one document is given beyond that: then waits grow longer than the lock deadline.
const CROWDS: [usize; 2] = [500, 1_000];

/// Everything that the model shows.
pub(crate) fn model(seed: u64, rows: &mut Vec<Row>) {
    println!("\n## In the model\n\nIt assumes:\n{}", Assumptions::default());
    writers(seed, rows);
    shards(seed, rows);
    batches(seed, rows);
    fresh_shards(seed);
    cold(seed);
    flush_delay(seed);
}

/// Runs each on the next core that is free; the answers are in the order of the cases.
fn run_all(cases: Vec<Case>) -> Vec<Row> {
    let waiting = Mutex::new(cases.iter().enumerate());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..crate::rounds::machine() {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("nobody panics with it").next();
                    let Some((place, case)) = next else { return };
                    let row = case.run();
                    done.lock().expect("nobody panics with it").push((place, row));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("nobody panics with it");
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, row)| row).collect()
}

fn writers(seed: u64, rows: &mut Vec<Row>) {
    println!("\nOne hot post, more and more writers:\n");
    Row::header();
    for strategy in Strategy::ALL {
        let crowds = if strategy == Strategy::Single { &CROWDS[..] } else { &[] };
        let all = WRITERS.iter().chain(crowds);
        let curve = run_all(all.map(|writers| Case::hot_post(strategy, *writers, SHARDS, seed)).collect());
        curve.iter().for_each(Row::print);
        if strategy == Strategy::Hotcount {
            let (first, last) = (&curve[0], &curve[WRITERS.len() - 1]);
            println!(
                "            with {} writers {:.3} of {0} times one writer (target: 0.9), {:.2} % aborted (target: under 1)",
                last.writers,
                last.events_per_s / (first.events_per_s * last.writers as f64),
                last.aborted_share * 100.0
            );
        }
        rows.extend(curve.into_iter().map(|row| Row { in_curve: true, ..row }));
    }
    let many = Case { batch_writes: 50, ..Case::hot_post(Strategy::Hotcount, 2_000, 16_384, seed) };
    let many = many.run();
    many.print();
    rows.push(many);
}

fn shards(seed: u64, rows: &mut Vec<Row>) {
    println!("\nHow many shards for how many writers; the share is of so many times one writer alone:\n");
    println!("{:>7} {:>7} {:>12} {:>8} {:>9}", "writers", "shards", "likes/s", "share", "aborted");
    let amounts = [
        (1, 64),
        (10, 1),
        (10, 16),
        (10, 32),
        (10, 64),
        (50, 64),
        (50, 128),
        (50, 256),
        (100, 256),
        (100, 512),
        (200, 256),
        (200, 512),
    ];
    let cases = amounts.iter().map(|(writers, shards)| Case::hot_post(Strategy::Hotcount, *writers, *shards, seed));
    let measured = run_all(cases.collect());
    let alone = measured[0].events_per_s;
    for row in &measured {
        println!(
            "{:>7} {:>7} {:>12} {:>8.3} {:>7.1} %",
            row.writers,
            row.shards,
            rate(row.events_per_s),
            row.events_per_s / (alone * row.writers as f64),
            row.aborted_share * 100.0
        );
    }
    rows.extend(measured);
}

fn batches(seed: u64, rows: &mut Vec<Row>) {
    println!("\nBatch size, ten writers:\n");
    Row::header();
    let sizes = [3, 12, 52, 102, 252, 500];
    let case = |batch_writes| Case { batch_writes, ..Case::hot_post(Strategy::Hotcount, 10, 64, seed) };
    let measured = run_all(sizes.into_iter().map(case).collect());
    measured.iter().for_each(Row::print);
    rows.extend(measured);
}

fn fresh_shards(seed: u64) {
    println!(
        "\nMany posts (Zipf, 10,000), 64 shards: the lane's shard for all posts of a batch, or a fresh one for each:\n"
    );
    println!("{:>7} {:>16} {:>16} {:>14}", "writers", "lane's, likes/s", "fresh, likes/s", "fresh / lane's");
    let shape = Shape::Zipf { exponent: 1.0 };
    let cases = [1, 4, 16].into_iter().flat_map(|writers| {
        let case = Case { shape, posts: 10_000, ..Case::hot_post(Strategy::Hotcount, writers, 64, seed) };
        [case, Case { fresh_shards: true, ..case }]
    });
    for pair in run_all(cases.collect()).chunks(2) {
        let (kept, fresh) = (&pair[0], &pair[1]);
        println!(
            "{:>7} {:>16} {:>16} {:>14.2}",
            kept.writers,
            rate(kept.events_per_s),
            rate(fresh.events_per_s),
            fresh.events_per_s / kept.events_per_s
        );
    }
}

/// Half an hour from cold.
fn cold(seed: u64) {
    let assumptions = Assumptions { ranges: Ranges::Cold, ..Assumptions::default() };
    println!("\nThe same hot post with 200 writers, from cold. Key ranges are {}:\n", Ranges::Cold);
    let case = Case {
        assumptions,
        warm_up: Duration::ZERO,
        lasts: Duration::from_secs(1_800),
        ..Case::hot_post(Strategy::Hotcount, 200, SHARDS, seed)
    };
    for (part, per_s) in case.run_in_parts(6).into_iter().enumerate() {
        println!("minute {:>2} to {:>2}: {:>8} likes/s", part * 5, part * 5 + 5, rate(per_s));
    }
}

fn flush_delay(seed: u64) {
    println!("\nWhat the flush delay costs and saves: 500 likes/s on one post, one writer:\n");
    println!("{:>9} {:>10} {:>10} {:>14}", "delay ms", "p50 ms", "p99 ms", "writes/M likes");
    let delays = [1, 10, 50, 100, 200, 500, 1_000, 2_000];
    let case = |ms| Case {
        linger: Some(Duration::from_millis(ms)),
        events_per_s: Some(500.0),
        lasts: Duration::from_secs(60),
        ..Case::hot_post(Strategy::Hotcount, 1, 64, seed)
    };
    for (row, ms) in run_all(delays.into_iter().map(case).collect()).iter().zip(delays) {
        println!("{ms:>9} {:>10.1} {:>10.1} {:>14.0}", row.p50_ms, row.p99_ms, row.writes_per_million);
    }
}
