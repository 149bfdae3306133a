//! How fast memberships become durable: the embedded store beside a bare SQLite loop and beside the engine of its tables
//! alone, in one run on one disk.
//!
//! Both get the same likes: one post takes half of them, the rest are spread over many posts, and about 27 % are repeats
//! that come again somewhere later. SQLite gets them as a table of memberships with a guarded upsert and a counter a
//! post, 500 a transaction, `synchronous=full` in WAL mode. The store gets sealed batches. Both are empty at the start.
//!
//! `cargo bench --bench storage --no-default-features --features embedded -- [events=2000000] [posts=200000] [lanes=4]
//! [batch=500,2000] [only=sqlite|plain|embedded] [dir=PATH] [url=QUERY]`

#![expect(clippy::expect_used, reason = "a benchmark ends at the first failure")]

use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{Applied, Attempt, Depth, Listing, Options};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "support/plain.rs"]
mod plain;
#[path = "support/sqlite.rs"]
mod sqlite;
#[path = "support/threads.rs"]
mod threads;

/// What the command line may set.
struct Arguments {
    events: usize,
    posts: u64,
    lanes: usize,
    batches: Vec<usize>,
    only: Option<String>,
    directory: Option<String>,
    query: String,
}

impl Arguments {
    fn parse() -> Self {
        let mut arguments = Self {
            events: 2_000_000,
            posts: 200_000,
            lanes: 4,
            batches: vec![500, 2_000],
            only: None,
            directory: None,
            query: String::new(),
        };
        // Cargo adds `--bench`.
        for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            let number = || value.parse().unwrap_or_else(|_| panic!("{name} is a number"));
            match name {
                "events" => arguments.events = number(),
                "posts" => arguments.posts = number() as u64,
                "lanes" => arguments.lanes = number(),
                "batch" => {
                    arguments.batches =
                        value.split(',').map(|n| n.parse().expect("batch is a list of numbers")).collect();
                }
                "only" => arguments.only = Some(value.to_owned()),
                "dir" => arguments.directory = Some(value.to_owned()),
                "url" => arguments.query = format!("?{value}"),
                other => panic!("there is no argument '{other}'"),
            }
        }
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
}

/// A small generator that gives the same numbers every time (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// The likes of one run, in order of arrival.
fn likes(arguments: &Arguments) -> Vec<Like> {
    let mut random = Random(1);
    let mut likes: Vec<Like> = Vec::with_capacity(arguments.events);
    for i in 0..arguments.events {
        if i > 0 && random.next() % 100 < 27 {
            let earlier = (random.next() % i as u64) as usize;
            likes.push(likes[earlier].clone());
            continue;
        }
        let post = if random.next().is_multiple_of(2) { 0 } else { 1 + random.next() % arguments.posts };
        // An odd factor visits every number once: users never repeat but by a repeated like.
        let user = (i as u32).wrapping_mul(0x9E37_79B1);
        let event = format!("{:032x}", u128::from(random.next()) << 64 | u128::from(random.next()));
        let order = 1_700_000_000_000_000 + i as i64;
        likes.push(Like::new(&format!("post-{post}"), &format!("user-{user}"), &event, true, order));
    }
    likes
}

/// Sealed batches, as an aggregator makes them: each member once.
fn batches(likes: &[Like], size: usize) -> Vec<Batch> {
    let mut random = Random(2);
    likes
        .chunks(size)
        .map(|likes| {
            let mut seen = HashSet::new();
            let unique = likes.iter().filter(|like| seen.insert(like.member())).cloned().collect();
            Batch::new(BatchKey::from_random(u128::from(random.next()) << 64 | u128::from(random.next())), unique)
        })
        .collect()
}

/// Applies the batches on `lanes` tasks, then proves one count from its members.
async fn embedded(path: &Path, query: &str, lanes: usize, batches: Vec<Batch>) -> (Duration, Applied) {
    let url = format!("embedded:{}{query}", path.join("store").display());
    let store = hotcount::connect::store(&url, &Options::default()).await.expect("opened");
    let (batches, next, total) = (Arc::new(batches), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::default()));
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..lanes {
        let (store, batches) = (Arc::clone(&store), Arc::clone(&batches));
        let (next, total) = (Arc::clone(&next), Arc::clone(&total));
        tasks.spawn(async move {
            let mut sum = Applied::default();
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let applied = store.apply(batch, Attempt::first(lane as u16)).await.expect("applied");
                sum.applied += applied.applied;
                sum.duplicates += applied.duplicates;
            }
            let mut total: std::sync::MutexGuard<'_, Applied> = total.lock().expect("not poisoned");
            total.applied += sum.applied;
            total.duplicates += sum.duplicates;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("the lane ends");
    }
    let took = start.elapsed();
    println!("    processor time: {}", threads::times().since(&threads::Times::default()));
    let deep = Instant::now();
    let tally = store.tally("post-0", Depth::ShardsAndMembers).await.expect("a tally");
    assert_eq!(tally.drift(), Some(0), "{tally:?}");
    println!("    the busy post: {tally:?}, proved in {:.2?}", deep.elapsed());
    assert!(!store.posts(Listing::Members, None, 10).await.expect("a page").is_empty());
    let closing = Instant::now();
    store.close().await.expect("closed");
    println!("    closed in {:.2?}", closing.elapsed());
    let opening = Instant::now();
    let store = hotcount::connect::store(&url, &Options::default()).await.expect("opened again");
    println!("    opened again in {:.2?}", opening.elapsed());
    assert_eq!(store.tally("post-0", Depth::ShardsAndMembers).await.expect("a tally"), tally);
    let total = *total.lock().expect("not poisoned");
    (took, total)
}

fn main() {
    let arguments = Arguments::parse();
    let likes = likes(&arguments);
    let distinct = likes.iter().map(Like::member).collect::<HashSet<_>>().len();
    println!("{} likes, {distinct} distinct memberships", likes.len());
    let rate = |took: Duration| distinct as f64 / took.as_secs_f64();
    let mut bare = None;
    if arguments.wants("sqlite") {
        let directory = arguments.directory();
        let took = sqlite::fill(directory.path(), &batches(&likes, 500));
        bare = Some(rate(took));
        println!("SQLite, 500 a commit: {took:.2?}, {:.0} memberships/s", rate(took));
    }
    for &size in arguments.batches.iter().filter(|_| arguments.wants("plain")) {
        let directory = arguments.directory();
        let took = plain::fill(directory.path(), &batches(&likes, size));
        println!("the plain engine, {size} a commit: {took:.2?}, {:.0} memberships/s", rate(took));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    for &size in arguments.batches.iter().filter(|_| arguments.wants("embedded")) {
        let directory = arguments.directory();
        let (took, total) =
            runtime.block_on(embedded(directory.path(), &arguments.query, arguments.lanes, batches(&likes, size)));
        assert_eq!(total.applied, distinct as u64, "every membership is written once");
        let ratio = bare.map_or_else(String::new, |bare| format!(", {:.1} times SQLite", rate(took) / bare));
        println!(
            "embedded, {size} a batch, {} lanes: {took:.2?}, {:.0} memberships/s, {:.0} likes/s{ratio}",
            arguments.lanes,
            rate(took),
            likes.len() as f64 / took.as_secs_f64(),
        );
    }
}
