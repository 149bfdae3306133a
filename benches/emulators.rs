//! Pub/Sub to Firestore on Google's emulators: the whole engine beside its two halves alone, in one run; then what a hot
//! post with some duplicates is billed.
//!
//! The emulators and the client share this machine. So the engine cannot be faster than pulling everything and then
//! committing everything, unless it wastes less than the bare clients do: 1 / (1/pull + 1/commit) is the mark.
//!
//! `cargo bench --bench emulators --no-default-features --features firestore,pubsub -- [events=100000] [rounds=3]
//! [warm=30000] [streams=32] [lanes=N] [batch=N] [linger_ms=N] [billed=50000] [only=rates|bill]`

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark ends at the first failure")]

use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::{Counted, Progress};
use hotcount::source::Source;
use hotcount::source::jsonl::Jsonl;
use hotcount::store::firestore::{Address, Firestore};
use hotcount::store::{Counts, Depth, Options, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

#[path = "support/bare.rs"]
mod bare;
#[path = "support/bare_pull.rs"]
mod bare_pull;
#[path = "support/rounds.rs"]
mod rounds;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "support/threads.rs"]
mod threads;

use rounds::{Rounds, machine};
use support::emulators::{self, unique};
use support::publish::Topic;

const POST: &str = "post-0";

/// How often the engine is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// One event in so many is a duplicate, for the bill.
const DUPLICATE_EVERY: usize = 1_000;

/// Deliveries held while the bill is made. A duplicate comes after more events than that, so the like it repeats is
/// committed by then: it is met in the store or in the window, never in the buffer.
const BILL_HELD: usize = 2_000;

/// How many events after its original a duplicate comes.
const BILL_BACK: usize = 5_000;

/// What the command line may set. What is not set is the engine's and the store's own default.
struct Arguments {
    events: usize,
    rounds: usize,
    warm: usize,
    streams: usize,
    billed: usize,
    only: Option<String>,
    engine: Config,
}

impl Arguments {
    fn parse() -> Self {
        let mut arguments = Self {
            events: 100_000,
            rounds: 3,
            warm: 30_000,
            streams: 32,
            billed: 50_000,
            only: None,
            engine: Config::default(),
        };
        rounds::arguments(|name, value| {
            let number = || value.parse().unwrap_or_else(|_| panic!("{name} is a number"));
            match name {
                "events" => arguments.events = number(),
                "rounds" => arguments.rounds = number(),
                "warm" => arguments.warm = number(),
                "streams" => arguments.streams = number(),
                "billed" => arguments.billed = number(),
                "lanes" => arguments.engine.lanes = Some(number()),
                "batch" => arguments.engine.batch_writes = Some(number()),
                "linger_ms" => arguments.engine.linger = Duration::from_millis(number() as u64),
                "only" => arguments.only = Some(value.to_owned()),
                other => panic!("there is no argument '{other}'"),
            }
        });
        arguments
    }

    fn wants(&self, what: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == what)
    }
}

/// Post, user and event id of event `n`: all distinct, all on one post.
fn events_of(n: usize) -> (&'static str, String, String) {
    (POST, format!("user-{n}"), format!("{:08x}-0000-4000-8000-{:012x}", n.wrapping_mul(0x9E37_79B1) & 0xffff_ffff, n))
}

fn json(n: usize) -> String {
    let (post, user, event) = events_of(n);
    format!(
        r#"{{"eventId":"{event}","type":"like.added","postId":"{post}","userId":"{user}","occurredAt":"2026-01-01T00:00:00.{:06}Z"}}"#,
        n % 1_000_000
    )
}

/// A database of its own.
fn database(host: &str) -> String {
    format!("firestore://{}?emulator={host}", unique("bench"))
}

async fn firestore(url: &str) -> Arc<Firestore> {
    Arc::new(Firestore::connect(url, &Options::default()).await.expect("the emulator is there"))
}

/// A subscription with `events` messages.
async fn published(events: usize) -> Topic {
    let topic = Topic::new(|subscription| subscription).await.expect("the emulator is there");
    topic.publish_all((0..events).map(json)).await;
    topic
}

/// The whole engine on messages that wait, until all of them are durable.
async fn engine(arguments: &Arguments, topic: &Topic, store: Arc<Firestore>, events: usize) -> Duration {
    let url = topic.url(&format!("streams={}", arguments.streams));
    let source: Arc<dyn Source> = hotcount::connect::source(&url).await.expect("the subscription is there");
    let (progress, stop) = (Arc::new(Progress::default()), CancellationToken::new());
    let before = threads::times();
    let start = Instant::now();
    let run = tokio::spawn(pipeline::run(
        source,
        store,
        arguments.engine.clone(),
        stop.clone().cancelled_owned(),
        Arc::clone(&progress),
    ));
    while progress.counted().applied < events as u64 {
        assert!(!run.is_finished(), "the engine ended early");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let took = start.elapsed();
    let times = threads::times().since(&before);
    stop.cancel();
    let Counted { received, applied, .. } = run.await.expect("it ends").expect("it works").counted;
    assert_eq!(applied, events as u64, "every like is written once");
    let ms = |latencies: &hotcount::telemetry::Latencies, quantile| latencies.quantile(quantile).as_secs_f64() * 1e3;
    println!(
        "    engine {:.2} s, client's processor time {:.2} s; {} commits, p50 {:.1} ms, p99 {:.1} ms; {} deliveries came again",
        took.as_secs_f64(),
        times.seconds(),
        progress.commits(),
        ms(&progress.commit_latency, 0.5),
        ms(&progress.commit_latency, 0.99),
        received - applied,
    );
    took
}

/// The two halves alone and the engine, one after the other.
async fn rates(arguments: &Arguments, firestore_host: &str, pubsub_host: &str) {
    let (mut pulls, mut commits, mut engines) = (Rounds::default(), Rounds::default(), Rounds::default());
    let mut last = database(firestore_host);
    for round in 0..=arguments.rounds {
        // The emulators' first requests run in a JVM that has not compiled them yet.
        let warming = round == 0;
        let events = if warming { arguments.warm } else { arguments.events };
        if events == 0 {
            continue;
        }
        let topic = published(events).await;
        let pull = bare_pull::pull(pubsub_host, &topic.subscription_path, arguments.streams, events).await;
        let address = Address::parse(&database(firestore_host), "bare", None).expect("the URL is right");
        let commit = bare::commit(&address, events, bare::Documents::Plain).await;
        let topic = published(events).await;
        last = database(firestore_host);
        let whole = engine(arguments, &topic, firestore(&last).await, events).await;
        println!(
            "    {}: pull {:.2} s, commit {:.2} s, engine {:.2} s",
            if warming { "warming up, not counted" } else { "round" },
            pull.as_secs_f64(),
            commit.as_secs_f64(),
            whole.as_secs_f64()
        );
        if !warming {
            pulls.add(pull);
            commits.add(commit);
            engines.add(whole);
        }
    }
    let rate = |rounds: &Rounds| rounds.rate(arguments.events as u64);
    let (pull, commit, whole) = (rate(&pulls), rate(&commits), rate(&engines));
    let mark = 1.0 / (1.0 / pull + 1.0 / commit);
    println!("\n{:<52} {:>10}", "", "events/s");
    println!("{:<52} {pull:>10.0}", format!("bare pull and ack, {} streams", arguments.streams));
    println!("{:<52} {commit:>10.0}", format!("bare commit, {} memberships each, two at once", bare::BATCH));
    println!("{:<52} {mark:>10.0}", "one after the other: 1 / (1/pull + 1/commit)");
    println!("{:<52} {whole:>10.0}", "the engine, Pub/Sub to Firestore");
    println!("{:<52} {:>10.2}", "the engine / one after the other (target: 1)", whole / mark);
    // Once: the emulator walks over the whole collection.
    let store = firestore(&last).await;
    let tally = store.tally(POST, Depth::ShardsAndMembers).await.expect("the post is counted");
    assert_eq!((tally.count, tally.drift()), (arguments.events as i64, Some(0)));
    println!("the last round's post counts {} in {} shards, and has as many members", tally.count, tally.shards);
}

/// `likes` distinct likes of one post, and a duplicate after every [`DUPLICATE_EVERY`] of them.
fn lines_with_duplicates(likes: usize) -> (String, usize) {
    let (mut text, mut duplicates) = (String::new(), 0);
    for n in 0..likes {
        text.push_str(&json(n));
        text.push('\n');
        if n >= BILL_BACK && n.is_multiple_of(DUPLICATE_EVERY) {
            text.push_str(&json(n - BILL_BACK));
            text.push('\n');
            duplicates += 1;
        }
    }
    (text, duplicates)
}

/// What the engine is billed for a hot post, with the window and without.
async fn bill(arguments: &Arguments, firestore_host: &str) {
    println!(
        "\n{:<36} {:>10} {:>8} {:>9} {:>12} {:>12}",
        "billed by Firestore, one hot post", "likes", "again", "refused", "writes/like", "reads/like"
    );
    for (name, window) in [("window as by default", None), ("window off", Some(0))] {
        let (text, duplicates) = lines_with_duplicates(arguments.billed);
        let store = firestore(&database(firestore_host)).await;
        let before = store.billed();
        let config = Config { recent_likes: window, max_held_deliveries: BILL_HELD, ..arguments.engine.clone() };
        let source = Arc::new(Jsonl::new("bench", std::io::Cursor::new(text.into_bytes())));
        let (stop, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
        let run = pipeline::run(source, Arc::clone(&store) as Arc<dyn Store>, config, stop.cancelled_owned(), progress);
        let counted = run.await.expect("it works").counted;
        assert_eq!((counted.applied, counted.duplicates), (arguments.billed as u64, duplicates as u64), "{counted:?}");
        let after = store.billed();
        let per_like = |before: u64, after: u64| (after - before) as f64 / arguments.billed as f64;
        println!(
            "{name:<36} {:>10} {duplicates:>8} {:>9} {:>12.4} {:>12.4}",
            arguments.billed,
            after.refused_commits - before.refused_commits,
            per_like(before.writes, after.writes),
            per_like(before.reads, after.reads),
        );
    }
    println!("{:<36} {:>10} {:>8} {:>9} {:>12} {:>12}", "target", "", "", "", "1.01", "0.01");
}

fn main() {
    let arguments = Arguments::parse();
    // Asking for an emulator that is required and missing panics, after it has said how to get it.
    let found = std::panic::catch_unwind(|| emulators::firestore().zip(emulators::pubsub()));
    let (firestore_host, pubsub_host) = match found {
        Ok(Some(hosts)) => hosts,
        Ok(None) => return,
        Err(_) => std::process::exit(1),
    };
    println!(
        "{} distinct events of one post; {} cores, shared with both emulators; median of {} rounds",
        arguments.events,
        machine(),
        arguments.rounds
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if arguments.wants("rates") {
            rates(&arguments, &firestore_host, &pubsub_host).await;
        }
        if arguments.wants("bill") {
            bill(&arguments, &firestore_host).await;
        }
    });
}
