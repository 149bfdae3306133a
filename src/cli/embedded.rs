//! `hotcount embedded`: what can be done to an embedded store that no process has open.

use super::Exit;
use super::output::line;
use clap::{Args, Subcommand};
use hotcount::store::StoreError;
use hotcount::store::embedded::{self, Compacted, Damage, Salvaged};
use indicatif::HumanBytes;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Embedded {
    #[command(subcommand)]
    command: EmbeddedCommand,
}

#[derive(Debug, Subcommand)]
enum EmbeddedCommand {
    /// Makes a new store of what can be read of a damaged one, and says what cannot
    Salvage(Salvage),
    /// Rewrites a store without what was removed from it
    Compact(Compact),
}

const SALVAGE_HELP: &str = "\
A damaged store does not open, and the sentence that says so names the file and the place. A copy that hotcount backup made \
is better than what can be salvaged: use it where there is one. Otherwise:
  hotcount embedded salvage ./hotcount-data ./salvaged
  hotcount run --store embedded:./salvaged

What was read is what was written, for everything has a checksum. Counts are made anew from the members that were read, so \
count and members agree; what is missing counts again when its events come again: seek the subscription back to before \
the damage, or replay the events. The damaged store is not changed.

Exit codes: 0 all of it was read · 1 some of it was not · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = SALVAGE_HELP)]
struct Salvage {
    /// The folder of the damaged store
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Where the new store is made: a folder that is empty or does not exist
    #[arg(value_name = "INTO")]
    into: PathBuf,
    /// One JSON object a line: file, offset and what of every place that cannot be read; the last one is the summary
    #[arg(long)]
    json: bool,
}

const COMPACT_HELP: &str = "\
What quarantine purge deletes is gone from the disk within half a minute while a worker has the store open, and when the \
purge itself ends otherwise. This rewrites all of the store at once, so that its files hold nothing but the newest version \
of what is there. It needs room for a second copy meanwhile.

Exit codes: 0 rewritten · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = COMPACT_HELP)]
struct Compact {
    /// The folder of the store
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Print the bytes before and after as one JSON object
    #[arg(long)]
    json: bool,
}

impl Embedded {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            EmbeddedCommand::Salvage(command) => command.run().await,
            EmbeddedCommand::Compact(command) => command.run().await,
        }
    }
}

impl Salvage {
    async fn run(self) -> anyhow::Result<Exit> {
        let Self { path, into, json } = self;
        let (from, to) = (path, into.clone());
        let mut unwritten = None;
        let (salvaged, unwritten) = tokio::task::block_in_place(|| {
            let salvaged = embedded::salvage(&from, &to, &mut |damage| {
                if let Err(error) = line(&text(damage, json)) {
                    unwritten = Some(error);
                }
            });
            (salvaged, unwritten)
        });
        if let Some(error) = unwritten {
            return Err(error.into());
        }
        let Salvaged { members, posts, quarantined, damaged } = salvaged?;
        if json {
            let summary = json!({"members": members, "posts": posts, "quarantined": quarantined, "damaged": damaged});
            line(&summary.to_string())?;
        } else {
            line(&format!(
                "{members} memberships of {posts} posts and {quarantined} quarantined deliveries are in {}; {damaged} \
                 places could not be read",
                into.display()
            ))?;
        }
        Ok(if damaged == 0 { Exit::Done } else { Exit::Finding })
    }
}

/// A place that cannot be read, on one line.
fn text(damage: &Damage, json: bool) -> String {
    if json {
        json!({"file": damage.file, "offset": damage.offset, "what": damage.what}).to_string()
    } else {
        damage.to_string()
    }
}

impl Compact {
    async fn run(self) -> anyhow::Result<Exit> {
        let compacted: Result<Compacted, StoreError> = tokio::task::block_in_place(|| embedded::compact(&self.path));
        let Compacted { before, after } = compacted?;
        line(&if self.json {
            json!({"before": before, "after": after}).to_string()
        } else {
            format!("{} before, {} after", HumanBytes(before), HumanBytes(after))
        })?;
        Ok(Exit::Done)
    }
}
