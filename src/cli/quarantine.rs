//! `hotcount quarantine`: what could never be counted, and why.

use super::output::line;
use super::{Exit, StoreArgs};
use clap::{Args, Subcommand};
use hotcount::face::QuarantineEntry;

/// Entries read with one call; each may hold 10 MiB.
const PAGE: usize = 20;

/// Characters of a payload that a row shows.
const SHOWN: usize = 80;

#[derive(Debug, Args)]
pub(crate) struct Quarantine {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists the entries: id, reason, source, message, and the beginning of the payload
    List {
        #[command(flatten)]
        store: StoreArgs,
        /// One JSON object a line, with the whole payload in base64
        #[arg(long)]
        json: bool,
    },
}

impl Quarantine {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let Action::List { store, json } = self.action;
        let counts = store.connect_counts().await?;
        let (mut after, mut entries) = (None, 0);
        loop {
            let page = counts.quarantined(after.as_deref(), PAGE).await?;
            entries += page.len();
            let last = page.len() < PAGE;
            after = page.last().map(|entry| entry.id.clone());
            for entry in page {
                if json {
                    line(&serde_json::to_string(&QuarantineEntry::from(entry))?)?;
                } else {
                    let payload = String::from_utf8_lossy(&entry.data);
                    let shown: String = payload.chars().take(SHOWN).flat_map(char::escape_debug).collect();
                    let message = entry.message_id.as_deref().unwrap_or("-");
                    line(&format!(
                        "{}  {}\n  {} · message {message} · {} bytes · {shown}",
                        entry.id,
                        entry.reason,
                        entry.source,
                        entry.data.len()
                    ))?;
                }
            }
            if last {
                break;
            }
        }
        if !json {
            eprintln!("{entries} entries");
        }
        Ok(Exit::Done)
    }
}
