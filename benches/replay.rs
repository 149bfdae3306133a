//! The whole way from a file to the embedded store, beside a bare SQLite loop and beside the parse alone, in one run.
//!
//! Half of the events are of one post and 27 % are duplicates. The engine reads the file, decodes, folds, applies batches
//! durably and settles. SQLite (WAL, `synchronous=full`, 500 a transaction) gets the distinct memberships alone, decoded
//! and in memory already: neither the parse nor the duplicates cost it anything.
//!
//! `cargo bench --bench replay --no-default-features --features embedded -- [events=2000000] [rounds=3]
//! [only=parse|sqlite|engine] [lanes=N] [batch=N] [linger_ms=N] [held=N] [window=N] [threads=N] [dir=PATH] [url=QUERY]`

#![expect(clippy::expect_used, reason = "a benchmark ends at the first failure")]

use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::Progress;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::{Like, OrderPolicy, decode};
use hotcount::source::Source;
use hotcount::source::jsonl::Jsonl;
use hotcount::store::{Depth, Options};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

#[path = "support/events.rs"]
mod events;
#[path = "support/rounds.rs"]
mod rounds;
#[path = "support/sqlite.rs"]
mod sqlite;
#[path = "support/threads.rs"]
mod threads;

use rounds::{Rounds, machine};

/// Memberships in one transaction of the SQLite loop.
const SQLITE_BATCH: usize = 500;

/// What the command line may set. What is not set is the engine's and the store's own default.
struct Arguments {
    events: usize,
    rounds: usize,
    threads: usize,
    only: Option<String>,
    directory: Option<String>,
    query: String,
    engine: Config,
}

impl Arguments {
    fn parse() -> Self {
        let mut arguments = Self {
            events: 2_000_000,
            rounds: 3,
            threads: machine(),
            only: None,
            directory: None,
            query: String::new(),
            engine: Config::default(),
        };
        rounds::arguments(|name, value| {
            let number = || value.parse().unwrap_or_else(|_| panic!("{name} is a number"));
            match name {
                "events" => arguments.events = number(),
                "rounds" => arguments.rounds = number(),
                "threads" => arguments.threads = number(),
                "lanes" => arguments.engine.lanes = Some(number()),
                "batch" => arguments.engine.batch_writes = Some(number()),
                "linger_ms" => arguments.engine.linger = Duration::from_millis(number() as u64),
                "held" => arguments.engine.max_held_deliveries = number(),
                "window" => arguments.engine.recent_likes = Some(number()),
                "only" => arguments.only = Some(value.to_owned()),
                "dir" => arguments.directory = Some(value.to_owned()),
                "url" => arguments.query = format!("?{value}"),
                other => panic!("there is no argument '{other}'"),
            }
        });
        arguments
    }

    fn wants(&self, what: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == what)
    }

    fn directory(&self) -> tempfile::TempDir {
        match &self.directory {
            Some(path) => tempfile::tempdir_in(path),
            None => tempfile::tempdir(),
        }
        .expect("a directory")
    }

    fn runtime(&self) -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(self.threads).enable_all().build().expect("a runtime")
    }
}

/// Reads and decodes the whole file on one thread, as a puller does, and does nothing with it.
async fn parse(file: &Path) -> Duration {
    let start = Instant::now();
    let source = Jsonl::file(file).await.expect("the file opens");
    let mut stream = source.open(0).await.expect("it opens once");
    loop {
        let deliveries = stream.pull(1_000).await.expect("the file is read");
        if deliveries.is_empty() {
            return start.elapsed();
        }
        for delivery in deliveries {
            let like = decode(&delivery.payload, OrderPolicy::OccurredAt, delivery.seen_at()).expect("an event");
            std::hint::black_box(like);
        }
    }
}

/// The engine on a new store; how long until all is durable and settled.
async fn engine(arguments: &Arguments, file: &Path, directory: &Path, expected: &Expected) -> Duration {
    let url = format!("embedded:{}{}", directory.join("store").display(), arguments.query);
    let store = hotcount::connect::store(&url, &Options::default()).await.expect("the store opens");
    let source = Arc::new(Jsonl::file(file).await.expect("the file opens"));
    let progress = Arc::new(Progress::default());
    let before = threads::times();
    let start = Instant::now();
    let ended = pipeline::run(
        source,
        Arc::clone(&store),
        arguments.engine.clone(),
        std::future::pending(),
        Arc::clone(&progress),
    );
    let counted = ended.await.expect("the engine works").counted;
    let took = start.elapsed();
    let times = threads::times().since(&before);
    assert_eq!((counted.received, counted.applied), (expected.events, expected.distinct), "{counted:?}");
    let ms = |latencies: &hotcount::telemetry::Latencies, quantile| latencies.quantile(quantile).as_secs_f64() * 1e3;
    println!(
        "    engine {:.2} s, {:.2} s of processor time ({times}); {} commits, p50 {:.1} ms, p99 {:.1} ms; settled p50 {:.1} \
         ms; folded {}, duplicates {}",
        took.as_secs_f64(),
        times.seconds(),
        progress.commits(),
        ms(&progress.commit_latency, 0.5),
        ms(&progress.commit_latency, 0.99),
        ms(&progress.settle_latency, 0.5),
        counted.folded,
        counted.duplicates,
    );
    let tally = store.tally("post-0", Depth::ShardsAndMembers).await.expect("the busy post is counted");
    assert_eq!((tally.count, tally.drift()), (expected.busy, Some(0)));
    store.close().await.expect("the store closes");
    took
}

/// What is true of the file, found without the engine.
struct Expected {
    events: u64,
    distinct: u64,
    /// Members of the busy post.
    busy: i64,
}

/// The distinct memberships of the file in order of arrival, as batches for SQLite, and what they are.
fn distinct(text: &[u8]) -> (Vec<Batch>, Expected) {
    let now = SystemTime::now();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let likes: Vec<Like> =
        lines.map(|line| decode(line, OrderPolicy::OccurredAt, now).expect("an event of this benchmark")).collect();
    let mut seen = HashSet::with_capacity(likes.len());
    let first: Vec<&Like> = likes.iter().filter(|like| seen.insert(like.member())).collect();
    let expected = Expected {
        events: likes.len() as u64,
        distinct: first.len() as u64,
        busy: first.iter().filter(|like| like.post() == "post-0").count() as i64,
    };
    let batch = |(number, likes): (usize, &[&Like])| {
        Batch::new(BatchKey::from_random(number as u128), likes.iter().map(|like| (*like).clone()).collect())
    };
    (first.chunks(SQLITE_BATCH).enumerate().map(batch).collect(), expected)
}

fn main() {
    let arguments = Arguments::parse();
    let place = arguments.directory();
    let file = place.path().join("events.jsonl");
    let (batches, expected) = {
        let text = events::jsonl(arguments.events, 1);
        std::fs::write(&file, &text).expect("the file is written");
        distinct(&text)
    };
    println!(
        "{} events, {} distinct memberships, {} of them of one post; {} cores; median of {} rounds",
        expected.events,
        expected.distinct,
        expected.busy,
        machine(),
        arguments.rounds
    );
    let (mut parses, mut bare, mut engines) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..arguments.rounds {
        if arguments.wants("parse") {
            parses.add(arguments.runtime().block_on(parse(&file)));
        }
        if arguments.wants("sqlite") {
            bare.add(sqlite::fill(arguments.directory().path(), &batches));
        }
        if arguments.wants("engine") {
            let directory = arguments.directory();
            let took = arguments.runtime().block_on(engine(&arguments, &file, directory.path(), &expected));
            engines.add(took);
        }
    }
    println!("\n{:<44} {:>12} {:>20}", "", "events/s", "memberships/s");
    let row = |name: &str, rounds: &Rounds, all: bool, members: bool| {
        let number = |shown: bool, n: u64| if shown { format!("{:.0}", rounds.rate(n)) } else { "-".to_owned() };
        if !rounds.is_empty() {
            println!("{name:<44} {:>12} {:>20}", number(all, expected.events), number(members, expected.distinct));
        }
    };
    row("file parse alone, one thread", &parses, true, false);
    row(&format!("SQLite, {SQLITE_BATCH} a commit, no parse, no duplicates"), &bare, false, true);
    row("the engine, file to embedded store", &engines, true, true);
    if !bare.is_empty() && !engines.is_empty() {
        let ratio = engines.rate(expected.distinct) / bare.rate(expected.distinct);
        println!("{:<44} {:>33}", "the engine / SQLite (target: 2)", format!("{ratio:.2}"));
    }
}
