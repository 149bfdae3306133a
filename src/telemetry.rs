//! Every metric of the worker in one place: its name, and when it moves. Latencies also go to histograms that keep
//! every percentile, for the report at the end of a run.

use hdrhistogram::Histogram;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest latency that a histogram keeps apart: an hour, the longest lease.
const MAX_MICROS: u64 = 3_600_000_000;

/// The worker's metrics. A store counts its own reads and writes beside these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Counter: a delivery was pulled.
    Received,
    /// Counter: a like was written.
    Applied,
    /// Counter: a delivery was folded into a newer like of the same member in its batch.
    Folded,
    /// Counter: a like was not newer than what is stored, of the same state. Label `layer`: `window` or `membership`.
    Duplicates,
    /// Counter: a like was not newer than what is stored, of the other state. Label `layer`: `window` or `membership`.
    Stale,
    /// Counter: a delivery was quarantined. Label `field`.
    Poison,
    /// Counter: a delivery was dropped and is left to redelivery.
    Redelivered,
    /// Counter: the broker did not confirm an acknowledgement; the delivery may come back.
    UnconfirmedAcks,
    /// Counter: a batch was applied. Label `replayed`: whether its key showed that it had committed before.
    Batches,
    /// Counter: an attempt at a batch failed. Label `class`.
    FailedAttempts,
    /// Counter: a batch was split. Label `why`: `contended`, `refused` or `failing`.
    Splits,
    /// Counter: a stream of the source was opened again after an error.
    StreamRestarts,
    /// Gauge: deliveries held, from pull to settling.
    HeldDeliveries,
    /// Gauge: bytes held, from pull to settling.
    HeldBytes,
    /// Gauge: likes that wait in the buffer.
    Buffered,
    /// Gauge: 1 while the store fails as a whole and nothing is pulled.
    Paused,
    /// Gauge: things that stand still, as the watchdog sees them.
    Findings,
    /// Histogram in seconds: one attempt at a batch that was answered.
    CommitSeconds,
    /// Histogram in seconds: from pull of the oldest delivery of a batch to its settling.
    SettleSeconds,
}

impl Metric {
    /// The name that Prometheus sees.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "hotcount_deliveries_received_total",
            Self::Applied => "hotcount_likes_applied_total",
            Self::Folded => "hotcount_deliveries_folded_total",
            Self::Duplicates => "hotcount_likes_duplicate_total",
            Self::Stale => "hotcount_likes_stale_total",
            Self::Poison => "hotcount_deliveries_poison_total",
            Self::Redelivered => "hotcount_deliveries_redelivered_total",
            Self::UnconfirmedAcks => "hotcount_acks_unconfirmed_total",
            Self::Batches => "hotcount_batches_total",
            Self::FailedAttempts => "hotcount_batch_attempts_failed_total",
            Self::Splits => "hotcount_batches_split_total",
            Self::StreamRestarts => "hotcount_stream_restarts_total",
            Self::HeldDeliveries => "hotcount_held_deliveries",
            Self::HeldBytes => "hotcount_held_bytes",
            Self::Buffered => "hotcount_buffered_likes",
            Self::Paused => "hotcount_paused",
            Self::Findings => "hotcount_findings",
            Self::CommitSeconds => "hotcount_commit_seconds",
            Self::SettleSeconds => "hotcount_settle_seconds",
        }
    }

    /// Every metric, in the order of the flow.
    pub const ALL: [Self; 19] = [
        Self::Received,
        Self::Applied,
        Self::Folded,
        Self::Duplicates,
        Self::Stale,
        Self::Poison,
        Self::Redelivered,
        Self::UnconfirmedAcks,
        Self::Batches,
        Self::FailedAttempts,
        Self::Splits,
        Self::StreamRestarts,
        Self::HeldDeliveries,
        Self::HeldBytes,
        Self::Buffered,
        Self::Paused,
        Self::Findings,
        Self::CommitSeconds,
        Self::SettleSeconds,
    ];

    /// What it says, for whoever reads the metrics page.
    #[must_use]
    pub fn help(self) -> &'static str {
        match self {
            Self::Received => "Deliveries pulled from the source.",
            Self::Applied => "Likes written to the store.",
            Self::Folded => "Deliveries folded into a newer like of the same member in their batch.",
            Self::Duplicates => "Likes not newer than what is stored, of the same state; by the layer that saw it.",
            Self::Stale => "Likes not newer than what is stored, of the other state; by the layer that saw it.",
            Self::Poison => "Deliveries quarantined, by the field at fault.",
            Self::Redelivered => "Deliveries dropped and left to redelivery.",
            Self::UnconfirmedAcks => "Acknowledgements that the broker did not confirm.",
            Self::Batches => "Batches applied; replayed ones had committed before.",
            Self::FailedAttempts => "Attempts at a batch that failed, by class.",
            Self::Splits => "Batches split, by reason.",
            Self::StreamRestarts => "Streams of the source opened again after an error.",
            Self::HeldDeliveries => "Deliveries held now, from pull to settling.",
            Self::HeldBytes => "Bytes held now, from pull to settling.",
            Self::Buffered => "Likes that wait in the buffer for a commit.",
            Self::Paused => "1 while the store fails as a whole and nothing is pulled.",
            Self::Findings => "Things that stand still; /readyz says which.",
            Self::CommitSeconds => "One attempt at a batch that was answered.",
            Self::SettleSeconds => "From the arrival of a batch's oldest like to its settling.",
        }
    }

    /// Moves a counter.
    pub fn add(self, n: u64) {
        if n > 0 {
            metrics::counter!(self.name()).increment(n);
        }
    }

    /// Moves a counter with a label.
    pub fn add_labelled(self, label: &'static str, value: &'static str, n: u64) {
        if n > 0 {
            metrics::counter!(self.name(), label => value).increment(n);
        }
    }

    /// Sets a gauge.
    pub fn set(self, value: usize) {
        // A gauge is a float for Prometheus; above 2^53 it would round.
        metrics::gauge!(self.name()).set(value as f64);
    }

    /// Adds one latency to a histogram.
    pub fn observe(self, latency: Duration) {
        metrics::histogram!(self.name()).record(latency.as_secs_f64());
    }
}

/// Upper bounds of the histograms' buckets in seconds: from a commit of the embedded store to an outage.
#[cfg(feature = "http")]
const BUCKETS_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

/// Makes Prometheus the recorder of this process. The handle renders, and must be given its upkeep now and then.
///
/// # Errors
/// When the process has a recorder already.
#[cfg(feature = "http")]
pub fn prometheus() -> Result<metrics_exporter_prometheus::PrometheusHandle, metrics_exporter_prometheus::BuildError> {
    let handle =
        metrics_exporter_prometheus::PrometheusBuilder::new().set_buckets(&BUCKETS_SECONDS)?.install_recorder()?;
    for metric in Metric::ALL {
        let (name, help) = (metric.name(), metric.help());
        match metric {
            Metric::HeldDeliveries | Metric::HeldBytes | Metric::Buffered | Metric::Paused | Metric::Findings => {
                metrics::describe_gauge!(name, help);
            }
            Metric::CommitSeconds | Metric::SettleSeconds => metrics::describe_histogram!(name, help),
            _ => metrics::describe_counter!(name, help),
        }
    }
    Ok(handle)
}

/// Latencies with every percentile, in microseconds.
#[derive(Debug)]
pub struct Latencies(Mutex<Histogram<u64>>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Mutex::new(empty()))
    }
}

#[expect(clippy::expect_used, reason = "the bounds are constants that the histogram accepts")]
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_MICROS, 3).expect("1 to an hour at three digits")
}

impl Latencies {
    /// Records one latency; longer than an hour counts as an hour.
    pub fn record(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).min(MAX_MICROS);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
    }

    /// Adds what `other` has recorded so far.
    pub fn absorb(&self, other: &Self) {
        // Copied first, so that two that absorb each other never hold both locks.
        let other = other.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += other;
    }

    /// The latency at `quantile`, from 0 to 1.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.0.lock().unwrap_or_else(PoisonError::into_inner).value_at_quantile(quantile))
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_keep_three_digits_and_an_hour_is_the_end() {
        let latencies = Latencies::default();
        (1..=1_000).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let p99 = latencies.quantile(0.99).as_millis();
        assert!((989..=991).contains(&p99), "{p99}");
        latencies.record(Duration::from_secs(7_200));
        assert!(latencies.quantile(1.0) >= Duration::from_secs(3_590));
        assert_eq!(latencies.count(), 1_001);
        let all = Latencies::default();
        all.absorb(&latencies);
        all.absorb(&latencies);
        assert_eq!((all.count(), all.quantile(0.99)), (2_002, latencies.quantile(0.99)));
    }
}
