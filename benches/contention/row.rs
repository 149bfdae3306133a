//! One measurement, and how many of them are printed.

use serde::Serialize;
use std::time::Duration;

/// How events become a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Strategy {
    /// A transaction an event, on one document.
    Single,
    /// The same, on a random one of the shards.
    Sharded,
    /// The engine's batches, on one document.
    Aggregated,
    /// The engine's batches, each lane on its shard.
    Hotcount,
}

impl Strategy {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Sharded, Self::Aggregated, Self::Hotcount];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sharded => "sharded",
            Self::Aggregated => "aggregated",
            Self::Hotcount => "hotcount",
        }
    }

    /// Whether it is a transaction an event.
    pub(crate) fn is_guarded(self) -> bool {
        matches!(self, Self::Single | Self::Sharded)
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// `emulator` or `model`.
    pub(crate) backend: &'static str,
    pub(crate) strategy: Strategy,
    pub(crate) writers: usize,
    pub(crate) shards: u16,
    /// Documents in one commit at most; 2 for a transaction an event.
    pub(crate) batch_writes: usize,
    /// Whether it is a point of the strategy's curve over writers.
    pub(crate) in_curve: bool,
    pub(crate) seconds: f64,
    pub(crate) counted: u64,
    pub(crate) events_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) tried: u64,
    pub(crate) aborted: u64,
    pub(crate) aborted_share: f64,
    pub(crate) writes_per_million: f64,
    pub(crate) reads_per_million: f64,
}

/// What one run measured, before it is a row.
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) counted: u64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) tried: u64,
    pub(crate) aborted: u64,
    pub(crate) writes: u64,
    pub(crate) reads: u64,
}

impl Row {
    pub(crate) fn new(
        backend: &'static str,
        strategy: Strategy,
        (writers, shards, batch_writes): (usize, u16, usize),
        measured: &Measured,
    ) -> Self {
        let per_million = |amount: u64| amount as f64 * 1e6 / measured.counted.max(1) as f64;
        Self {
            backend,
            strategy,
            writers,
            shards,
            batch_writes,
            in_curve: false,
            seconds: measured.seconds,
            counted: measured.counted,
            events_per_s: measured.counted as f64 / measured.seconds,
            p50_ms: measured.p50.as_secs_f64() * 1e3,
            p99_ms: measured.p99.as_secs_f64() * 1e3,
            tried: measured.tried,
            aborted: measured.aborted,
            aborted_share: measured.aborted as f64 / measured.tried.max(1) as f64,
            writes_per_million: per_million(measured.writes),
            reads_per_million: per_million(measured.reads),
        }
    }

    pub(crate) fn header() {
        println!(
            "{:<11} {:>7} {:>6} {:>6} {:>12} {:>11} {:>11} {:>8} {:>12} {:>12}",
            "strategy", "writers", "shards", "batch", "likes/s", "p50 ms", "p99 ms", "aborted", "writes/M", "reads/M"
        );
    }

    pub(crate) fn print(&self) {
        println!(
            "{:<11} {:>7} {:>6} {:>6} {:>12} {:>11.1} {:>11.1} {:>6.1} % {:>12.0} {:>12.0}",
            self.strategy.name(),
            self.writers,
            self.shards,
            self.batch_writes,
            rate(self.events_per_s),
            self.p50_ms,
            self.p99_ms,
            self.aborted_share * 100.0,
            self.writes_per_million,
            self.reads_per_million,
        );
    }
}

/// A rate with three figures that mean something.
pub(crate) fn rate(per_s: f64) -> String {
    if per_s >= 100.0 { format!("{per_s:.0}") } else { format!("{per_s:.2}") }
}
