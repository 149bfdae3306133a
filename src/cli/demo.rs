//! `hotcount demo`: everything offline from one command. A viral load with every fault a queue has, a worker that is
//! killed in the middle, and the proof that it counted exactly.

mod evidence;
mod guarded;
mod place;
mod proof;
mod show;
mod stage;
mod worker;

use super::Exit;
use super::output::line;
use anyhow::{Context, bail};
use clap::Args;
use evidence::Evidence;
use hotcount::lab::load::drive::{self, Ended, Watch, drive};
use hotcount::lab::load::{Config, Faults, Plan, Schedule, Shape};
use indicatif::HumanCount;
use place::Place;
use proof::Proof;
use show::Show;
use stage::Stage;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use worker::Workers;

/// Where in the load the worker is killed, as shares of the messages.
const KILLS: [f64; 2] = [1.0 / 3.0, 2.0 / 3.0];

/// Posts of the load: few enough that each of them is liked by many.
const POSTS: u64 = 50;

/// The most messages of one request. A hundredth of the load keeps several requests under way at any moment, so that a
/// kill breaks some of them off.
const MOST_IN_A_REQUEST: usize = 500;

const AFTER_HELP: &str = "\
The load: one post takes four of five likes, some users take their like back, and every fourth message is a redelivery, a
publisher's retry or a double click; some arrive out of order, some are poison. The worker is a process of its own with
an embedded store in a temporary directory. It is killed (SIGKILL) after a third and after two thirds of the load, and
started again; requests that broke off are sent again.

The proof: the load knows from its seed what every post must count. The table compares that with the count from shards
and with the count from members, as the store has them after the worker has ended.

The last column is what one guarded document would have counted in the same time: a transaction for each message, which
reads a marker and increments the post. It comes from a model of Firestore, not from a measurement; the lines below the
table say what the model assumes.

Results go to standard output, what happens meanwhile to standard error.

Exit codes: 0 every count is exact · 1 a count differs (the data is kept, and the last line says where) · 2 cannot work or
wrong usage · 3 interrupted";

/// Shows everything offline: a viral post, duplicates, a worker that is killed twice, and counts that are exact.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Demo {
    /// Decides the load: the same seed sends the same events
    #[arg(long, env = "HOTCOUNT_DEMO_SEED", default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Messages, duplicates and poison included
    #[arg(long, env = "HOTCOUNT_DEMO_MESSAGES", default_value_t = 300_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    messages: u64,
    /// Messages a second
    #[arg(long, env = "HOTCOUNT_DEMO_RATE", default_value_t = 20_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Keep the store and the worker's log here, to look at them afterwards
    #[arg(long, env = "HOTCOUNT_DEMO_KEEP", value_name = "DIR")]
    keep: Option<PathBuf>,
    /// One JSON object a line: the hottest posts and every post that differs, then the summary
    #[arg(long, env = "HOTCOUNT_DEMO_JSON")]
    json: bool,
}

impl Demo {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let place = Place::new(self.keep.as_deref())?;
        let stop = CancellationToken::new();
        let proof = tokio::select! {
            proof = self.perform(&place, &stop) => proof?,
            never = super::run::cancel_on_signal(&stop) => match never {},
        };
        let Some(proof) = proof else {
            crate::cli::output::complain(&format!("interrupted; the worker has ended, and {}", place.end(false)));
            return Ok(Exit::LeftToRedelivery);
        };
        let text = if self.json { proof.json()? } else { proof.text() };
        for text in text {
            line(&text)?;
        }
        let exact = proof.findings().is_empty();
        crate::cli::output::complain(&place.end(!exact));
        Ok(if exact { Exit::Done } else { Exit::Finding })
    }

    /// The load of `messages` messages.
    fn load(&self) -> Config {
        Config {
            shape: Shape::Viral { share: 0.8 },
            faults: Faults {
                redelivered: 0.15,
                retried: 0.05,
                double_clicked: 0.05,
                late: 0.01,
                shuffled: 0.3,
                poison: 0.001,
                oversized: 0.000_1,
            },
            messages: self.messages,
            posts: POSTS,
            // Three of four messages are likes, so half of the users come round a second time.
            users: self.messages / 2,
            unlikes: 0.25,
            seed: self.seed,
            ..Config::default()
        }
    }

    /// Sends the load, kills the worker in the middle, and reads what was counted. `None` when it was stopped.
    async fn perform(&self, place: &Place, stop: &CancellationToken) -> anyhow::Result<Option<Proof>> {
        let plan = Plan::new(self.load())?;
        let rate = f64::from(self.rate);
        let schedule = Schedule::new(rate, Duration::ZERO).context("a rate of one or more can be kept")?;
        let config = drive::Config { schedule: Some(schedule), ..drive::Config::default() };
        let (watch, show) = (Watch::default(), Show::new(self.messages));
        let in_a_request = (self.messages as usize / 100).min(MOST_IN_A_REQUEST);
        let stage = Stage::new(KILLS.map(|share| (self.messages as f64 * share) as u64).to_vec(), in_a_request);
        show.say(&format!(
            "{} messages, {} a second, four of five about post-0; a quarter are duplicates, some are poison",
            HumanCount(self.messages),
            HumanCount(self.rate.into())
        ));
        let mut workers = Workers::start(place, &stage, &show).await?;
        let started = Instant::now();
        let ended = tokio::select! {
            ended = drive(&plan, &stage, &config, stop, &watch) => ended,
            failed = workers.kill_when_due(&watch) => match failed? {},
            never = show.run(&watch, &stage) => match never {},
        };
        let took = started.elapsed();
        match ended {
            Ended::Complete => {}
            Ended::Stopped => {
                workers.abandon().await;
                return Ok(None);
            }
            Ended::GaveUp(why) => bail!("{why}"),
        }
        show.say("all accepted; the worker ends, and its store is read");
        let (kills, last_worker) = workers.finish().await?;
        let evidence = Evidence { plan: &plan, rate, watch: &watch, kills, last_worker, took };
        // Reading is short, and nothing is lost when it is broken off.
        stop.run_until_cancelled(evidence.prove(&place.store_url())).await.transpose()
    }
}
