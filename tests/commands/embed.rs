//! The application of `examples/embed.rs`: it counts what is published, says that it is ready, and drains when it is stopped.

use crate::process::Worker;
use crate::support::publish::{PROJECT, Topic};
use crate::support::{emulators, within};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The example, built.
fn example() -> Command {
    let built = Command::new(env!("CARGO")).args(["build", "--locked", "--quiet", "--example", "embed"]).status();
    assert!(built.unwrap().success(), "the example does not build");
    let binary = Path::new(env!("CARGO_BIN_EXE_hotcount"));
    Command::new(binary.with_file_name("examples").join("embed"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_embeds_a_worker_counts_and_drains() {
    let (Some(firestore), Some(topic)) = (emulators::firestore(), Topic::new(|s| s).await) else { return };
    let post = emulators::unique("post");
    let event = |n: u32| {
        format!(
            r#"{{"eventId":"e{n}","type":"like.added","postId":"{post}","userId":"u{n}","occurredAt":"2026-01-01T00:00:00Z"}}"#
        )
    };
    topic.publish_all((0..20).chain(0..20).map(event)).await;
    let mut command = example();
    command.args([PROJECT, &topic.subscription, "127.0.0.1:0"]);
    command.env("PUBSUB_EMULATOR_HOST", &topic.host).env("FIRESTORE_EMULATOR_HOST", &firestore);
    let worker = Worker::start_as(command);
    let get = |path: &str| reqwest::get(format!("{}{path}", worker.address));
    let metric = |page: &str, name: &str| {
        page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or_default()
    };
    within(Duration::from_secs(120), "40 deliveries", async {
        loop {
            let page = get("/metrics").await.unwrap().text().await.unwrap();
            assert!(page.contains("# HELP hotcount_likes_applied_total"), "{page}");
            if metric(&page, "hotcount_deliveries_received_total ") >= 40 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(get("/readyz").await.unwrap().status(), 200);
    worker.signal("INT");
    let (status, log) = worker.end();
    assert!(status.success(), "{log}");
    let url = format!("firestore://{PROJECT}?emulator={firestore}");
    let counted = crate::process::run(&["count", &post, "--verify", "--json", "--store", &url]);
    let counted: serde_json::Value = serde_json::from_slice(&counted.stdout).unwrap();
    assert_eq!((&counted["count"], &counted["drift"]), (&20.into(), &0.into()), "{counted}");
}
