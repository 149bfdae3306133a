//! Derived counts: from the shards of a post, from its members, and the drift between them.
//!
//! ```text
//! cargo run --example reader                                  # counts some likes in memory and shows them
//! cargo run --example reader -- firestore://my-project p1 p2  # shows posts of a store
//! cargo run --example reader -- http://127.0.0.1:8080 p1      # shows posts of a running worker
//! cargo run --example reader -- --watch p1                    # follows a post of the worker on 127.0.0.1:8080
//! cargo run --example reader -- --watch p1 --store firestore://my-project --for 60
//! cargo run --example reader -- --application my-project p1   # as an application of yours would read it
//! ```
//!
//! `--application` opens no hotcount: it reads the shard documents with the `firestore` crate, see
//! `support/application.rs`. `FIRESTORE_EMULATOR_HOST` leads to an emulator.
//!
//! An embedded store belongs to one process: while a worker has it, watch through the worker's `http://ADDR`.

#[path = "support/application.rs"]
mod application;

use firestore::FirestoreDb;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::read::reader;
use hotcount::store::{Attempt, Counts, Depth, Options};
use std::collections::VecDeque;
use std::error::Error;
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: reader [STORE POST…] | reader --watch POST [--store STORE] [--for SECONDS] \
                     | reader --application PROJECT POST…";

/// How often a watched post is read. Reading a post costs one read of each of its shards.
const EVERY: Duration = Duration::from_secs(1);

/// Seconds that the picture of the rate shows.
const SHOWN: usize = 30;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, project, posts @ ..] = &arguments[..]
        && mode == "--application"
    {
        return as_an_application(project, posts).await;
    }
    if arguments.iter().any(|argument| argument.starts_with('-')) {
        return watch(&Watched::parse(&arguments)?).await;
    }
    let (counts, posts): (Arc<dyn Counts>, Vec<String>) = match arguments.split_first() {
        Some((url, posts)) => (hotcount::connect::counts(url, &Options::default()).await?, posts.to_vec()),
        None => (some_likes().await?, vec!["viral".to_owned(), "quiet".to_owned(), "nobody-liked-this".to_owned()]),
    };
    show(&*counts, &posts).await
}

/// The counts of posts, without hotcount.
async fn as_an_application(project: &str, posts: &[String]) -> Outcome<()> {
    let db = FirestoreDb::new(project).await?;
    for post in posts {
        println!("{post:<24} {:>10}", application::count(&db, post).await?);
    }
    Ok(())
}

/// A row for each post, shards and members read at one time.
async fn show(counts: &dyn Counts, posts: &[String]) -> Outcome<()> {
    println!("{:<24} {:>10} {:>7} {:>10} {:>6}", "post", "count", "shards", "members", "drift");
    for post in posts {
        let tally = reader::tally(counts, post, Depth::ShardsAndMembers).await?;
        let (members, drift) = (tally.members.unwrap_or_default(), tally.drift().unwrap_or_default());
        println!("{post:<24} {:>10} {:>7} {members:>10} {drift:>6}", tally.count, tally.shards);
        if drift != 0 {
            return Err(format!("{post} drifts by {drift}").into());
        }
    }
    Ok(())
}

/// What is followed, and for how long.
struct Watched {
    post: String,
    store: String,
    lasts: Option<Duration>,
}

impl Watched {
    fn parse(arguments: &[String]) -> Outcome<Self> {
        let (mut post, mut store, mut lasts) = (None, "http://127.0.0.1:8080".to_owned(), None);
        for pair in arguments.chunks(2) {
            match pair {
                [flag, value] if flag == "--watch" => post = Some(value.clone()),
                [flag, value] if flag == "--store" => store.clone_from(value),
                [flag, value] if flag == "--for" => lasts = Some(Duration::from_secs(value.parse()?)),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(Self { post: post.ok_or(USAGE)?, store, lasts })
    }
}

/// Follows a post, one line a second, or on a terminal one line that changes. At the end its members are counted too.
async fn watch(watched: &Watched) -> Outcome<()> {
    let Watched { post, store, lasts } = watched;
    let counts = hotcount::connect::counts(store, &Options::default()).await?;
    let started = Instant::now();
    let mut tick = tokio::time::interval(EVERY);
    let mut last: Option<(i64, Instant)> = None;
    let mut rates = VecDeque::new();
    let terminal = stdout().is_terminal();
    while lasts.is_none_or(|lasts| started.elapsed() < lasts) {
        tick.tick().await;
        let text = match reader::tally(&*counts, post, Depth::Shards).await {
            Ok(tally) => {
                let (before, at) = last.replace((tally.count, Instant::now())).unwrap_or((tally.count, started));
                let rate = (tally.count - before) as f64 / at.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
                rates.push_back(rate);
                rates.drain(..rates.len().saturating_sub(SHOWN));
                let picture = picture(&rates);
                format!("{post}  {:>10}  {rate:>+8.0}/s  {picture}  {} shards", tally.count, tally.shards)
            }
            // A wrong address shows at once. Later it is a worker that is being started again.
            Err(error) if last.is_none() => return Err(error.into()),
            Err(error) => format!("{post}  {error}"),
        };
        if terminal {
            print!("\r\x1b[K{text}");
        } else {
            println!("{text}");
        }
        stdout().flush()?;
    }
    if terminal {
        println!();
    }
    show(&*counts, std::slice::from_ref(post)).await
}

/// The rates as bars, from nothing or less to the highest among them.
fn picture(rates: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = rates.iter().copied().fold(1.0, f64::max);
    // The share is at most 1, so the place is at most the last.
    rates.iter().map(|rate| BARS[((rate / highest).max(0.0) * (BARS.len() - 1) as f64).round() as usize]).collect()
}

/// A thousand users like one post, on two shards; three like another, and one of them thinks better of it.
async fn some_likes() -> Outcome<Arc<dyn Counts>> {
    let store = hotcount::connect::store("memory:", &Options::default()).await?;
    for shard in 0..2_u16 {
        let likes = (0..500).map(|n| Like::new("viral", &format!("user-{shard}-{n}"), "event", true, 1)).collect();
        store.apply(&Batch::new(BatchKey::from_random(u128::from(shard)), likes), Attempt::first(shard)).await?;
    }
    let quiet = |user: &str, liked, order| Like::new("quiet", user, &format!("event-{order}"), liked, order);
    for (key, likes) in
        [vec![quiet("a", true, 1), quiet("b", true, 1), quiet("c", true, 1)], vec![quiet("b", false, 2)]]
            .into_iter()
            .enumerate()
    {
        store.apply(&Batch::new(BatchKey::from_random(10 + key as u128), likes), Attempt::first(0)).await?;
    }
    Ok(store)
}
