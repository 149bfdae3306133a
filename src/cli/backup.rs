//! `hotcount backup`: a consistent copy of an embedded store, while a worker counts.

use super::output::line;
use super::{Exit, StoreArgs};
use clap::Args;
use hotcount::store::Counts;
use hotcount::store::embedded::{self, Copied};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
A running worker gives the copy of its own store, so likes go on being counted:
  hotcount backup --store http://127.0.0.1:8080 ./copy
A store that no process has open is copied from its path, and not changed by it:
  hotcount backup --store embedded:./hotcount-data ./copy

The copy is of one time: all of a batch is in it or nothing. It is a store itself, so restoring it is opening it:
  hotcount run --store embedded:./copy
What was counted after the copy counts again when its events come again: seek the subscription back to before the copy.
A copy that breaks off is removed, and what is left of one is never taken for a store.

Exit codes: 0 copied · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Backup {
    /// Where the copy is made: a folder that is empty or does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Print what was copied as one JSON object: members, quarantined, bytes
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let store = self.store.connect_counts().await?;
        let copied = copy(&*store, &self.directory).await?;
        let Copied { members, quarantined, bytes } = copied;
        line(&if self.json {
            json!({"members": members, "quarantined": quarantined, "bytes": bytes}).to_string()
        } else {
            format!(
                "{members} memberships and {quarantined} quarantined deliveries are in {} ({})",
                self.directory.display(),
                HumanBytes(bytes)
            )
        })?;
        Ok(Exit::Done)
    }
}

async fn copy(store: &dyn Counts, directory: &std::path::Path) -> anyhow::Result<Copied> {
    // It draws itself on a terminal alone.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} · {elapsed}") {
        bar.set_style(style);
    }
    let copied = embedded::restore(directory, store.backup().await?, |copied| {
        bar.tick();
        bar.set_message(format!("{} memberships · {}", copied.members, HumanBytes(copied.bytes)));
    });
    let copied = copied.await;
    bar.finish_and_clear();
    Ok(copied?)
}
