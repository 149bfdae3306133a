//! `hotcount quarantine replay`: poison, once more through the pipeline.

use super::selection::{Page, Selection};
use super::{connect, unreadable_text};
use crate::cli::confirm::{Confirm, Consent};
use crate::cli::engine::{EngineArgs, seeded, with_flags};
use crate::cli::output::line;
use crate::cli::run::cancel_on_signal;
use crate::cli::{Exit, StoreArgs};
use clap::Args;
use hotcount::engine::pipeline::Config;
use hotcount::engine::reprocess::{Fate, ReprocessError, reprocess};
use hotcount::like::event::decode_with;
use hotcount::store::Quarantined;
use serde::Serialize;
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

const AFTER_HELP: &str = "\
For after a fix: of hotcount, or of the store; --order is what the workers have. Each payload is decoded, folded and committed as if it had just \
arrived, so a like that was counted meanwhile stays counted once. An entry is deleted after its effect is durable; what is \
poison still stays, with the reason shown. Workers may keep running, but for an embedded store, which belongs to one process.\n\n\
Exit codes: 0 all counted · 1 declined, some are poison still or cannot be read, or an id is not there · 2 cannot work · 3 interrupted.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Replay {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    confirm: Confirm,
    /// One JSON object a line: id, outcome (counted, would_count, still_poison, left, unreadable, missing) and reason; the last one
    /// is the summary
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// The last line of `--json`. Other tools rely on the names.
#[derive(Default, Serialize)]
struct Summary {
    counted: u64,
    would_count: u64,
    still_poison: u64,
    left: u64,
    /// There, and stays, for it cannot be read.
    unreadable: u64,
    missing: u64,
}

/// One line of `--json`.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Replay {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let consent = self.confirm.consent("deletes quarantined deliveries once they are counted")?;
        let store = connect(&self.store).await?;
        let question = format!("Count {} in {}, and delete what counts?", self.selection.text(), self.store.store);
        if !consent.allows(&question)? {
            crate::cli::output::complain("nothing was counted");
            return Ok(Exit::Finding);
        }
        let (config, shutdown, mut rng) = (self.engine.config(), CancellationToken::new(), seeded());
        let mut sum = Summary::default();
        let mut pages = self.selection.pages();
        let work = async {
            while !shutdown.is_cancelled()
                && let Some(Page { entries, unreadable, missing }) = pages.next(&*store).await?
            {
                let ids: Vec<String> = entries.iter().map(|entry| entry.id.clone()).collect();
                let (fates, ended): (_, Result<(), ReprocessError>) = if consent == Consent::DryRun {
                    (entries.iter().map(|entry| would_be(entry, &config)).collect(), Ok(()))
                } else {
                    let stop = shutdown.clone();
                    reprocess(&store, entries, config.clone(), stop.cancelled_owned(), Default::default(), &mut rng)
                        .await
                };
                for (id, fate) in ids.iter().zip(&fates) {
                    sum.show(id, Some(fate), consent, self.json)?;
                }
                for (id, fault) in &unreadable {
                    sum.unreadable += 1;
                    let row = Row { id, outcome: "unreadable", reason: Some(fault.to_string()) };
                    line(&if self.json { serde_json::to_string(&row)? } else { unreadable_text(id, fault) })?;
                }
                for id in &missing {
                    sum.show(id, None, consent, self.json)?;
                }
                ended.map_err(|error| match error {
                    ReprocessError::Engine(error) => with_flags(error),
                    ReprocessError::Discard(_) => error.into(),
                })?;
                if fates.contains(&Fate::Left) {
                    // The store did not answer for as long as a batch is tried; the next page would wait as long.
                    break;
                }
            }
            anyhow::Ok(())
        };
        tokio::select! {
            worked = work => worked?,
            never = cancel_on_signal(&shutdown) => match never {},
        }
        store.close().await?;
        if self.json {
            line(&serde_json::to_string(&sum)?)?;
        } else {
            crate::cli::output::complain(&sum.text(consent));
        }
        Ok(match sum {
            _ if shutdown.is_cancelled() => Exit::LeftToRedelivery,
            Summary { left, .. } if left > 0 => Exit::LeftToRedelivery,
            Summary { still_poison: 0, unreadable: 0, missing: 0, .. } => Exit::Done,
            _ => Exit::Finding,
        })
    }
}

/// What the pipeline would make of a payload now.
fn would_be(entry: &Quarantined, config: &Config) -> Fate {
    match decode_with(&entry.data, &entry.attributes, config.order, SystemTime::now()) {
        Ok(_) => Fate::Counted,
        Err(poison) => Fate::StillPoison(poison),
    }
}

impl Summary {
    /// Counts and prints one entry; without a fate there is no such entry.
    fn show(&mut self, id: &str, fate: Option<&Fate>, consent: Consent, json: bool) -> anyhow::Result<()> {
        let (number, outcome, words) = match fate {
            Some(Fate::Counted) if consent == Consent::DryRun => {
                (&mut self.would_count, "would_count", "would be counted".to_owned())
            }
            Some(Fate::Counted) => (&mut self.counted, "counted", "counted".to_owned()),
            Some(Fate::StillPoison(why)) => (&mut self.still_poison, "still_poison", format!("poison still: {why}")),
            Some(Fate::Left) => (&mut self.left, "left", "left".to_owned()),
            None => (&mut self.missing, "missing", "is not there".to_owned()),
        };
        *number += 1;
        let reason = if let Some(Fate::StillPoison(why)) = fate { Some(why.to_string()) } else { None };
        let row = Row { id, outcome, reason };
        Ok(line(&if json { serde_json::to_string(&row)? } else { format!("{id}  {words}") })?)
    }

    fn text(&self, consent: Consent) -> String {
        let Self { counted, would_count, still_poison, left, unreadable, missing } = self;
        let first = if consent == Consent::DryRun {
            format!("{would_count} would be counted")
        } else {
            format!("{counted} counted")
        };
        format!(
            "{first}, {still_poison} poison still, {left} left, {unreadable} that cannot be read, {missing} not there"
        )
    }
}
