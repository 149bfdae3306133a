//! Arguments, rounds and medians of the benchmarks that run whole programs.

use std::time::Duration;

/// Calls `set` for every `name=value` of the command line.
pub(crate) fn arguments(mut set: impl FnMut(&str, &str)) {
    // Cargo adds `--bench`.
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        set(name, value);
    }
}

/// The cores of this machine.
pub(crate) fn machine() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How long each round took.
#[derive(Default)]
pub(crate) struct Rounds(Vec<Duration>);

impl Rounds {
    /// One more round.
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Whether there was none.
    #[allow(dead_code, reason = "not every benchmark leaves parts out")]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `amount` a second, in the median round.
    pub(crate) fn rate(&self, amount: u64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).map_or(0.0, |took| amount as f64 / took.as_secs_f64())
    }
}
