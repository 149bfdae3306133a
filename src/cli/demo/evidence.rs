//! Reads what the proof is made of: the load's own expectation, and the store once no worker has it open.

use super::guarded;
use super::proof::{Proof, Row};
use super::worker::Kill;
use futures::{StreamExt, TryStreamExt, stream};
use hotcount::engine::progress::Counted;
use hotcount::lab::load::Plan;
use hotcount::lab::load::drive::Watch;
use hotcount::read::reader;
use hotcount::store::{self, Counts, Depth, Listing, PageSize, Tally};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Poison read with one call; an oversized entry has 64 KiB.
const QUARANTINE_PAGE: usize = 500;

/// Posts counted at once.
const AT_ONCE: usize = 8;

/// What is known when the last worker has ended.
pub(super) struct Evidence<'a> {
    pub(super) plan: &'a Plan,
    /// Messages a second.
    pub(super) rate: f64,
    pub(super) watch: &'a Watch,
    pub(super) kills: Vec<Kill>,
    pub(super) last_worker: Counted,
    pub(super) took: Duration,
}

impl Evidence<'_> {
    /// Sets the store at `url` beside the plan.
    pub(super) async fn prove(self, url: &str) -> anyhow::Result<Proof> {
        let store = hotcount::connect::store(url, &store::Options::default()).await?;
        let counts: Arc<dyn Counts> = store.clone();
        let expectation = self.plan.expect();
        let expected: BTreeMap<String, u64> = expectation.posts().collect();
        let tallies = tallies(&counts, expected.keys().cloned().collect()).await?;
        let quarantined = quarantined(&*counts).await?;
        drop(counts);
        store.close().await?;
        let sent = sent(self.plan);
        let seconds = self.plan.messages() as f64 / self.rate;
        let load_lasts = Duration::from_secs_f64(seconds);
        let guarded = |arrivals_per_s| guarded::handled(arrivals_per_s, load_lasts, self.plan.config().seed);
        let mut rows: Vec<_> = tallies
            .into_iter()
            .map(|(post, tally)| {
                let sent = sent.get(&post).copied().unwrap_or_default();
                let arrivals_per_s = sent as f64 / seconds;
                anyhow::Ok(Row {
                    sent,
                    arrivals_per_s,
                    guarded: guarded(arrivals_per_s)?,
                    expected: expected.get(&post).copied().unwrap_or_default(),
                    counted: tally.count,
                    members: tally.members.unwrap_or_default(),
                    drift: tally.drift().unwrap_or_default(),
                    post,
                })
            })
            .collect::<Result<_, _>>()?;
        rows.sort_by_key(|row| std::cmp::Reverse(row.sent));
        Ok(Proof {
            rows,
            seed: self.plan.config().seed,
            totals: expectation.totals(),
            accepted: self.watch.accepted(),
            sends_again: self.watch.retries(),
            quarantined,
            kills: self.kills,
            last_worker: self.last_worker,
            took_s: self.took.as_secs_f64(),
        })
    }
}

/// The tallies of `posts`, and of any post that is in the store and should not be.
async fn tallies(counts: &Arc<dyn Counts>, posts: BTreeSet<String>) -> anyhow::Result<Vec<(String, Tally)>> {
    let mut posts = posts;
    for listing in [Listing::Shards, Listing::Members] {
        posts.extend(reader::posts(Arc::clone(counts), listing).try_collect::<Vec<_>>().await?);
    }
    let tallies = stream::iter(posts).map(|post| async move {
        let tally = reader::tally(&**counts, &post, Depth::ShardsAndMembers).await?;
        anyhow::Ok((post, tally))
    });
    tallies.buffered(AT_ONCE).try_collect().await
}

/// How many deliveries are quarantined.
async fn quarantined(counts: &dyn Counts) -> anyhow::Result<u64> {
    let (mut number, mut after) = (0, None);
    loop {
        let page = counts.quarantined(after.as_deref(), PageSize::entries(QUARANTINE_PAGE)).await?;
        number += (page.entries.len() + page.unreadable.len()) as u64;
        after = page.next;
        if after.is_none() {
            return Ok(number);
        }
    }
}

/// Messages about each post.
fn sent(plan: &Plan) -> BTreeMap<String, u64> {
    let (mut sent, mut generator, mut bytes) = (BTreeMap::<u32, u64>::new(), plan.generate(), Vec::new());
    while let Some(message) = generator.write_next(&mut bytes) {
        bytes.clear();
        if let Some(post) = message.post {
            *sent.entry(post).or_default() += 1;
        }
    }
    let prefix = &plan.config().post_prefix;
    sent.into_iter().map(|(post, sent)| (format!("{prefix}{post}"), sent)).collect()
}
