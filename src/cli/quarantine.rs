//! `hotcount quarantine`: what could never be counted, and why; trying it again; dropping it.

mod purge;
mod replay;
mod selection;

use super::output::{beginning, line};
use super::plain::plain;
use super::{Exit, StoreArgs};
use clap::{Args, Subcommand};
use hotcount::http_api::{QuarantineEntry, UnreadableEntry};
use hotcount::store::{PageSize, Quarantined, Store, StoredFault};
use std::sync::Arc;

/// Entries read with one call; each may hold 10 MiB.
const PAGE: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct Quarantine {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists the entries: id, reason, source, message, and the beginning of the payload; exit code 1 when one cannot be read
    List(List),
    /// Sends entries through the pipeline once more; those that are counted leave the quarantine
    Replay(replay::Replay),
    /// Deletes entries for good
    Purge(purge::Purge),
}

const AFTER_LIST: &str = "\
The reasons, the most frequent first:
  hotcount quarantine list --json | jq -r .reason | sort | uniq -c | sort -rn

Exit codes: 0 listed · 1 an entry cannot be read · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_LIST)]
struct List {
    #[command(flatten)]
    store: StoreArgs,
    /// One JSON object a line, with the whole payload in base64
    #[arg(long)]
    json: bool,
}

impl Quarantine {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self.action {
            Action::List(list) => list.run().await,
            Action::Replay(replay) => replay.run().await,
            Action::Purge(purge) => purge.run().await,
        }
    }
}

impl List {
    async fn run(self) -> anyhow::Result<Exit> {
        let counts = self.store.connect_counts().await?;
        let (mut after, mut entries, mut unreadable) = (None, 0, 0);
        loop {
            let page = counts.quarantined(after.as_deref(), PageSize::entries(PAGE)).await?;
            entries += page.entries.len() + page.unreadable.len();
            unreadable += page.unreadable.len();
            after = page.next;
            for entry in page.entries {
                line(&if self.json { serde_json::to_string(&QuarantineEntry::from(entry))? } else { text(&entry) })?;
            }
            for entry in page.unreadable {
                line(&if self.json {
                    serde_json::to_string(&UnreadableEntry::from(entry))?
                } else {
                    unreadable_text(&entry.0, &entry.1)
                })?;
            }
            if after.is_none() {
                break;
            }
        }
        if !self.json {
            let those = if unreadable > 0 { format!(", {unreadable} of them cannot be read") } else { String::new() };
            crate::cli::output::complain(&format!("{entries} entries{those}"));
        }
        Ok(if unreadable == 0 { Exit::Done } else { Exit::Finding })
    }
}

/// An entry for people, in two lines.
fn text(entry: &Quarantined) -> String {
    let shown = beginning(&entry.data);
    let message = plain(entry.message_id.as_deref().unwrap_or("-"));
    format!(
        "{}  {}\n  {} · message {message} · {} bytes · {shown}",
        entry.id,
        plain(&entry.reason),
        plain(&entry.source),
        entry.data.len()
    )
}

/// An entry that is there and cannot be read, for people.
fn unreadable_text(id: &str, fault: &StoredFault) -> String {
    format!("{id}  {fault}")
}

/// The store itself. Nobody is asked who they are at a worker's HTTP face, so it deletes nothing.
async fn connect(args: &StoreArgs) -> anyhow::Result<Arc<dyn Store>> {
    if args.store.scheme() == "http" {
        anyhow::bail!(
            "{} is a worker, whose HTTP face shows the quarantine and deletes nothing: name its store in --store; an \
             embedded store belongs to one process, so stop its worker before",
            args.store
        );
    }
    args.connect_existing().await
}
