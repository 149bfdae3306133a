//! An open loop: likes at a fixed rate, half of them on one post, with everything that goes wrong, into the engine.
//!
//! `cargo run --example fixed_rate --no-default-features`

use async_trait::async_trait;
use hotcount::engine::pipeline;
use hotcount::engine::progress::Progress;
use hotcount::lab::load::drive::{self, Ended, Watch, drive};
use hotcount::lab::load::target::{Accepted, Batch, SendError, Target};
use hotcount::lab::load::{Config, Faults, Plan, Schedule};
use hotcount::read::reader;
use hotcount::source::memory::{Config as Queue, Finish, Memory as Messages};
use hotcount::store::{Depth, memory::Memory};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// Publishing is all that a queue acknowledges.
struct Publish(Messages);

#[async_trait]
impl Target for Publish {
    fn name(&self) -> String {
        "a queue in this process".to_owned()
    }

    fn batch_messages(&self) -> usize {
        500
    }

    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError> {
        for (place, message) in batch.messages().enumerate() {
            if let Err(full) = self.0.publish(message) {
                let left = Some((place..batch.parts.len()).collect());
                return Err(SendError { transient: true, message: full.to_string(), left });
            }
        }
        Ok(Accepted::default())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let faults = Faults { redelivered: 0.2, double_clicked: 0.05, shuffled: 0.3, poison: 0.01, ..Faults::default() };
    let plan = Plan::new(Config { messages: 10_000, faults, ..Config::default() })?;
    let queue = Messages::new(Queue { received_at: Arc::new(SystemTime::now), ..Queue::default() });
    let (store, progress) = (Arc::new(Memory::default()), Arc::new(Progress::default()));
    let worker = pipeline::run(
        Arc::new(queue.clone()),
        store.clone(),
        pipeline::Config::default(),
        std::future::pending(),
        progress,
    );

    let load = async {
        let schedule = Schedule::new(10_000.0, Duration::ZERO);
        let (config, watch) = (drive::Config { schedule, ..drive::Config::default() }, Watch::default());
        let ended = drive(&plan, &Publish(queue.clone()), &config, &CancellationToken::new(), &watch).await;
        queue.finish(Finish::WhenSettled);
        (ended, watch)
    };
    let (report, (ended, watch)) = tokio::join!(worker, load);
    assert_eq!(ended, Ended::Complete);
    let (counted, expected) = (report?.counted, plan.expect());
    assert_eq!(counted.received, plan.messages());
    assert_eq!(counted.poison, expected.totals().quarantined());
    for (post, count) in expected.posts() {
        let tally = reader::tally(&*store, &post, Depth::ShardsAndMembers).await?;
        assert_eq!((tally.count.cast_unsigned(), tally.drift()), (count, Some(0)), "{post}");
    }
    println!(
        "{} messages at 10,000 a second: {} likes on post-0, {} on all, p99 of publishing {} µs",
        counted.received,
        expected.count(0),
        expected.liked(),
        watch.latency().value_at_quantile(0.99)
    );
    Ok(())
}
