//! The arguments. `cargo test` passes some of its own, which mean here what they mean everywhere.

use crate::libtest::LibTest;
use crate::mutants::Mutant;
use clap::Parser;

/// Runs the whole engine in a simulated world: the real aggregation, flush, pipeline and store logic, with simulated
/// queue, store, clock and dice. One seed decides everything of a run.
///
/// Without --seed it checks that a seed replays exactly, that planted bugs are caught, and then runs many seeds; it
/// fails at the first seed that shows a bug, and prints how to replay it.
#[derive(Clone, Debug, Parser)]
#[command(name = "simulation", bin_name = "cargo test --test simulation --")]
pub(crate) struct Options {
    /// How many seeds to run
    #[arg(long, env = "HOTCOUNT_SIM_SEEDS", default_value_t = 10_000, value_name = "N")]
    pub(crate) seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) from: u64,
    /// Run this seed alone, and print what happens in it
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// With --seed: plant this bug
    #[arg(long, requires = "seed", value_name = "BUG")]
    pub(crate) double: Option<Mutant>,
    /// Threads, each with its own world; as many as there are cores unless given
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
