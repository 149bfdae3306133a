//! `hotcount count`: the derived count of posts.

use super::output::{Row, Unreadable, line};
use super::{Exit, StoreArgs};
use clap::Args;
use hotcount::read::reader;
use hotcount::store::Depth;

const AFTER_HELP: &str = "\
  hotcount count p1 p2 --verify
  hotcount count p1 --json --store http://127.0.0.1:8080     an embedded store is read through the worker that has it open

Exit codes: 0 shown · 1 --verify found drift, or a post cannot be read · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Count {
    /// The posts; one that nobody ever liked counts 0
    #[arg(required = true, value_name = "POST")]
    posts: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
    /// Also count the members, at the same read time; exit code 1 when the two differ
    #[arg(long)]
    verify: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Count {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let counts = self.store.connect_counts().await?;
        let depth = if self.verify { Depth::ShardsAndMembers } else { Depth::Shards };
        if !self.json {
            line(&Row::header(self.verify))?;
        }
        let mut exit = Exit::Done;
        for post in &self.posts {
            let tally = match reader::tally(&*counts, post, depth).await {
                Ok(tally) => tally,
                Err(error) => {
                    let unreadable = Unreadable::of(post, error)?;
                    line(&if self.json { unreadable.json()? } else { unreadable.text() })?;
                    exit = Exit::Finding;
                    continue;
                }
            };
            let row = Row { post, tally: &tally };
            line(&if self.json { row.json()? } else { row.text() })?;
            if tally.drift().is_some_and(|drift| drift != 0) {
                exit = Exit::Finding;
            }
        }
        Ok(exit)
    }
}
