//! The command line: one file a subcommand. Every flag has an environment variable; there is no config file.

#[cfg(feature = "embedded")]
mod backup;
mod confirm;
mod count;
mod dead_letters;
#[cfg(feature = "embedded")]
mod demo;
#[cfg(feature = "embedded")]
mod embedded;
mod engine;
mod load;
pub(crate) mod log;
pub(crate) mod output;
mod plain;
mod quarantine;
mod replay;
mod run;
mod setup;
mod url;
mod verify;

use clap::{Args, Parser, Subcommand};
use hotcount::common::adapter_url;
use hotcount::store::{self, Access, Counts, Repair, Store};
use std::process::ExitCode;
use std::sync::Arc;
use url::Url;

/// Counts likes on posts, exactly, from a queue that delivers at least once.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// What is logged to standard error: error, warn, info, debug, trace, or a filter such as hotcount=debug
    #[arg(long, global = true, env = "HOTCOUNT_LOG", default_value = "info", hide_env_values = true)]
    pub(crate) log: String,
    /// How it is logged
    #[arg(long, global = true, env = "HOTCOUNT_LOG_FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: log::Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Try it offline:
  hotcount demo                 everything from one command, with duplicates, kills and the proof of the counts

  hotcount run &
  curl -d '{\"eventId\":\"e1\",\"type\":\"like.added\",\"postId\":\"p1\",\"userId\":\"u1\",\"occurredAt\":\"2026-01-01T00:00:00Z\"}' \\
       127.0.0.1:8080/v1/events
  hotcount count p1 --store http://127.0.0.1:8080

Exit codes: 0 done · 1 a finding (drift, counts that differ) · 2 cannot work or wrong usage · 3 stopped with deliveries
left to redelivery.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The worker: pulls events, counts them, acknowledges them
    Run(run::Run),
    /// Counts the events of a file through the same pipeline
    Replay(replay::Replay),
    /// Prints the derived count of posts
    Count(count::Count),
    /// Compares the count from shards with the count from members, for every post, and corrects what differs
    Verify(verify::Verify),
    /// Poison: what could never be counted, and why; trying it again, or dropping it
    Quarantine(quarantine::Quarantine),
    /// What the broker gave up on: looking at it, and sending it again
    DeadLetters(dead_letters::DeadLetters),
    /// Sends events whose outcome is known from a seed: to a topic, a worker or a file
    Load(Box<load::Load>),
    /// Shows everything offline: a viral post, duplicates, a worker that is killed twice, and counts that are exact
    #[cfg(feature = "embedded")]
    Demo(demo::Demo),
    /// A consistent copy of an embedded store, while a worker counts
    #[cfg(feature = "embedded")]
    Backup(backup::Backup),
    /// What can be done to an embedded store that no process has open: salvage, compact
    #[cfg(feature = "embedded")]
    Embedded(embedded::Embedded),
    /// Makes the topic, the subscription and the dead letters, and prints what the database needs
    Setup(setup::Setup),
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Run(command) => command.run().await,
            Self::Replay(command) => command.run().await,
            Self::Count(command) => command.run().await,
            Self::Verify(command) => command.run().await,
            Self::Quarantine(command) => command.run().await,
            Self::DeadLetters(command) => command.run().await,
            Self::Load(command) => command.run().await,
            #[cfg(feature = "embedded")]
            Self::Demo(command) => command.run().await,
            #[cfg(feature = "embedded")]
            Self::Backup(command) => command.run().await,
            #[cfg(feature = "embedded")]
            Self::Embedded(command) => command.run().await,
            Self::Setup(command) => command.run().await,
        }
    }
}

/// Says what is wrong with a command line, or gives the help that was asked for. An error repeats what was typed, and
/// somebody may have typed a password.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let set = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOTCOUNT_"));
        let typed = std::env::args_os().chain(set.map(|(_, value)| value));
        let text = typed.fold(error.render().to_string(), |text, typed| {
            let typed = typed.to_string_lossy();
            // `--store=URL` is a word too.
            let url = typed.split_once('=').filter(|(flag, _)| flag.starts_with('-')).map_or(&*typed, |(_, url)| url);
            let shown = adapter_url::shown(url);
            if shown == url { text } else { text.replace(url, &shown) }
        });
        output::complain(text.trim_end());
        return Exit::Fatal.into();
    }
    match error.print() {
        Ok(()) => Exit::Done.into(),
        Err(_) => Exit::Fatal.into(),
    }
}

/// How the process ends. Other tools rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0
    Done,
    /// 1: drift, or counts that differ.
    Finding,
    /// 2: cannot work, or wrong usage.
    Fatal,
    /// 3: stopped with deliveries left to redelivery.
    LeftToRedelivery,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Finding => 1,
            Self::Fatal => 2,
            Self::LeftToRedelivery => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Which store.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store: embedded:PATH, firestore://PROJECT[/DATABASE] or memory:. For count, verify and quarantine list also
    /// http://ADDR of a running worker, because an embedded store belongs to one process
    #[arg(
        long,
        env = "HOTCOUNT_STORE",
        default_value = "embedded:./hotcount-data",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) store: Url,
    /// Names this consumer: a second consumer of the same topic uses another name, and another prefix in --store
    #[arg(long, env = "HOTCOUNT_CONSUMER", default_value = "like-counter", value_name = "NAME")]
    pub(crate) consumer: String,
}

impl StoreArgs {
    fn options(&self, access: Access) -> store::Options {
        store::Options { consumer: self.consumer.clone(), access }
    }

    /// For writing; made where it is missing.
    pub(crate) async fn connect(&self) -> anyhow::Result<Arc<dyn Store>> {
        Ok(hotcount::connect::store(self.store.typed(), &self.options(Access::Create)).await?)
    }

    /// For changing what is there: a store that is missing is an error, not an empty one.
    pub(crate) async fn connect_existing(&self) -> anyhow::Result<Arc<dyn Store>> {
        Ok(hotcount::connect::store(self.store.typed(), &self.options(Access::Change)).await?)
    }

    /// For reading, and for repairing with [`Access::Change`]. What is missing is not made.
    pub(crate) async fn connect_repair(&self, access: Access) -> anyhow::Result<Arc<dyn Repair>> {
        Ok(hotcount::connect::repair(self.store.typed(), &self.options(access)).await?)
    }

    /// For reading alone: no byte is changed.
    pub(crate) async fn connect_counts(&self) -> anyhow::Result<Arc<dyn Counts>> {
        Ok(hotcount::connect::counts(self.store.typed(), &self.options(Access::Read)).await?)
    }
}
