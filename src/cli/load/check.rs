//! `hotcount load check`: what a load must lead to, against what a store counts.

use crate::cli::output::line;
use crate::cli::{Exit, StoreArgs};
use anyhow::{Context, bail};
use clap::Args;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use hotcount::read::reader;
use hotcount::store::Depth;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::PathBuf;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};

/// Counts asked for at once.
const AT_ONCE: usize = 16;

/// Differences that are printed. More would only hide the first.
const SHOWN: u64 = 1_000;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// What `hotcount load --expect` wrote
    #[arg(long, env = "HOTCOUNT_LOAD_EXPECT", value_name = "FILE")]
    expect: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// One JSON object a line: every post that differs, then the summary
    #[arg(long, env = "HOTCOUNT_LOAD_JSON")]
    json: bool,
}

/// A line of the file.
#[derive(Debug, Deserialize)]
struct Expected {
    post: String,
    count: i64,
}

/// A post that differs.
#[derive(Debug, Serialize)]
struct Difference {
    post: String,
    expected: i64,
    count: i64,
}

impl Check {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let path = self.expect.display();
        let file = tokio::fs::File::open(&self.expect).await.with_context(|| format!("{path} cannot be opened"))?;
        let counts = self.store.connect_counts().await?;
        let (mut posts, mut differing, mut likes) = (0_u64, 0_u64, 0_i64);
        let tallies = lines_of(BufReader::new(file))
            .map(|text| {
                let (counts, path) = (&counts, &path);
                async move {
                    let text = text.with_context(|| format!("{path} cannot be read"))?;
                    let expected: Expected = serde_json::from_str(&text)
                        .with_context(|| format!("{path} is not what load --expect writes: {text}"))?;
                    let tally = reader::tally(&**counts, &expected.post, Depth::Shards).await?;
                    anyhow::Ok((expected, tally.count))
                }
            })
            .buffered(AT_ONCE);
        let mut tallies = std::pin::pin!(tallies);
        while let Some((expected, count)) = tallies.try_next().await? {
            posts += 1;
            likes += count;
            if count == expected.count {
                continue;
            }
            differing += 1;
            if differing <= SHOWN {
                let difference = Difference { post: expected.post, expected: expected.count, count };
                let Difference { post, expected, count } = &difference;
                let text = if self.json {
                    serde_json::to_string(&difference)?
                } else {
                    format!("{post:<32} expected {expected:>12}, counted {count:>12} ({:+})", count - expected)
                };
                line(&text)?;
            }
        }
        if posts == 0 {
            bail!("{path} names no post: was it written by load --expect?");
        }
        if self.json {
            line(&json!({"posts": posts, "likes": likes, "differing": differing}).to_string())?;
        } else {
            line(&format!("{posts} posts, {likes} likes, {differing} posts differ"))?;
        }
        Ok(if differing == 0 { Exit::Done } else { Exit::Finding })
    }
}

/// The lines of a reader as a stream.
fn lines_of(reader: impl AsyncBufRead + Unpin) -> impl Stream<Item = std::io::Result<String>> {
    stream::try_unfold(
        reader.lines(),
        |mut lines| async move { Ok(lines.next_line().await?.map(|line| (line, lines))) },
    )
}
