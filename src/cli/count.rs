//! `hotcount count`: the derived count of posts.

use super::output::{Row, Unreadable, line};
use super::{Exit, StoreArgs};
use clap::Args;
use hotcount::reader;
use hotcount::store::Depth;

#[derive(Debug, Args)]
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
