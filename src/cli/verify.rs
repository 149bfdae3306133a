//! `hotcount verify`: shards against members, for every post, and the repair of what differs.

use super::confirm::{Confirm, Consent};
use super::engine::seeded;
use super::output::{Row, Unreadable, line};
use super::{Exit, StoreArgs};
use clap::Args;
use futures::StreamExt;
use futures::stream::BoxStream;
use hotcount::http_api::PostCount;
use hotcount::read::reader::Verified;
use hotcount::read::{reader, repair};
use hotcount::store::{Access, ErrorClass, Listing, Repair, StoreError, Tally};
use rand::rngs::SmallRng;
use serde::Serialize;
use std::sync::Arc;

const AFTER_HELP: &str = "\
Drift is the count from shards minus the count from members. It is 0 unless something else than hotcount has written \
documents. --fix adds what is lacking to the post's repair shard, on condition that nobody else has repaired the post since \
it was read: workers keep running, two operators cannot repair twice, and a repair whose answer was lost is read again.\n\n\
A post of which something stored cannot be read is shown with the name of the document, and the others go on.\n\n\
Exit codes: 0 no drift, or all of it corrected · 1 drift remains (found, declined, or --dry-run), or a post cannot be read · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Verify {
    #[command(flatten)]
    store: StoreArgs,
    /// Find posts through their members too: also those whose shards were deleted from outside
    #[arg(long)]
    deep: bool,
    /// Correct each drift in the post's repair shard, after asking
    #[arg(long)]
    fix: bool,
    #[command(flatten)]
    confirm: Confirm,
    /// One JSON object a line; the last one is the summary
    #[arg(long)]
    json: bool,
}

/// The last line of `--json`. Other tools rely on the names.
#[derive(Default, Serialize)]
struct Summary {
    posts: u64,
    members: u64,
    /// Posts whose shards and members differed when they were read.
    drifting: u64,
    /// Posts of which something stored cannot be read.
    unreadable: u64,
    /// With `--fix`: posts that this command has corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    corrected: Option<u64>,
    /// With `--fix`: posts whose shards and members still differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

/// A post with drift, and what `--fix` did about it.
#[derive(Serialize)]
struct Fixed {
    #[serde(flatten)]
    found: PostCount,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_correct: Option<i64>,
    corrected: i64,
    refused: u32,
    now: PostCount,
}

impl Verify {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if !self.fix && (self.confirm.yes || self.confirm.dry_run) {
            anyhow::bail!("--yes and --dry-run belong to --fix; without it verify changes nothing");
        }
        let consent =
            if self.fix { Some(self.confirm.consent("corrects the counts of posts with drift")?) } else { None };
        let store = self.store.connect_repair(if self.fix { Access::Change } else { Access::Read }).await?;
        let repairs = consent.map(|consent| Repairs { store: Arc::clone(&store), consent, rng: seeded() });
        let mut rows: BoxStream<'_, Result<Verified, StoreError>> =
            if self.deep { reader::verify_deep(store).boxed() } else { reader::verify(store, Listing::Shards).boxed() };
        if !self.json {
            line(&Row::header(true))?;
        }
        let fixed = repairs.as_ref().map(|_| 0);
        let sum = Summary { corrected: fixed, remaining: fixed, ..Summary::default() };
        let mut shown = Shown { json: self.json, repairs, sum };
        while let Some(row) = rows.next().await {
            let Verified { post, tally } = row?;
            shown.sum.posts += 1;
            match tally {
                Ok(tally) => shown.post(&post, &tally).await?,
                Err(error) => shown.unreadable(&post, error)?,
            }
        }
        let sum = shown.sum;
        if self.json {
            line(&serde_json::to_string(&sum)?)?;
        } else {
            crate::cli::output::complain(&sum.text());
        }
        let found = sum.remaining.unwrap_or(sum.drifting) + sum.unreadable;
        Ok(if found == 0 { Exit::Done } else { Exit::Finding })
    }
}

/// What is shown, and what is done about it.
struct Shown {
    json: bool,
    repairs: Option<Repairs>,
    sum: Summary,
}

impl Shown {
    async fn post(&mut self, post: &str, tally: &Tally) -> anyhow::Result<()> {
        self.sum.members += tally.members.unwrap_or_default();
        let drifting = tally.drift().is_some_and(|drift| drift != 0);
        self.sum.drifting += u64::from(drifting);
        let row = Row { post, tally };
        let Some(repairs) = self.repairs.as_mut().filter(|_| drifting) else {
            return Ok(line(&if self.json { row.json()? } else { row.text() })?);
        };
        if !self.json {
            line(&row.text())?;
        }
        let fixed = match repairs.fix(post, tally).await? {
            Ok(fixed) => fixed,
            // It could be read a moment ago.
            Err(error) => return self.unreadable(post, error),
        };
        self.sum.corrected = self.sum.corrected.map(|n| n + u64::from(fixed.corrected != 0));
        self.sum.remaining = self.sum.remaining.map(|n| n + u64::from(fixed.now.drift != Some(0)));
        Ok(line(&if self.json { serde_json::to_string(&fixed)? } else { fixed.text() })?)
    }

    fn unreadable(&mut self, post: &str, error: StoreError) -> anyhow::Result<()> {
        let unreadable = Unreadable::of(post, error)?;
        self.sum.unreadable += 1;
        Ok(line(&if self.json { unreadable.json()? } else { unreadable.text() })?)
    }
}

impl Summary {
    fn text(&self) -> String {
        let Self { posts, members, drifting, unreadable, .. } = self;
        let mut text = format!("{posts} posts, {members} members, {drifting} with drift");
        if *unreadable > 0 {
            text += &format!(", {unreadable} that cannot be read");
        }
        if let (Some(corrected), Some(remaining)) = (self.corrected, self.remaining) {
            text += &format!(", {corrected} corrected, {remaining} left with drift");
        }
        text
    }
}

/// What `--fix` needs beside the rows.
struct Repairs {
    store: Arc<dyn Repair>,
    consent: Consent,
    rng: SmallRng,
}

impl Repairs {
    /// Corrects one post; the inner error says that something stored for it cannot be read.
    async fn fix(&mut self, post: &str, tally: &Tally) -> anyhow::Result<Result<Fixed, StoreError>> {
        let lacking = tally.drift().unwrap_or_default().saturating_neg();
        let row = |tally| PostCount::new(post.to_owned(), tally);
        let left = Fixed { found: row(*tally), would_correct: None, corrected: 0, refused: 0, now: row(*tally) };
        if self.consent == Consent::DryRun {
            return Ok(Ok(Fixed { would_correct: Some(lacking), ..left }));
        }
        if !self.consent.allows_one(&format!("Correct the count of {post} by {lacking:+}?"))? {
            return Ok(Ok(left));
        }
        match repair::correct(&*self.store, post, &mut self.rng).await {
            Ok(done) => Ok(Ok(Fixed { corrected: done.corrected, refused: done.refused, now: row(done.now), ..left })),
            Err(error) if matches!(error.class, ErrorClass::Undecidable(_)) => Ok(Err(error)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Fixed {
    fn text(&self) -> String {
        let now = &self.now;
        let mut text = match self.would_correct {
            Some(lacking) => return format!("  would be corrected by {lacking:+}"),
            None if self.corrected != 0 => format!("  corrected by {:+}", self.corrected),
            None => "  not corrected".to_owned(),
        };
        if self.refused > 0 {
            text += &format!(", {} × refused because somebody else repaired first, and read again", self.refused);
        }
        text + &format!(": count {}, drift {} now", now.count, now.drift.unwrap_or_default())
    }
}
