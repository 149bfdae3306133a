//! `hotcount load`: sends a load whose outcome is known, and compares a store with it.

mod args;
mod check;
mod report;

use super::Exit;
use super::output::line;
use super::url::Url;
use anyhow::{Context, bail};
use args::PlanArgs;
use clap::{Args, Subcommand};
use hotcount::lab::load::drive::{self, Config, Ended, Watch, drive};
use hotcount::lab::load::{Plan, Schedule, Shape, target};
use report::Report;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long a flash takes to reach its full rate, in seconds, unless told otherwise.
const FLASH_RAMP_S: f64 = 5.0;

const AFTER_HELP: &str = "\
A seed decides everything: the same flags send the same events, byte by byte, and --expect says what every post must
count at the end, however often and in whatever order they arrive. So a load that was interrupted is completed by the
same command again.

Without --rate the loop is closed: as fast as the target acknowledges, latency from sending to acknowledgement. With
--rate it is open: messages are due at fixed times whatever the target does, and latency counts from the due time, so
that a stall shows with everything that had to wait.

Examples:
  A million likes, 80 % on one post, a quarter of them repeated, into a file, and what they must count:
    hotcount load --to likes.jsonl --messages 1000000 --shape viral:0.8 --redelivered 0.25 --expect expected.jsonl
    hotcount replay likes.jsonl --store embedded:./data
    hotcount load check --expect expected.jsonl --store embedded:./data

  A running worker, a thousand likes a second for a minute, with everything that goes wrong:
    hotcount run &
    hotcount load --to http://127.0.0.1:8080 --rate 1000 --for-s 60 --faults --expect expected.jsonl
    hotcount load check --expect expected.jsonl --store http://127.0.0.1:8080

  A flash of 20,000 a second on one post, out of nothing within 3 seconds, to a Pub/Sub emulator:
    export PUBSUB_EMULATOR_HOST=127.0.0.1:8085
    hotcount load --to pubsub://demo/likes --shape flash:0.95 --rate 20000 --ramp-s 3 --for-s 30

Exit codes: 0 every message was accepted; for check: every count is as expected · 1 counts differ · 2 cannot work or wrong
usage · 3 stopped, or the target went away: the report says how many messages are known to be accepted";

/// Sends events whose outcome is known from a seed.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true, after_long_help = AFTER_HELP)]
pub(crate) struct Load {
    #[command(subcommand)]
    action: Option<Action>,
    /// Where the events go: pubsub://PROJECT/TOPIC, http://ADDR of a running worker with the source http:, a file, or -
    /// for standard output
    #[arg(long, env = "HOTCOUNT_LOAD_TO", required = true, value_name = "URL", hide_env_values = true)]
    to: Option<Url>,
    #[command(flatten)]
    plan: PlanArgs,
    /// Messages a second: an open loop. Without it, as fast as the target acknowledges
    #[arg(long, env = "HOTCOUNT_LOAD_RATE", value_name = "N", help_heading = "Pace")]
    rate: Option<f64>,
    /// How long the rate takes to grow from nothing, in seconds [default: 5 for flash, else 0]
    #[arg(long, env = "HOTCOUNT_LOAD_RAMP_S", requires = "rate", value_name = "S", help_heading = "Pace")]
    ramp_s: Option<f64>,
    /// As many messages as --rate makes in so many seconds, instead of --messages
    #[arg(
        long,
        env = "HOTCOUNT_LOAD_FOR_S",
        requires = "rate",
        conflicts_with = "messages",
        value_name = "S",
        help_heading = "Pace"
    )]
    for_s: Option<f64>,
    /// Sends at once, each of a batch; a file takes one
    #[arg(long, env = "HOTCOUNT_LOAD_IN_FLIGHT", default_value_t = Config::default().sends_in_flight, value_name = "N", help_heading = "Pace")]
    in_flight: NonZeroUsize,
    /// Messages of one send at most [default: what suits the target]
    #[arg(long, env = "HOTCOUNT_LOAD_BATCH", value_name = "N", help_heading = "Pace")]
    batch: Option<NonZeroUsize>,
    /// How long a send is tried again before the target is given up, in seconds
    #[arg(long, env = "HOTCOUNT_LOAD_GIVE_UP_S", default_value_t = 30, value_name = "S", help_heading = "Pace")]
    give_up_s: u64,
    /// Writes what every post must count, one {"post","count"} a line, before anything is sent
    #[arg(long, env = "HOTCOUNT_LOAD_EXPECT", value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Print the report as one JSON object; it goes to standard error where the events go to standard output
    #[arg(long, env = "HOTCOUNT_LOAD_JSON")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Compares the counts of a store with those that a load must lead to
    Check(check::Check),
}

impl Load {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if let Some(Action::Check(check)) = self.action {
            return check.run().await;
        }
        let url = self.to.as_ref().map(Url::typed).context("--to says where the events go")?;
        let shape: Shape = self.plan.shape()?;
        let schedule = self.schedule(&shape)?;
        let for_s = self.for_s.map(|s| seconds("--for-s", s)).transpose()?;
        let messages = for_s.zip(schedule).map(|(time, schedule)| schedule.within(time) / shape.passes());
        let plan = Plan::new(self.plan.config(shape, messages))?;
        if let Some(path) = &self.expect {
            if path.as_os_str() == url {
                bail!("--expect and --to name the same file: give them two");
            }
            write_expectation(&plan, path).with_context(|| format!("--expect {} cannot be written", path.display()))?;
        }
        let target = target::connect(url).await?;
        let config = Config {
            schedule,
            sends_in_flight: self.in_flight,
            batch_messages: self.batch,
            give_up_after: Duration::from_secs(self.give_up_s),
            ..drive::Config::default()
        };
        let (stop, watch, started) = (CancellationToken::new(), Watch::default(), Instant::now());
        let ended = tokio::select! {
            ended = drive(&plan, &*target, &config, &stop, &watch) => ended,
            never = super::run::cancel_on_signal(&stop) => match never {},
            never = report::show(&watch, plan.messages()) => match never {},
        };
        let report =
            Report { target: target.name(), plan: &plan, ended: &ended, watch: &watch, took: started.elapsed() };
        let text = if self.json { report.json() } else { report.text() };
        if url == "-" {
            crate::cli::output::complain(&text);
        } else {
            line(&text)?;
        }
        Ok(if ended == Ended::Complete { Exit::Done } else { Exit::LeftToRedelivery })
    }

    fn schedule(&self, shape: &Shape) -> anyhow::Result<Option<Schedule>> {
        let Some(rate) = self.rate else { return Ok(None) };
        let ramp_s = self.ramp_s.unwrap_or(if matches!(shape, Shape::Flash { .. }) { FLASH_RAMP_S } else { 0.0 });
        let Some(schedule) = Schedule::new(rate, seconds("--ramp-s", ramp_s)?) else {
            bail!("--rate {rate} cannot be: use one message an hour (0.00028) to a thousand million a second");
        };
        Ok(Some(schedule))
    }
}

/// Seconds of a flag, up to a year.
fn seconds(flag: &str, seconds: f64) -> anyhow::Result<Duration> {
    if !(0.0..=31_536_000.0).contains(&seconds) {
        bail!("{flag} {seconds} cannot be: use seconds, from 0 to a year");
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn write_expectation(plan: &Plan, path: &std::path::Path) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    plan.expect().write_jsonl(&mut out)?;
    out.flush()
}
