//! The real worker, killed. `docs/testing.md` says what this covers; `cargo test --test killed -- --help` says how to run
//! it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]

mod audit;
mod child;
mod events;
#[path = "../support/faults.rs"]
#[allow(dead_code, reason = "shared by several test binaries")]
mod faults;
mod kill;
#[path = "../support/libtest.rs"]
mod libtest;
mod options;
mod place;
#[path = "../support/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]
mod process;
mod restarts;
mod round;
mod sender;
#[path = "../support/mod.rs"]
mod support;
mod trap;

use clap::Parser;
use kill::Kill;
use options::Options;
use place::Way;
use round::{Done, KILLS, round};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const ROUNDS: &str = "however_a_worker_is_killed_the_counts_follow_from_the_events_alone";

/// So many kills show every moment on every way: eleven of them on four, three in a round.
const KILLS_FOR_EVERY_MOMENT: u64 = 48;

const RESTARTS: &str = "workers_replaced_under_load_leave_no_dead_letter";
const OUTAGE: &str = "a_store_that_is_away_leaves_no_dead_letter";

/// How often the progress is told.
const EVERY: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if let Some(ended) = child::run() {
        return ended;
    }
    let options = Options::parse();
    if options.list {
        [ROUNDS, RESTARTS, OUTAGE].iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let runtime = Runtime::new().unwrap();
    let checked = match options.seed {
        Some(seed) => guarded(|| runtime.block_on(round(seed, true)).map(drop)).map(drop),
        None => all(&options, &runtime),
    };
    match checked {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("FAILED: {what}");
            ExitCode::FAILURE
        }
    }
}

/// All checks at once: most of each is waiting.
fn all(options: &Options, runtime: &Runtime) -> Result<(), String> {
    let told = |name: &str, check: &dyn Fn() -> Option<String>| {
        let begun = Instant::now();
        let said = guarded(check).map_err(|what| format!("{name}: {what}"))?;
        if let Some(said) = said {
            println!("{name}: ok in {:.0} s, {said}", begun.elapsed().as_secs_f64());
        }
        Ok(())
    };
    let restarts = || match options.wants(RESTARTS) {
        true => told(RESTARTS, &|| runtime.block_on(restarts::rolling(options.restarts, options.from))),
        false => Ok(()),
    };
    let outage = || match options.wants(OUTAGE) {
        true => {
            told(OUTAGE, &|| runtime.block_on(restarts::outage(Duration::from_secs(options.outage_s), options.from)))
        }
        false => Ok(()),
    };
    std::thread::scope(|scope| {
        let others = [scope.spawn(restarts), scope.spawn(outage)];
        let rounds = if options.wants(ROUNDS) { rounds(options, runtime) } else { Ok(()) };
        others.into_iter().map(|other| other.join().unwrap()).fold(rounds, Result::and)
    })
}

/// A panic as a sentence; where it happened was told already.
fn guarded<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// Many rounds, several at once, until one fails.
fn rounds(options: &Options, runtime: &Runtime) -> Result<(), String> {
    let rounds = options.kills.div_ceil(KILLS);
    let (begun, next, ended) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let (total, failure) = (Mutex::new(Done::new()), Mutex::new(None::<String>));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.at_once.max(1))
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= rounds {
                            return;
                        }
                        let seed = options.from + number;
                        match guarded(|| runtime.block_on(round(seed, false))) {
                            Ok(done) => {
                                ended.fetch_add(1, Ordering::Relaxed);
                                for (what, times) in done.unwrap_or_default() {
                                    *total.lock().unwrap().entry(what).or_default() += times;
                                }
                            }
                            Err(what) => {
                                // Nobody needs to begin another one.
                                next.store(rounds, Ordering::Relaxed);
                                let replay = format!("replay it with: cargo test --test killed -- --seed {seed}");
                                failure.lock().unwrap().get_or_insert(format!("seed {seed}: {what}\n{replay}"));
                            }
                        }
                    }
                })
            })
            .collect();
        let mut told = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= EVERY {
                told = Instant::now();
                let (ended, seconds) = (ended.load(Ordering::Relaxed), begun.elapsed().as_secs());
                eprintln!("{} of {} kills audited, {seconds} s", ended * KILLS, rounds * KILLS);
            }
        }
    });
    if let Some(what) = failure.into_inner().unwrap() {
        return Err(what);
    }
    let total = total.into_inner().unwrap();
    let kills: u64 = total.values().sum();
    println!("{ROUNDS}: ok, {kills} kills in {:.0} s", begun.elapsed().as_secs_f64());
    let (rows, missing) = table(&total);
    print!("{rows}");
    if kills >= KILLS_FOR_EVERY_MOMENT && !missing.is_empty() {
        return Err(format!("these never happened, so nothing was shown about them: {}", missing.join("; ")));
    }
    Ok(())
}

/// A row a way, and what is missing in it.
fn table(total: &Done) -> (String, Vec<String>) {
    let (mut rows, mut missing) = (String::new(), Vec::new());
    for way in Way::ALL {
        let times = |kill: &Kill| total.get(&(way, *kill)).copied().unwrap_or_default();
        let kills = Kill::all(way);
        let row: Vec<String> = kills.iter().map(|kill| format!("{kill:?} {}", times(kill))).collect();
        rows += &format!("  {way:?}: {}\n", row.join(" · "));
        missing.extend(kills.iter().filter(|kill| times(kill) == 0).map(|kill| format!("{way:?} {kill:?}")));
    }
    (rows, missing)
}
