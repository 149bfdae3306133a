//! Every metric of the worker in one table: its name, its labels, and when it moves. Latencies also go to histograms
//! that keep every percentile, for the report at the end of a run.

mod describe;
mod kinds;
mod latencies;
#[cfg(feature = "http")]
mod page;
#[cfg(feature = "http")]
mod process;

pub use describe::{BUCKETS_SECONDS, describe};
pub use kinds::{Counter, CounterBy, Gauge, Histogram, Kind, Row};
pub use latencies::Latencies;
#[cfg(feature = "http")]
pub use page::{Page, prometheus};

/// The metrics, each a constant whose type is its kind. They read like the variants of one list.
#[derive(Clone, Copy, Debug)]
pub enum Metric {}

/// A row is a kind, a name in the code, a name for Prometheus, what it says, and the label with every value that it can
/// have. [`prometheus`] makes all of them appear from the start: a counter that begins to exist with its first increment
/// is one whose first increment `increase()` misses.
macro_rules! table {
    ($($kind:ident $name:ident, $prometheus:literal, $help:literal
        $(, $label:literal in [$($value:literal),+])?;)+) => {
        #[expect(non_upper_case_globals, reason = "they read like the variants of one list")]
        impl Metric {
            $(
                #[doc = $help]
                pub const $name: $kind = $kind(&Row {
                    kind: Kind::$kind,
                    name: $prometheus,
                    help: $help,
                    label: table!(@first $($label)?),
                    values: &[$($($value),+)?],
                });
            )+
            /// Every metric, in the order of the flow.
            pub const ALL: &[&Row] = &[$(Self::$name.0),+];
        }
    };
    (@first) => { "" };
    (@first $label:literal) => { $label };
}

table! {
    Counter Received, "hotcount_deliveries_received_total", "Deliveries pulled from the source.";
    Counter Applied, "hotcount_likes_applied_total", "Likes written to the store.";
    Counter Folded, "hotcount_deliveries_folded_total",
        "Deliveries folded into a newer like of the same member in their batch.";
    CounterBy Duplicates, "hotcount_likes_duplicate_total",
        "Likes not newer than what is stored, of the same state; by the layer that saw it.",
        "layer" in ["recent", "membership"];
    CounterBy Stale, "hotcount_likes_stale_total",
        "Likes not newer than what is stored, of the other state; by the layer that saw it.",
        "layer" in ["recent", "membership"];
    CounterBy Poison, "hotcount_deliveries_poison_total", "Deliveries quarantined, by the field at fault.",
        "field" in ["payload", "eventId", "type", "postId", "userId", "occurredAt", "version", "store"];
    Counter FromTheFuture, "hotcount_deliveries_from_the_future_total",
        "Deliveries whose occurredAt lies too far ahead of this machine's clock, or of the broker's; they are poison.";
    Counter SettledBefore, "hotcount_deliveries_settled_before_total",
        "Deliveries of a message that this worker has settled already: its acknowledgement had no effect.";
    Counter Redelivered, "hotcount_deliveries_redelivered_total", "Deliveries dropped and left to redelivery.";
    Counter UnconfirmedAcks, "hotcount_acks_unconfirmed_total", "Acknowledgements that the broker did not confirm.";
    CounterBy Batches, "hotcount_batches_total", "Batches applied; replayed ones had committed before.",
        "replayed" in ["false", "true"];
    CounterBy FailedAttempts, "hotcount_batch_attempts_failed_total", "Attempts at a batch that failed, by class.",
        "class" in ["did_not_commit", "unknown", "unauthenticated", "fatal", "rejected", "contended",
            "undecidable"];
    CounterBy Splits, "hotcount_batches_split_total", "Batches split, by reason.",
        "why" in ["contended", "refused", "failing", "undecidable"];
    Counter StreamRestarts, "hotcount_stream_restarts_total", "Streams of the source opened again after an error.";
    Counter StoreReads, "hotcount_store_reads_total", "Documents read from Firestore, as it bills them.";
    Counter StoreWrites, "hotcount_store_writes_total", "Documents written to Firestore, as it bills them.";
    Counter RefusedCommits, "hotcount_store_refused_commits_total",
        "Commits that Firestore refused because somebody had written one of their documents first.";
    CounterBy RefusedRequests, "hotcount_http_requests_refused_total", "Requests that were not taken, or not in time, by reason.",
        "why" in ["form", "encoding", "size", "broken", "slow", "room", "not_durable", "page", "connections"];
    CounterBy ClosedConnections, "hotcount_http_connections_closed_total",
        "Connections that the worker closed: there were as many as there may be, no descriptor was left, or the peer took too long.",
        "why" in ["limit", "descriptors", "head", "body", "answer", "rest"];
    Gauge HttpConnections, "hotcount_http_connections", "Open connections to the HTTP server.";
    Gauge HeldDeliveries, "hotcount_held_deliveries", "Deliveries held now, from pull to settling.";
    Gauge HeldBytes, "hotcount_held_bytes", "Bytes held now: deliveries from pull to settling, bodies that are read, pages that are answered.";
    Gauge Buffered, "hotcount_buffered_likes", "Likes that wait in the buffer for a commit.";
    Gauge Paused, "hotcount_paused", "1 while the store fails as a whole and nothing is pulled.";
    Gauge Findings, "hotcount_findings", "Findings that make the worker not ready; /readyz lists them.";
    Histogram CommitSeconds, "hotcount_commit_seconds", "One attempt at a batch that was answered.";
    Histogram SettleSeconds, "hotcount_settle_seconds", "From the arrival of a batch's oldest like to its settling.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_metric_has_a_name_of_its_own_that_says_its_kind() {
        let names: BTreeSet<&str> = Metric::ALL.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), Metric::ALL.len());
        for row in Metric::ALL {
            let counts = matches!(row.kind, Kind::Counter | Kind::CounterBy);
            assert_eq!(row.name.ends_with("_total"), counts, "{}", row.name);
            assert_eq!(row.name.ends_with("_seconds"), row.kind == Kind::Histogram, "{}", row.name);
            assert_eq!(row.values.is_empty(), row.kind != Kind::CounterBy, "{}", row.name);
            assert!(row.name.starts_with("hotcount_") && row.help.ends_with('.'), "{}", row.name);
        }
    }
}
