//! A closed loop: likes as fast as the engine acknowledges them, never more than a bound in flight.
//!
//! `cargo run --release --example as_fast_as_acks --no-default-features`

use async_trait::async_trait;
use hotcount::engine::pipeline;
use hotcount::engine::progress::Progress;
use hotcount::lab::load::drive::{self, Ended, Watch, drive};
use hotcount::lab::load::target::{Accepted, Batch, SendError, Target};
use hotcount::lab::load::{Config, Faults, Plan, Shape};
use hotcount::read::reader;
use hotcount::source::ack::{Ack, SettleMany, Settlement};
use hotcount::source::{Delivery, Source, SourceError, Stream};
use hotcount::store::{Depth, memory::Memory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// The sending end of a channel: a batch is accepted when the engine has settled all of it.
struct Sender(mpsc::Sender<Delivery>);

/// The ack tokens of one batch.
struct Tokens {
    unsettled: AtomicU32,
    poison: AtomicU64,
    dropped: AtomicU64,
    finished: Notify,
}

impl SettleMany for Tokens {
    fn settled(&self, _: u32, how: &Settlement) {
        self.poison.fetch_add(u64::from(matches!(how, Settlement::Quarantined(_))), Ordering::Relaxed);
        self.one_less();
    }

    fn dropped(&self, _: u32) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.one_less();
    }
}

impl Tokens {
    fn one_less(&self) {
        if self.unsettled.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finished.notify_one();
        }
    }
}

#[async_trait]
impl Target for Sender {
    fn name(&self) -> String {
        "the engine".to_owned()
    }

    fn batch_messages(&self) -> usize {
        500
    }

    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError> {
        let tokens = Arc::new(Tokens {
            unsettled: AtomicU32::new(u32::try_from(batch.parts.len()).unwrap_or(u32::MAX)),
            poison: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            finished: Notify::new(),
        });
        let received_at = SystemTime::now();
        for (index, payload) in (0..).zip(batch.messages()) {
            let ack = Ack::of_many(tokens.clone(), index);
            // A closed channel drops the token, and that says so.
            let _ = self.0.send(Delivery { payload, received_at, meta: None, ack, share: None }).await;
        }
        tokens.finished.notified().await;
        match tokens.dropped.load(Ordering::Relaxed) {
            0 => Ok(Accepted { poison: tokens.poison.load(Ordering::Relaxed) }),
            dropped => Err(SendError::new(true, format!("{dropped} deliveries were dropped"))),
        }
    }
}

/// The receiving end.
struct Receiver(Arc<Mutex<mpsc::Receiver<Delivery>>>);

#[async_trait]
impl Source for Receiver {
    fn name(&self) -> String {
        "channel".to_owned()
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

#[async_trait]
impl Stream for Receiver {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut deliveries = Vec::new();
        self.0.lock().await.recv_many(&mut deliveries, max).await;
        Ok(deliveries)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let faults = Faults { redelivered: 0.2, retried: 0.05, late: 0.01, poison: 0.001, ..Faults::default() };
    let shape = Shape::Zipf { exponent: 1.0 };
    let plan = Plan::new(Config { shape, faults, messages: 50_000, users: 20_000, unlikes: 0.2, ..Config::default() })?;
    let (sender, receiver) = mpsc::channel(1_000);
    let (store, progress) = (Arc::new(Memory::default()), Arc::new(Progress::default()));
    let worker = pipeline::run(
        Arc::new(Receiver(Arc::new(Mutex::new(receiver)))),
        store.clone(),
        pipeline::Config::default(),
        std::future::pending(),
        progress,
    );

    let started = Instant::now();
    let load = async {
        let (target, watch) = (Sender(sender), Watch::default());
        // The channel closes with the target, and then the source ends.
        (drive(&plan, &target, &drive::Config::default(), &CancellationToken::new(), &watch).await, watch)
    };
    let (report, (ended, watch)) = tokio::join!(worker, load);
    assert_eq!(ended, Ended::Complete);
    let (counted, expected) = (report?.counted, plan.expect());
    assert_eq!((counted.received, counted.left), (plan.messages(), 0));
    assert_eq!(watch.poison(), expected.totals().quarantined());
    for (post, count) in expected.posts() {
        let tally = reader::tally(&*store, &post, Depth::ShardsAndMembers).await?;
        assert_eq!((tally.count.cast_unsigned(), tally.drift()), (count, Some(0)), "{post}");
    }
    println!(
        "{} messages in {:.2} s: {} applied, {} likes stand, p99 from sending to acknowledgement {:.1} ms",
        counted.received,
        started.elapsed().as_secs_f64(),
        counted.applied,
        expected.liked(),
        watch.latency().value_at_quantile(0.99) as f64 / 1e3
    );
    Ok(())
}
