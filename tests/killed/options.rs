//! The arguments. `cargo test` passes some of its own, which mean here what they mean everywhere.

use crate::libtest::LibTest;
use clap::Parser;

/// Kills, restarts and starves the real worker, on Google's emulators and on the embedded store, and checks that every
/// count follows from the events alone.
///
/// It fails at the first count that is wrong, and prints how to do the same again. A seed decides everything but what the
/// operating system decides: the events, the place, and where each worker is killed.
#[derive(Clone, Debug, Parser)]
#[command(name = "killed", bin_name = "cargo test --test killed --")]
pub(crate) struct Options {
    /// How many workers to kill with SIGKILL, three in each round
    #[arg(long, env = "HOTCOUNT_KILLS", default_value_t = 48, value_name = "N")]
    pub(crate) kills: u64,
    /// The seed of the first round
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) from: u64,
    /// Do this round alone, and print what happens in it
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// Rounds at once: most of a round is waiting for leases to end
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub(crate) at_once: usize,
    /// How many workers are stopped and replaced under load
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) restarts: usize,
    /// How long the store is away, in seconds
    #[arg(long, default_value_t = 45, value_name = "S")]
    pub(crate) outage_s: u64,
    /// Only the checks whose name has one of these in it
    #[arg(value_name = "FILTER")]
    pub(crate) filters: Vec<String>,
    /// List the checks
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) libtest: LibTest,
}

impl Options {
    /// Whether a check is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.libtest.wants(name, &self.filters)
    }
}
