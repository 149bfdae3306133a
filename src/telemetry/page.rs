//! What `/metrics` shows: the table, what this build is, and what the process uses.

use super::{BUCKETS_SECONDS, describe, process};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

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
    describe();
    Ok(page)
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new().set_buckets(&BUCKETS_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Metric, Row};
    use super::*;
    use std::collections::BTreeSet;

    /// The page of a process that has done `work`.
    fn page_after(work: impl FnOnce()) -> String {
        let recorder = builder().expect("the buckets are legal").build_recorder();
        let page = Page(recorder.handle());
        metrics::with_local_recorder(&recorder, || {
            describe();
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
