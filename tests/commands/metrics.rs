//! What a worker exports from its first second on.

use crate::process::Worker;
use hotcount::telemetry::{Kind, Metric};

async fn page(worker: &Worker) -> String {
    reqwest::get(format!("{}/metrics", worker.address)).await.unwrap().text().await.unwrap()
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[tokio::test]
async fn a_fresh_worker_exports_every_metric_so_that_its_first_poison_is_an_increase() {
    let worker = Worker::start(&["--store", "memory:"]);
    let before = page(&worker).await;
    for row in Metric::ALL {
        assert!(before.contains(&format!("# HELP {} {}\n", row.name, row.help)), "{} in\n{before}", row.name);
        match row.kind {
            Kind::Counter => assert_eq!(value(&before, row.name), Some(0.0), "{} in\n{before}", row.name),
            Kind::CounterBy => {
                for known in row.values {
                    let series = format!("{}{{{}=\"{known}\"}}", row.name, row.label);
                    assert_eq!(value(&before, &series), Some(0.0), "{series} in\n{before}");
                }
            }
            Kind::Gauge => assert!(value(&before, row.name).is_some(), "{} in\n{before}", row.name),
            Kind::Histogram => {
                assert_eq!(value(&before, &format!("{}_count", row.name)), Some(0.0), "{} in\n{before}", row.name);
            }
        }
    }
    assert!(before.contains("hotcount_build_info{"), "{before}");
    if cfg!(target_os = "linux") {
        for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"] {
            assert!(value(&before, &format!("process_{name}")).is_some(), "{name} in\n{before}");
        }
    }
    let poison = "hotcount_deliveries_poison_total{field=\"type\"}";
    let event = r#"{"eventId":"e","type":"rubbish","postId":"p","userId":"u","occurredAt":"2026-01-01T00:00:00Z"}"#;
    let request = reqwest::Client::new().post(format!("{}/v1/events", worker.address)).body(event);
    assert_eq!(request.send().await.unwrap().status(), 400);
    let after = page(&worker).await;
    assert_eq!((value(&before, poison), value(&after, poison)), (Some(0.0), Some(1.0)));
}
