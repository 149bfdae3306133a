//! Every metric exists from the start: `increase()` misses the first increment of one that begins to exist with it.

use super::{Kind, Metric, Row};

/// Upper bounds of the histograms' buckets in seconds: from a commit of the embedded store to an outage.
pub const BUCKETS_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

/// Describes every metric to the recorder of this process and lets it exist at 0, with `hotcount_build_info`. An
/// application calls it once, after it has installed its recorder; [`prometheus`](super::prometheus) calls it itself.
pub fn describe() {
    for Row { kind, name, help, label, values } in Metric::ALL {
        let (name, help) = (*name, *help);
        match kind {
            Kind::Counter => {
                metrics::describe_counter!(name, help);
                metrics::counter!(name).increment(0);
            }
            Kind::CounterBy => {
                metrics::describe_counter!(name, help);
                values.iter().for_each(|value| metrics::counter!(name, *label => *value).increment(0));
            }
            Kind::Gauge => {
                metrics::describe_gauge!(name, help);
                metrics::gauge!(name).set(0);
            }
            Kind::Histogram => {
                metrics::describe_histogram!(name, help);
                let _ = metrics::histogram!(name);
            }
        }
    }
    metrics::describe_gauge!("hotcount_build_info", "1, with what this build is as labels.");
    let labels = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("features", features()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch", std::env::consts::ARCH.to_owned()),
    ];
    metrics::gauge!("hotcount_build_info", &labels).set(1);
}

/// The adapters that are built in.
fn features() -> String {
    let features = [
        ("embedded", cfg!(feature = "embedded")),
        ("firestore", cfg!(feature = "firestore")),
        ("http", cfg!(feature = "http")),
        ("pubsub", cfg!(feature = "pubsub")),
    ];
    let built_in: Vec<&str> = features.into_iter().filter_map(|(name, is_in)| is_in.then_some(name)).collect();
    built_in.join(",")
}
