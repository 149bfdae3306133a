//! One way through a whole engine: as fast as it goes, then at half of that.

use crate::broker::{Noted, Pace, Timed, Way, like};
use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::Progress;
use hotcount::source::Source;
use hotcount::store::{Depth, Store};
use hotcount::telemetry::Latencies;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often what is due is published.
const PUBLISH_EVERY: Duration = Duration::from_millis(2);

/// How often the reader looks. It adds as much to what it sees.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Likes of the first second are not measured: connections open and code is compiled.
const NOT_MEASURED: Duration = Duration::from_secs(1);

pub(crate) fn header() {
    println!(
        "{:<22} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "p99, ms", "capacity/s", "rate/s", "delay", "commit", "broker", "target", "visible", "p50"
    );
}

/// Measures the capacity with `burst` likes and the latency for `lasts`, and prints both.
pub(crate) async fn run<F>(name: &str, way: impl Fn() -> F, store: Arc<dyn Store>, burst: u64, lasts: Duration)
where
    F: Future<Output = (Way, Arc<dyn Source>)>,
{
    // The first one warms everything up.
    let _ = capacity(&way, &store, "warm-up", burst / 4).await;
    let capacity = capacity(&way, &store, "burst", burst).await;
    let rate = capacity / 2.0;
    let Measured { noted, progress, visible, delay } = latency(&way, &store, rate, lasts).await;
    let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
    let (commit, broker) = (progress.commit_latency.quantile(0.99), noted.delivery.quantile(0.99));
    let (target, p99) = (delay + commit * 2 + broker, visible.quantile(0.99));
    println!(
        "{name:<22} {capacity:>10.0} {rate:>10.0} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}  {}",
        ms(delay),
        ms(commit),
        ms(broker),
        ms(target),
        ms(p99),
        ms(visible.quantile(0.5)),
        if p99 <= target { "met" } else { "missed" },
    );
}

struct Engine {
    running: tokio::task::JoinHandle<Result<pipeline::Report, pipeline::EngineError>>,
    stop: CancellationToken,
    progress: Arc<Progress>,
    delay: Duration,
}

impl Engine {
    fn start(source: Arc<dyn Source>, store: &Arc<dyn Store>) -> Self {
        let (stop, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
        let config = Config { seed: rand::random(), ..Config::default() };
        let delay = config.linger;
        let run =
            pipeline::run(source, Arc::clone(store), config, stop.clone().cancelled_owned(), Arc::clone(&progress));
        Self { running: tokio::spawn(run), stop, progress, delay }
    }

    async fn stop(self) -> Arc<Progress> {
        self.stop.cancel();
        self.running.await.expect("no panic").expect("the engine works");
        self.progress
    }
}

async fn count(store: &Arc<dyn Store>, post: &str) -> u64 {
    let tally = store.tally(post, Depth::Shards).await.expect("the store can be read");
    u64::try_from(tally.count).expect("nothing is taken back")
}

/// Likes a second, from messages that wait.
async fn capacity<F>(way: &impl Fn() -> F, store: &Arc<dyn Store>, post: &str, likes: u64) -> f64
where
    F: Future<Output = (Way, Arc<dyn Source>)>,
{
    let (way, source) = way().await;
    way.publish((0..likes).map(|number| like(post, number)).collect()).await;
    let began = Instant::now();
    let engine = Engine::start(source, store);
    while engine.progress.counted().applied < likes {
        assert!(!engine.running.is_finished(), "the engine ended early");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let took = began.elapsed();
    engine.stop().await;
    assert_eq!(count(store, post).await, likes, "every like is counted once");
    likes as f64 / took.as_secs_f64()
}

struct Measured {
    noted: Arc<Noted>,
    progress: Arc<Progress>,
    visible: Latencies,
    delay: Duration,
}

async fn latency<F>(way: &impl Fn() -> F, store: &Arc<dyn Store>, per_s: f64, lasts: Duration) -> Measured
where
    F: Future<Output = (Way, Arc<dyn Source>)>,
{
    const POST: &str = "paced";
    let (way, source) = way().await;
    let pace = Pace { began: Instant::now(), per_s };
    let (source, noted) = Timed::new(source, pace);
    let engine = Engine::start(source, store);
    let likes = (per_s * lasts.as_secs_f64()) as u64;
    let publishing = tokio::spawn(async move {
        // A publisher that waited for each answer would send later than it should.
        let (mut sent, mut sends) = (0, JoinSet::new());
        while sent < likes {
            tokio::time::sleep(PUBLISH_EVERY).await;
            let due = pace.due_by(Instant::now()).min(likes);
            let payloads: Vec<_> = (sent..due).map(|number| like(POST, number)).collect();
            sent = due;
            let way = way.clone();
            sends.spawn(async move { way.publish(payloads).await });
        }
        sends.join_all().await;
        // The source must outlive the engine's last look at it.
        way
    });
    let (visible, mut seen) = (Latencies::default(), 0);
    let measured_from = pace.began + NOT_MEASURED;
    while seen < likes {
        assert!(!engine.running.is_finished(), "the engine ended early");
        let counted = count(store, POST).await;
        let now = Instant::now();
        for due in (seen..counted).map(|number| pace.due(number)).filter(|due| *due >= measured_from) {
            visible.record(now.saturating_duration_since(due));
        }
        seen = counted;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let _way = publishing.await.expect("no panic");
    let delay = engine.delay;
    let progress = engine.stop().await;
    assert_eq!(count(store, POST).await, likes, "every like is counted once");
    assert!(noted.delivered.load(Ordering::Relaxed) >= likes);
    Measured { noted, progress, visible, delay }
}
