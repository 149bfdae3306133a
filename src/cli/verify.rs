//! `hotcount verify`: shards against members, for every post.

use super::output::{Row, line};
use super::{Exit, StoreArgs};
use clap::Args;
use futures::StreamExt;
use hotcount::reader;
use hotcount::store::Listing;
use serde_json::json;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    store: StoreArgs,
    /// Find posts through their members too: also those whose shards were deleted from outside
    #[arg(long)]
    deep: bool,
    /// One JSON object a line; the last one is the summary
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let counts = self.store.connect_counts().await?;
        let listing = if self.deep { Listing::Members } else { Listing::Shards };
        if !self.json {
            line(&Row::header(true))?;
        }
        let (mut posts, mut drifting, mut members) = (0_u64, 0_u64, 0_u64);
        let mut rows = std::pin::pin!(reader::verify(counts, listing));
        while let Some(row) = rows.next().await {
            let (post, tally) = row?;
            posts += 1;
            members += tally.members.unwrap_or_default();
            drifting += u64::from(tally.drift().is_some_and(|drift| drift != 0));
            let row = Row { post: &post, tally: &tally };
            line(&if self.json { row.json()? } else { row.text() })?;
        }
        if self.json {
            line(&json!({"posts": posts, "members": members, "drifting": drifting}).to_string())?;
        } else {
            eprintln!("{posts} posts, {members} members, {drifting} with drift");
        }
        Ok(if drifting == 0 { Exit::Done } else { Exit::Finding })
    }
}
