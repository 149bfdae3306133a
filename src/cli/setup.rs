//! `hotcount setup`: what the source and the store rely on.

use super::output::line;
use super::url::Url;
use super::{Exit, StoreArgs};
use clap::Args;

const AFTER_HELP: &str = "\
  hotcount setup --source pubsub://PROJECT/likes --store firestore://PROJECT
  hotcount setup --source pubsub://PROJECT/likes --store firestore://PROJECT --print > setup.sh

It may be run again: what exists stays, and what differs from what hotcount relies on is said with the command that mends it.

Exit codes: 0 done · 1 something that exists differs · 2 cannot work.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Setup {
    /// The source to set up: pubsub://PROJECT/SUBSCRIPTION[?topic=TOPIC&exactly_once=true]. The topic is called as the
    /// subscription unless it is given; one that exists keeps its topic
    #[arg(long, env = "HOTCOUNT_SOURCE", default_value = "http:", value_name = "URL", hide_env_values = true)]
    source: Url,
    #[command(flatten)]
    store: StoreArgs,
    /// Change nothing; print the same as a shell script, with the TTL policy and the index exemptions
    #[arg(long)]
    print: bool,
}

impl Setup {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        if self.print {
            line("#!/bin/sh")?;
            line("# What hotcount relies on. Every command may be run again.")?;
            line("set -eu")?;
        }
        let mut exit = self.source().await?;
        if self.store()? == Exit::Finding {
            exit = Exit::Finding;
        }
        Ok(exit)
    }

    async fn source(&self) -> anyhow::Result<Exit> {
        #[cfg(feature = "pubsub")]
        if self.source.scheme() == "pubsub" {
            use hotcount::source::pubsub::setup;
            let config = setup::Config::from_url(self.source.typed())?;
            if self.print {
                line("\n# The topic, the subscription and the dead letters.")?;
                for command in setup::commands(&config) {
                    line(&command)?;
                }
                return Ok(Exit::Done);
            }
            let mut exit = Exit::Done;
            for step in setup::setup(&config).await? {
                line(&step.to_string())?;
                if matches!(step.outcome, setup::Outcome::Differs { .. }) {
                    exit = Exit::Finding;
                }
            }
            return Ok(exit);
        }
        if self.source.scheme() == "http" {
            hotcount::source::http::Http::connect(self.source.typed())?;
            line("# The source http: needs no setup.")?;
            return Ok(Exit::Done);
        }
        anyhow::bail!("there is no setup for the source '{}': use pubsub://PROJECT/SUBSCRIPTION", self.source)
    }

    fn store(&self) -> anyhow::Result<Exit> {
        #[cfg(feature = "firestore")]
        if self.store.store.scheme() == "firestore" {
            use hotcount::store::firestore::{Address, setup};
            let address = Address::parse(self.store.store.typed(), &self.store.consumer, None)?;
            if self.print {
                line("\n# The database: no index but one, and batch keys expire.")?;
                for command in setup::setup_commands(address.project(), address.database(), address.prefix()) {
                    line(&command)?;
                }
                line("\n# The same for the Firebase tools: firebase deploy --only firestore:indexes")?;
                let config = serde_json::to_string_pretty(&setup::index_config(address.prefix()))?;
                line(&format!("cat > firestore.indexes.json <<'JSON'\n{config}\nJSON"))?;
            } else {
                line("left to you for the database: its TTL policy and index exemptions; --print shows the commands")?;
            }
            return Ok(Exit::Done);
        }
        if !["embedded", "memory"].contains(&self.store.store.scheme().as_str()) {
            anyhow::bail!(
                "there is no setup for the store '{}': use firestore://PROJECT[/DATABASE]; embedded: needs none",
                self.store.store
            );
        }
        line(&format!("# The store {} needs no setup.", self.store.store))?;
        Ok(Exit::Done)
    }
}
