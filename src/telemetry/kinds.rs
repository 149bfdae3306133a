//! The kinds of metrics. Each is a type, so that a counter cannot be set and a gauge cannot be counted.

use std::time::Duration;

/// What a metric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It only grows, for each value of a label.
    CounterBy,
    /// It goes up and down.
    Gauge,
    /// It collects latencies in seconds.
    Histogram,
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// What it does.
    pub kind: Kind,
    /// The name that Prometheus sees.
    pub name: &'static str,
    /// What it says, for whoever reads the metrics page.
    pub help: &'static str,
    /// Its label; empty without one.
    pub label: &'static str,
    /// Every value that the label can have.
    pub values: &'static [&'static str],
}

/// A metric that only grows.
#[derive(Clone, Copy, Debug)]
pub struct Counter(pub(super) &'static Row);

impl Counter {
    /// Moves it.
    pub fn add(self, n: u64) {
        if n > 0 {
            metrics::counter!(self.0.name).increment(n);
        }
    }
}

/// A metric that only grows, for each value of its label.
#[derive(Clone, Copy, Debug)]
pub struct CounterBy(pub(super) &'static Row);

impl CounterBy {
    /// Moves it for one value, which must be in the table to exist from the start.
    pub fn add_labelled(self, label: &'static str, value: &'static str, n: u64) {
        debug_assert!(self.0.label == label && self.0.values.contains(&value), "{}: {label}={value}", self.0.name);
        if n > 0 {
            metrics::counter!(self.0.name, label => value).increment(n);
        }
    }
}

/// A metric that goes up and down.
#[derive(Clone, Copy, Debug)]
pub struct Gauge(pub(super) &'static Row);

impl Gauge {
    /// Sets it.
    pub fn set(self, value: usize) {
        // A gauge is a float for Prometheus; above 2^53 it would round.
        metrics::gauge!(self.0.name).set(value as f64);
    }
}

/// A metric that collects latencies.
#[derive(Clone, Copy, Debug)]
pub struct Histogram(pub(super) &'static Row);

impl Histogram {
    /// Adds one latency.
    pub fn observe(self, latency: Duration) {
        metrics::histogram!(self.0.name).record(latency.as_secs_f64());
    }
}
