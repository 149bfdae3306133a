//! `hotcount replay`: the events of a file through the same pipeline.
//!
//! A file of which nothing was counted is a finding: most likely it is not what whoever replays it thinks.

use super::engine::{EngineArgs, summary, with_flags};
use super::output::line;
use super::{Exit, StoreArgs};
use anyhow::Context;
use clap::Args;
use hotcount::engine::pipeline::{self, EngineError, Report};
use hotcount::engine::progress::{Counted, Progress};
use hotcount::read::reader;
use hotcount::source::jsonl::Jsonl;
use hotcount::store::{Listing, Store};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long the posts are counted and the store is closed after the drain has left something: a store that was silent then
/// may stay so.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

const AFTER_HELP: &str = "\
  hotcount replay likes.jsonl.gz --store embedded:./data
  zcat day-*.gz | hotcount replay - --store firestore://PROJECT

A file that was replayed in part is completed by the same command again: what was counted stays counted once.

Exit codes: 0 all of it was read, and what is no event is in the quarantine · 1 nothing of it counts · 2 cannot work, or the file
breaks off: what came before was counted · 3 stopped before the end.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Replay {
    /// A file of events, or - for standard input: one JSON object a line, one after the other, over several lines, or in an
    /// array; plain or in CloudEvents, Pub/Sub push or SNS envelopes; packed with gzip or zstd, whatever its name
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print the result as one JSON object: received applied folded duplicates stale poison posts elapsed_s events_per_s
    #[arg(long)]
    json: bool,
}

/// The last line of `--json`. Other tools rely on the names.
#[derive(Serialize)]
struct Outcome {
    #[serde(flatten)]
    counted: Counted,
    /// `null` when the store did not answer any more.
    posts: Option<u64>,
    elapsed_s: f64,
    events_per_s: f64,
}

impl Replay {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let source = Arc::new(if self.file.as_os_str() == "-" {
            Jsonl::new("stdin", tokio::io::stdin())
        } else {
            Jsonl::file(&self.file).await.with_context(|| format!("{} cannot be opened", self.file.display()))?
        });
        let progress = Arc::new(Progress::default());
        let shutdown = CancellationToken::new();
        let store = self.store.connect().await?;
        let stopped = super::run::cancel_on_signal(&shutdown);
        tokio::select! {
            exit = self.count(source, store, &shutdown, &progress) => exit,
            never = stopped => match never {},
            never = show(&progress) => match never {},
        }
    }

    /// Counts all of it, then says what it came to.
    async fn count(
        &self,
        source: Arc<Jsonl>,
        store: Arc<dyn Store>,
        shutdown: &CancellationToken,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Exit> {
        let started = Instant::now();
        let config = self.engine.config();
        let ran = pipeline::run(
            source.clone(),
            Arc::clone(&store),
            config,
            shutdown.clone().cancelled_owned(),
            Arc::clone(progress),
        )
        .await;
        let elapsed_s = started.elapsed().as_secs_f64();
        let (report, failure) = match ran {
            Ok(report) => (report, None),
            // What came before the failure was counted.
            Err(error @ EngineError::Source(_)) => {
                (Report { counted: progress.counted(), unconfirmed: 0, ends_by: None }, Some(error))
            }
            Err(error) => return Err(with_flags(error)),
        };
        let ending = async {
            let posts = count_posts(Arc::clone(&store)).await?;
            store.close().await?;
            anyhow::Ok(posts)
        };
        let posts = unless_stopped(ending, shutdown, report.counted.left).await.transpose()?;
        self.print(&report, posts, elapsed_s, progress)?;
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        let Counted { received, applied, folded, duplicates, stale, left, .. } = report.counted;
        // Standard input is as long as whoever stops the replay says.
        let is_cut_short = shutdown.is_cancelled() && !source.is_over() && self.file.as_os_str() != "-";
        if left > 0 || is_cut_short {
            return Ok(Exit::LeftToRedelivery);
        }
        if shutdown.is_cancelled() {
            return Ok(Exit::Done);
        }
        if applied + folded + duplicates + stale == 0 {
            crate::cli::output::complain(&self.nothing_counted(received, source.commonest_refusal()));
            return Ok(Exit::Finding);
        }
        Ok(Exit::Done)
    }

    fn print(&self, report: &Report, posts: Option<u64>, elapsed_s: f64, progress: &Progress) -> anyhow::Result<()> {
        let counted = report.counted;
        let events_per_s = counted.received as f64 / elapsed_s.max(f64::MIN_POSITIVE);
        if self.json {
            let result = Outcome { counted, posts, elapsed_s, events_per_s: events_per_s.round() };
            return line(&serde_json::to_string(&result)?).map_err(Into::into);
        }
        let posts = posts.map_or_else(|| "not known".to_owned(), |posts| posts.to_string());
        let summary = summary(report, progress);
        Ok(line(&format!("{summary} · posts {posts} · {elapsed_s:.2} s · {events_per_s:.0} events/s"))?)
    }

    /// Why a whole file came to nothing, and what to do.
    fn nothing_counted(&self, received: u64, commonest: Option<(String, u64)>) -> String {
        let file = self.file.display();
        let Some((reason, times)) = commonest.filter(|_| received > 0) else {
            return format!("{file} has no events: JSON objects are counted, one a line or one after the other");
        };
        let hint = if ["version: missing", "occurredAt: missing"].iter().any(|missing| reason.starts_with(missing)) {
            "; --order says which field is the order"
        } else {
            ""
        };
        format!(
            "nothing in {file} was counted: {received} of {received} are poison, {times} of them because of {reason}{hint}. \
             They are in the quarantine; hotcount quarantine list shows them"
        )
    }
}

/// Waits for the end of `work`, but for a store that does not answer no longer than [`ENDS_WITHIN`] from the time that
/// somebody asked to stop, or that something was left.
async fn unless_stopped<T>(work: impl Future<Output = T>, shutdown: &CancellationToken, left: u64) -> Option<T> {
    let given_up = async {
        if left == 0 {
            shutdown.cancelled().await;
        }
        tokio::time::sleep(ENDS_WITHIN).await;
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = given_up => None,
    }
}

async fn count_posts(store: Arc<dyn Store>) -> anyhow::Result<u64> {
    use futures::TryStreamExt;
    Ok(reader::posts(store, Listing::Shards).try_fold(0, |n, _| async move { Ok(n + 1) }).await?)
}

/// Progress on standard error, where that is a terminal.
async fn show(progress: &Progress) -> std::convert::Infallible {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} events · {per_sec} · {elapsed}{msg}") {
        bar.set_style(style);
    }
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tick.tick().await;
        bar.set_position(progress.counted().received);
        if progress.store_failing() {
            bar.set_message(" · the store does not answer; trying again");
        } else {
            bar.set_message("");
        }
    }
}
