//! What `/metrics` shows: the table, what this build is, and what the process uses.

use super::{Kind, Metric, Row, process};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of the histograms' buckets in seconds: from a commit of the embedded store to an outage.
const BUCKETS_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

/// Renders the metrics of this process.
#[derive(Clone)]
pub struct Page(PrometheusHandle);

impl Page {
    /// Everything, in Prometheus's text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render() + &process::rendered()
    }

    /// Histograms keep every sample until they are rendered or until this is called: to be called now and then.
    pub fn run_upkeep(&self) {
        self.0.run_upkeep();
    }
}

/// Makes Prometheus the recorder of this process, with every metric at 0.
///
/// # Errors
/// When the process has a recorder already.
pub fn prometheus() -> Result<Page, BuildError> {
    let page = Page(builder()?.install_recorder()?);
    begin();
    Ok(page)
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new().set_buckets(&BUCKETS_SECONDS)
}

/// Describes every metric and lets it exist.
fn begin() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The page of a process that has done `work`.
    fn page_after(work: impl FnOnce()) -> String {
        let recorder = builder().expect("the buckets are legal").build_recorder();
        let page = Page(recorder.handle());
        metrics::with_local_recorder(&recorder, || {
            begin();
            work();
        });
        page.render()
    }

    #[test]
    fn every_metric_exists_at_0_from_the_start_with_each_value_of_its_label_and_a_help_text() {
        let page = page_after(|| {});
        let lines: BTreeSet<&str> = page.lines().collect();
        for Row { kind, name, help, label, values } in Metric::ALL {
            let kind_name = match kind {
                Kind::Counter | Kind::CounterBy => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            assert!(lines.contains(&*format!("# HELP {name} {help}")), "{name} in\n{page}");
            assert!(lines.contains(&*format!("# TYPE {name} {kind_name}")), "{name} in\n{page}");
            match kind {
                Kind::Counter | Kind::Gauge => assert!(lines.contains(&*format!("{name} 0")), "{name} in\n{page}"),
                Kind::CounterBy => values.iter().for_each(|value| {
                    assert!(lines.contains(&*format!("{name}{{{label}=\"{value}\"}} 0")), "{name} {value} in\n{page}");
                }),
                Kind::Histogram => assert!(lines.contains(&*format!("{name}_count 0")), "{name} in\n{page}"),
            }
        }
    }

    #[test]
    fn no_series_is_there_that_the_table_does_not_know() {
        let page = page_after(|| {
            Metric::Received.add(2);
            Metric::Poison.add_labelled("field", "type", 1);
            Metric::Buffered.set(3);
            Metric::CommitSeconds.observe(std::time::Duration::from_millis(20));
        });
        for line in ["hotcount_deliveries_received_total 2", "hotcount_deliveries_poison_total{field=\"type\"} 1"] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
        let named = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        for name in named.filter_map(|rest| rest.split(' ').next()) {
            let known = Metric::ALL.iter().any(|row| row.name == name) || name == "hotcount_build_info";
            assert!(known || name.starts_with("process_"), "{name}");
        }
    }

    #[test]
    fn the_build_says_what_it_is() {
        let page = page_after(|| {});
        let line = page.lines().find(|line| line.starts_with("hotcount_build_info{")).expect("it is there");
        assert!(line.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))), "{line}");
        assert!(line.contains("features=\"") && line.contains("http") && line.ends_with(" 1"), "{line}");
    }
}
