//! The same load by four strategies: one guarded transaction an event on one document and on shards, the engine's
//! batches on one document and on shards. On Google's Firestore emulator, where the guarded transaction really
//! collapses, and in a model of Firestore's contention, where thousands of workers fit on two cores.
//!
//! `cargo bench --bench contention --no-default-features --features firestore -- [only=emulator|model]
//! [writers=1,2,4,8,16,32] [seconds=5] [guarded_seconds=30] [rounds=3] [seed=1] [out=target/contention]`
//!
//! `out` gets `rows.jsonl`, one object for each row of the tables by strategy, and a picture for each backend.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark ends at the first failure")]

#[path = "support/bare.rs"]
mod bare;
#[path = "contention/emulator.rs"]
mod emulator;
#[path = "contention/feed.rs"]
mod feed;
#[path = "contention/meter.rs"]
mod meter;
#[path = "contention/model.rs"]
mod model;
#[path = "contention/plot.rs"]
mod plot;
#[path = "support/rounds.rs"]
#[allow(dead_code, reason = "this benchmark has no round that is left out")]
mod rounds;
#[path = "contention/row.rs"]
mod row;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "contention/sweeps.rs"]
mod sweeps;
#[path = "contention/transaction.rs"]
mod transaction;
#[path = "contention/workers.rs"]
mod workers;

use row::Row;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// What the command line may set.
struct Arguments {
    only: Option<String>,
    writers: Vec<usize>,
    /// How long each run of the engine is measured on the emulator.
    engine: Duration,
    /// How long each run of guarded transactions lasts there: longer, for a transaction may wait for most of a minute.
    guarded: Duration,
    rounds: usize,
    seed: u64,
    out: PathBuf,
}

impl Arguments {
    fn parse() -> Self {
        let mut arguments = Self {
            only: None,
            writers: vec![1, 2, 4, 8, 16, 32],
            engine: Duration::from_secs(5),
            guarded: Duration::from_secs(30),
            rounds: 3,
            seed: 1,
            out: PathBuf::from("target/contention"),
        };
        rounds::arguments(|name, value| {
            let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not '{text}'"));
            match name {
                "only" => arguments.only = Some(value.to_owned()),
                "writers" => arguments.writers = value.split(',').map(|n| number(n) as usize).collect(),
                "seconds" => arguments.engine = Duration::from_secs(number(value)),
                "guarded_seconds" => arguments.guarded = Duration::from_secs(number(value)),
                "rounds" => arguments.rounds = number(value) as usize,
                "seed" => arguments.seed = number(value),
                "out" => arguments.out = PathBuf::from(value),
                other => panic!("there is no argument '{other}'"),
            }
        });
        arguments
    }

    fn wants(&self, what: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == what)
    }
}

/// Post, user and event id of event `n` of the bare loop: all distinct, all on one post.
fn events_of(n: usize) -> (&'static str, String, String) {
    ("post-0", format!("user-{n}"), format!("{n:08x}-0000-4000-8000-{n:012x}"))
}

fn main() {
    let arguments = Arguments::parse();
    println!("{} cores, shared with the emulator where there is one; seed {}", rounds::machine(), arguments.seed);
    let mut rows = Vec::new();
    if arguments.wants("emulator") {
        // Asking for an emulator that is required and missing panics, after it has said how to get it.
        if let Some(host) = support::emulators::firestore() {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            runtime.block_on(emulator::emulator(&host, &arguments, &mut rows));
        }
    }
    if arguments.wants("model") {
        sweeps::model(arguments.seed, &mut rows);
    }
    write_out(&arguments.out, &rows);
}

fn write_out(out: &PathBuf, rows: &[Row]) {
    std::fs::create_dir_all(out).expect("the folder can be made");
    let lines = rows.iter().fold(String::new(), |mut lines, row| {
        writeln!(lines, "{}", serde_json::to_string(row).expect("numbers and names")).expect("a string takes it");
        lines
    });
    std::fs::write(out.join("rows.jsonl"), lines).expect("the file can be written");
    for (backend, title) in [
        ("emulator", "One hot post on the Firestore emulator"),
        ("model", "One hot post in the model, key ranges warmed up"),
    ] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.backend == backend && row.in_curve).collect();
        if !rows.is_empty() {
            plot::draw(&out.join(format!("{backend}.svg")), title, &rows).expect("the picture can be drawn");
        }
    }
    println!("\nrows and pictures are in {}", out.display());
}
