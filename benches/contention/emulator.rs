//! The strategies on Google's Firestore emulator, and the bare commit loop beside them.

use crate::Arguments;
use crate::bare::{self, Documents};
use crate::feed::{self, Feed};
use crate::meter::Metered;
use crate::rounds::Rounds;
use crate::row::{Measured, Row, Strategy, rate};
use crate::support::emulators::unique;
use crate::support::within;
use crate::transaction::Guarded;
use crate::workers::{self, Workers};
use hotcount::engine::progress::Counted;
use hotcount::lab::load::Shape;
use hotcount::store::firestore::{Address, Firestore};
use hotcount::store::{Counts, Depth, Listing, Store};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Shards of the hot post: what the worker has by default.
const SHARDS: u16 = 64;

/// Documents in one commit: what the worker has by default.
const BATCH_WRITES: usize = 500;

/// The emulator's Java is compiled while it runs; what comes first is slow.
const WARM_UP: Duration = Duration::from_secs(2);

/// One run takes some ten seconds. An emulator that collects garbage stalls for a minute at a time.
const RUN_WITHIN: Duration = Duration::from_secs(300);

/// To empty a database of some hundred thousand documents takes the emulator some seconds.
const EMPTY_WITHIN: Duration = Duration::from_secs(120);

/// Everything that the emulator shows.
pub(crate) async fn emulator(host: &str, arguments: &Arguments, rows: &mut Vec<Row>) {
    println!("\n## On the Firestore emulator, one hot post\n");
    let fresh = Fresh { host };
    fresh.run(async |address| bare::commit(&address, 30_000, Documents::AsTheEngine).await).await;
    // Before any transaction: the emulator keeps the locks of those that are broken off for a while, and stalls.
    beside_the_bare_loop(&fresh, arguments).await;
    let mut of_single = Vec::new();
    Row::header();
    for strategy in Strategy::ALL {
        for &writers in &arguments.writers {
            let shards = if matches!(strategy, Strategy::Sharded | Strategy::Hotcount) { SHARDS } else { 1 };
            let (batch, measured) = match strategy.is_guarded() {
                true => (2, fresh.run(async |address| guarded(&address, writers, shards, arguments).await).await),
                false => {
                    (BATCH_WRITES, fresh.run(async |address| engine(&address, writers, shards, arguments).await).await)
                }
            };
            let row = Row::new("emulator", strategy, (writers, shards, batch), &measured);
            row.print();
            match strategy {
                Strategy::Single => of_single.push((writers, row.events_per_s)),
                _ => compare(&row, &of_single),
            }
            rows.push(Row { in_curve: true, ..row });
        }
    }
}

/// Databases of an emulator, one for each run.
struct Fresh<'a> {
    host: &'a str,
}

impl Fresh<'_> {
    /// Runs on a database of its own, and empties it. The emulator keeps everything in memory: after some million
    /// documents it does little else than collect garbage, and stalls for a minute at a time.
    async fn run<T>(&self, run: impl AsyncFnOnce(Address) -> T) -> T {
        let project = unique("bench");
        let url = format!("firestore://{project}?emulator={}", self.host);
        let address = Address::parse(&url, "bench", None).expect("the URL is right");
        let answer = within(RUN_WITHIN, "one run on the emulator", run(address)).await;
        let emptied = within(EMPTY_WITHIN, "the emulator to empty a database", self.empty(&project)).await;
        emptied.expect("the emulator answers");
        answer
    }

    /// The emulator's own request for it; its admin API has no other. It answers when all is gone, and keeps the connection
    /// open whatever it is asked for, so there is no end to be waited for.
    async fn empty(&self, project: &str) -> std::io::Result<()> {
        let mut connection = TcpStream::connect(self.host).await?;
        let path = format!("/emulator/v1/projects/{project}/databases/(default)/documents");
        let request = format!("DELETE {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        connection.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        connection.read_exact(&mut status).await?;
        assert_eq!(status, *b"HTTP/1.1 200", "{}", status.escape_ascii());
        Ok(())
    }
}

/// The targets are in the last strategy's rows.
fn compare(row: &Row, of_single: &[(usize, f64)]) {
    let best = of_single.iter().map(|(_, per_s)| *per_s).fold(0.0, f64::max);
    let same = of_single.iter().find(|(writers, _)| *writers == row.writers);
    if let (Strategy::Hotcount, Some((writers, per_s))) = (row.strategy, same) {
        println!(
            "            {:.0} x single at its best, {:.0} x single with {writers} writers",
            row.events_per_s / best,
            row.events_per_s / per_s.max(1.0 / 3_600.0)
        );
    }
}

async fn guarded(address: &Address, writers: usize, shards: u16, arguments: &Arguments) -> Measured {
    let rpc = Metered::connect(address).await;
    let guarded =
        Guarded { rpc: Arc::clone(&rpc), address: address.clone(), shards, next: Arc::new(AtomicU64::new(0)) };
    guarded.create().await;
    let before = rpc.usage();
    let latencies = guarded.run(writers, arguments.guarded, arguments.seed).await;
    let usage = rpc.usage().since(&before);
    let (counted, sum) = (latencies.len() as u64, guarded.sum().await);
    assert!((counted..=counted + writers as u64).contains(&sum), "{counted} events were counted as {sum}");
    let quantile = |part: usize| latencies.get(latencies.len() * part / 100).copied().unwrap_or(arguments.guarded);
    Measured {
        seconds: arguments.guarded.as_secs_f64(),
        counted,
        p50: quantile(50),
        p99: quantile(99),
        tried: usage.tried,
        aborted: usage.aborted,
        writes: usage.writes,
        reads: usage.reads,
    }
}

async fn engine(address: &Address, writers: usize, shards: u16, arguments: &Arguments) -> Measured {
    let rpc = Metered::connect(address).await;
    let load = feed::load(Shape::Viral { share: 1.0 }, 1, arguments.seed);
    let feed = Feed::new(load, None);
    let workers = Workers::start(writers, &feed, |number| {
        let store: Arc<dyn Store> = Arc::new(Firestore::over(Arc::clone(&rpc) as Arc<_>, address.clone()));
        (store, workers::config(BATCH_WRITES, shards, arguments.seed * 1_000 + number))
    });
    tokio::time::sleep(WARM_UP).await;
    let (began, applied, before) = (Instant::now(), workers.applied(), rpc.usage());
    tokio::time::sleep(arguments.engine).await;
    let (counted, seconds) = (workers.applied() - applied, began.elapsed().as_secs_f64());
    let usage = rpc.usage().since(&before);
    let (settle, _) = workers.latencies();
    let ended = workers.stop().await;
    check(address, &rpc, ended).await;
    Measured {
        seconds,
        counted,
        p50: settle.quantile(0.5),
        p99: settle.quantile(0.99),
        tried: usage.tried,
        aborted: usage.aborted,
        writes: usage.writes,
        reads: usage.reads,
    }
}

/// Every like that was applied is in a shard, once. Of a commit that was not answered before the drain's deadline nobody
/// knows: its likes may be there, and would come again.
async fn check(address: &Address, rpc: &Arc<Metered>, Counted { applied, left, .. }: Counted) {
    let store = Firestore::over(Arc::clone(rpc) as Arc<_>, address.clone());
    let posts = store.posts(Listing::Shards, None, 10).await.expect("the emulator answers");
    assert_eq!(posts.len(), 1, "one hot post");
    let tally = store.tally(&posts[0], Depth::Shards).await.expect("the emulator answers");
    let count = u64::try_from(tally.count).expect("nothing is taken back");
    assert!((applied..=applied + left).contains(&count), "{count} of {applied} and at most {left} more");
}

/// The engine with as many writers as the bare loop has commits in flight, turn by turn. The loop writes the same
/// documents.
async fn beside_the_bare_loop(fresh: &Fresh<'_>, arguments: &Arguments) {
    let likes = 300 * bare::BATCH;
    let (mut loops, mut engines) = (Rounds::default(), Vec::new());
    for _ in 0..arguments.rounds {
        loops.add(fresh.run(async |address| bare::commit(&address, likes, Documents::AsTheEngine).await).await);
        let run = async |address: Address| engine(&address, bare::IN_FLIGHT, SHARDS, arguments).await;
        let measured = fresh.run(run).await;
        engines.push(measured.counted as f64 / measured.seconds);
    }
    engines.sort_unstable_by(f64::total_cmp);
    let (bare, engine) = (loops.rate(likes as u64), engines[engines.len() / 2]);
    println!("Median of {} rounds, {} commits in flight:", arguments.rounds, bare::IN_FLIGHT);
    println!("  bare commit loop {:>8} likes/s", rate(bare));
    println!("  hotcount         {:>8} likes/s, {:.2} of it (target: 0.85)\n", rate(engine), engine / bare);
}
