//! A deterministic simulation of the whole engine, and the planted bugs that show that it can fail. `docs/testing.md`
//! says what it covers; `cargo test --test simulation -- --help` says how to run it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod auditor;
mod broker;
mod calls;
mod documents;
mod events;
#[path = "../support/libtest.rs"]
mod libtest;
mod life;
mod mutants;
mod options;
mod plan;
mod rpc;
mod run;
mod seen;
mod stores;
mod subscription;
mod trouble;
mod workers;
mod world;

use clap::Parser;
use mutants::Mutant;
use options::Options;
use run::{Outcome, run};
use seen::Seen;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

const REPLAYS: &str = "a_seed_replays_exactly";
const SEEDS: &str = "whatever_fails_and_whenever_a_worker_stops_the_counts_follow_from_the_events_alone";

/// A planted bug must be caught within so many seeds.
const SEEDS_A_DOUBLE: u64 = 200;

/// Seeds that are run twice.
const SEEDS_TWICE: u64 = 50;

/// So many seeds show every kind of fault; fewer may miss some.
const SEEDS_FOR_EVERY_FAULT: u64 = 2_000;

/// How often the progress is told.
const EVERY: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        checks().iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = options.seed {
        let outcome = run(seed, options.double, true);
        println!("seed {seed}: hash {:016x}", outcome.hash);
        return match outcome.violation {
            Some((what, _)) => failed(&what),
            None => ExitCode::SUCCESS,
        };
    }
    match all(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => failed(&what),
    }
}

fn failed(what: &str) -> ExitCode {
    eprintln!("FAILED: {what}");
    ExitCode::FAILURE
}

fn checks() -> Vec<&'static str> {
    let mutants = Mutant::ALL.iter().map(|(_, name)| *name);
    std::iter::once(REPLAYS).chain(mutants).chain([SEEDS]).collect()
}

fn all(options: &Options) -> Result<(), String> {
    if options.wants(REPLAYS) {
        replays()?;
        println!("{REPLAYS}: ok, {SEEDS_TWICE} seeds twice");
    }
    for (double, name) in Mutant::ALL {
        if options.wants(name) {
            let (seed, what) = (0..SEEDS_A_DOUBLE)
                .find_map(|seed| Some((seed, run(seed, Some(double), false).violation?.0)))
                .ok_or_else(|| format!("{name}: not within {SEEDS_A_DOUBLE} seeds"))?;
            println!("{name}: ok, by seed {seed}: {what}");
        }
    }
    if options.wants(SEEDS) { seeds(options) } else { Ok(()) }
}

/// Two runs of a seed, on two threads, do exactly the same.
fn replays() -> Result<(), String> {
    let hashes = || (0..SEEDS_TWICE).map(|seed| run(seed, None, false).hash).collect::<Vec<_>>();
    let here = hashes();
    let there = std::thread::scope(|scope| scope.spawn(hashes).join().expect("no panic"));
    match here.iter().zip(&there).position(|(here, there)| here != there) {
        Some(seed) => Err(format!("seed {seed} is not the same twice: {:016x} and {:016x}", here[seed], there[seed])),
        None => Ok(()),
    }
}

/// Many seeds, on all cores, until one fails.
fn seeds(options: &Options) -> Result<(), String> {
    let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let (began, next, total) = (Instant::now(), AtomicU64::new(0), Mutex::new(Seen::default()));
    let (failing, failures) = mpsc::channel::<(u64, Outcome)>();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (next, total, failing) = (&next, &total, failing.clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.seeds {
                        return;
                    }
                    let outcome = run(options.from + number, None, false);
                    *total.lock().expect("no panic") += &outcome.seen;
                    if outcome.violation.is_some() {
                        // Nobody needs to begin another one.
                        next.store(options.seeds, Ordering::Relaxed);
                        let _ = failing.send((options.from + number, outcome));
                    }
                }
            });
        }
        drop(failing);
        let mut first: Option<(u64, Outcome)> = None;
        loop {
            match failures.recv_timeout(EVERY) {
                Ok(failure) => {
                    if first.as_ref().is_none_or(|(seed, _)| failure.0 < *seed) {
                        first = Some(failure);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let begun = next.load(Ordering::Relaxed).min(options.seeds);
                    eprintln!("{begun} of {} seeds begun, {:.0} s", options.seeds, began.elapsed().as_secs_f64());
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        match first {
            Some((seed, outcome)) => Err(described(seed, outcome)),
            None => Ok(()),
        }
    })?;
    let total = total.into_inner().expect("no panic");
    let seconds = began.elapsed().as_secs_f64();
    if options.json {
        let mut summary = total.json();
        summary["seeds"] = options.seeds.into();
        summary["elapsed_s"] = seconds.into();
        println!("{summary}");
    } else {
        println!("{SEEDS}: ok, {} seeds in {seconds:.0} s", options.seeds);
        print!("{}", total.table());
    }
    let missing = total.missing();
    if options.seeds >= SEEDS_FOR_EVERY_FAULT && !missing.is_empty() {
        return Err(format!("these never happened, so nothing was shown about them: {}", missing.join("; ")));
    }
    Ok(())
}

fn described(seed: u64, outcome: Outcome) -> String {
    let (what, lines) = outcome.violation.unwrap_or_default();
    format!("{}\nseed {seed}: {what}\nreplay it with: cargo test --test simulation -- --seed {seed}", lines.join("\n"))
}
