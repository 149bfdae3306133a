//! `hotcount quarantine purge`: poison that nobody wants any more.

use super::selection::Selection;
use super::{connect, text, unreadable_text};
use crate::cli::confirm::{Confirm, Consent};
use crate::cli::engine::seeded;
use crate::cli::output::line;
use crate::cli::{Exit, StoreArgs};
use clap::Args;
use hotcount::engine::reprocess;
use serde_json::json;

const AFTER_HELP: &str = "\
What is deleted is gone: nobody delivers it again, because it was acknowledged when it was quarantined. To keep a copy, list \
it first: hotcount quarantine list --json > poison.jsonl. Entries that cannot be read are deleted too.\n\n\
Exit codes: 0 deleted (or shown, with --dry-run) · 1 declined, or an id is not there · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Purge {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    confirm: Confirm,
    /// One JSON object a line: id and outcome (deleted, would_delete, missing); the last one is the summary
    #[arg(long)]
    json: bool,
}

impl Purge {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let consent = self.confirm.consent("deletes quarantined deliveries for good")?;
        let store = connect(&self.store).await?;
        if !consent.allows(&format!("Delete {} in {} for good?", self.selection.text(), self.store.store))? {
            crate::cli::output::complain("nothing was deleted");
            return Ok(Exit::Finding);
        }
        let dry_run = consent == Consent::DryRun;
        let outcome = if dry_run { "would_delete" } else { "deleted" };
        let (mut done, mut missing, mut rng) = (0, 0, seeded());
        let mut pages = self.selection.pages();
        while let Some(page) = pages.next(&*store).await? {
            // Deleting needs no reading.
            let ids: Vec<String> = page.ids().collect();
            if !dry_run {
                reprocess::discard(&*store, &ids, &mut rng).await?;
            }
            for entry in &page.entries {
                line(&match (self.json, dry_run) {
                    (true, _) => json!({"id": entry.id, "outcome": outcome}).to_string(),
                    (false, true) => text(entry),
                    (false, false) => format!("{}  deleted", entry.id),
                })?;
            }
            for (id, fault) in &page.unreadable {
                line(&match (self.json, dry_run) {
                    (true, _) => json!({"id": id, "outcome": outcome}).to_string(),
                    (false, true) => unreadable_text(id, fault),
                    (false, false) => format!("{id}  deleted"),
                })?;
            }
            for id in &page.missing {
                line(&if self.json {
                    json!({"id": id, "outcome": "missing"}).to_string()
                } else {
                    format!("{id}  is not there")
                })?;
            }
            done += ids.len();
            missing += page.missing.len();
        }
        store.close().await?;
        if self.json {
            line(&json!({outcome: done, "missing": missing}).to_string())?;
        } else {
            let done_what = if dry_run { "would be deleted" } else { "deleted" };
            crate::cli::output::complain(&format!("{done} {done_what}, {missing} not there"));
        }
        Ok(if missing == 0 { Exit::Done } else { Exit::Finding })
    }
}
