//! `hotcount replay`: the events of a file through the same pipeline.

use super::engine::{EngineArgs, summary};
use super::output::line;
use super::{Exit, StoreArgs};
use anyhow::Context;
use clap::Args;
use hotcount::pipeline;
use hotcount::progress::Progress;
use hotcount::reader;
use hotcount::source::Source;
use hotcount::source::jsonl::Jsonl;
use hotcount::store::Listing;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A file with one event a line, or - for standard input
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
    received: u64,
    applied: u64,
    folded: u64,
    duplicates: u64,
    stale: u64,
    poison: u64,
    left: u64,
    posts: u64,
    elapsed_s: f64,
    events_per_s: f64,
}

impl Replay {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let source: Arc<dyn Source> = Arc::new(if self.file.as_os_str() == "-" {
            Jsonl::new("stdin", tokio::io::stdin())
        } else {
            Jsonl::file(&self.file).await.with_context(|| format!("{} cannot be opened", self.file.display()))?
        });
        let store = self.store.connect().await?;
        let progress = Arc::new(Progress::default());
        let shutdown = CancellationToken::new();
        let started = Instant::now();
        let engine = pipeline::run(
            source,
            Arc::clone(&store),
            self.engine.config(None),
            shutdown.clone(),
            Arc::clone(&progress),
        );
        let report = tokio::select! {
            report = engine => report,
            never = super::run::cancel_on_signal(&shutdown) => match never {},
            never = show(&progress) => match never {},
        }?;
        let elapsed_s = started.elapsed().as_secs_f64();
        let posts = count_posts(Arc::clone(&store)).await?;
        store.close().await?;
        let counted = report.counted;
        let events_per_s = counted.received as f64 / elapsed_s.max(f64::MIN_POSITIVE);
        if self.json {
            let result = Outcome {
                received: counted.received,
                applied: counted.applied,
                folded: counted.folded,
                duplicates: counted.duplicates,
                stale: counted.stale,
                poison: counted.poison,
                left: counted.left,
                posts,
                elapsed_s,
                events_per_s: events_per_s.round(),
            };
            line(&serde_json::to_string(&result)?)?;
        } else {
            line(&format!(
                "{} · posts {posts} · {elapsed_s:.2} s · {events_per_s:.0} events/s",
                summary(&report, &progress)
            ))?;
        }
        Ok(if counted.left == 0 { Exit::Done } else { Exit::LeftToRedelivery })
    }
}

async fn count_posts(store: Arc<dyn hotcount::store::Store>) -> anyhow::Result<u64> {
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
