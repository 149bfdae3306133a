//! `hotcount dead-letters`: what the broker gave up on, and sending it again.

#[cfg(feature = "pubsub")]
mod pubsub;

use super::Exit;
use super::confirm::Confirm;
use super::url::Url;
use clap::{Args, Subcommand};

const AFTER_HELP: &str = "\
A like that was delivered 100 times and never acknowledged is given up by the broker: usually it met an outage of the store \
that lasted for hours. It waits as a dead letter, on the subscription that `hotcount setup` makes for them. Poison is not \
here: it is quarantined, see `hotcount quarantine`.";

const AFTER_REDRIVE: &str = "\
Each dead letter is published to the topic that it came from, with its own attributes, and acknowledged after the broker has \
confirmed that. Counting is idempotent, so one that goes out twice counts once; other subscriptions of the topic get it too.\n\n\
Exit codes: 0 done · 1 declined · 2 cannot work · 3 some could not be sent again and stay.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DeadLetters {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows dead letters, and gives them back: id, subscription, delivery attempts, times, and the beginning of the
    /// payload
    List {
        #[command(flatten)]
        select: Select,
        /// One JSON object a line, with the whole payload in base64
        #[arg(long)]
        json: bool,
    },
    /// Publishes dead letters to their topic again
    #[command(after_help = AFTER_REDRIVE)]
    Redrive {
        #[command(flatten)]
        select: Select,
        #[command(flatten)]
        confirm: Confirm,
        /// One JSON object a line: message_id, outcome (redriven, would_redrive, left) and new_message_id or reason; the
        /// last one is the summary
        #[arg(long)]
        json: bool,
    },
}

/// Which dead letters.
#[derive(Clone, Debug, Args)]
struct Select {
    /// The source whose dead letters these are: pubsub://PROJECT/SUBSCRIPTION
    #[arg(long, env = "HOTCOUNT_SOURCE", value_name = "URL", hide_env_values = true)]
    source: Url,
    /// The subscription that keeps them, in the same project [default: the one that `hotcount setup` makes,
    /// TOPIC-dead-letters-inspect]
    #[arg(long, env = "HOTCOUNT_DEAD_LETTERS_SUBSCRIPTION", value_name = "ID")]
    subscription: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// How long nothing must come before they are taken for all, in seconds: the broker does not say that there are no
    /// more
    #[arg(long, default_value_t = 5, value_name = "S")]
    wait_s: u64,
}

impl DeadLetters {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let source = match &self.action {
            Action::List { select, .. } | Action::Redrive { select, .. } => &select.source,
        };
        #[cfg(feature = "pubsub")]
        if source.scheme() == "pubsub" {
            return match self.action {
                Action::List { select, json } => pubsub::list(select, json).await,
                Action::Redrive { select, confirm, json } => pubsub::redrive(select, confirm, json).await,
            };
        }
        anyhow::bail!("the source '{source}' has no dead letters: use pubsub://PROJECT/SUBSCRIPTION")
    }
}
