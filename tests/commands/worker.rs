//! The main job with the real binary on Google's emulators: set up, pull, commit, acknowledge, drain.

use crate::process::{Worker, run, stderr, stdout, until};
use crate::support::emulators::{firestore, pubsub, unique};
use serde_json::Value;

struct Place {
    source: String,
    store: String,
    publish: String,
}

impl Place {
    /// For a worker that follows another. The emulator may give a message to a stream that is gone, for one lease each
    /// time: many live streams against the one that ended make that rare.
    fn with_many_streams(&self) -> String {
        self.source.replace("streams=1", "streams=32")
    }
}

/// A project of the test's own on both emulators, set up by the binary itself.
fn place(name: &str) -> Option<Place> {
    let (firestore, pubsub) = (firestore()?, pubsub()?);
    let project = unique(name);
    let source = format!("pubsub://{project}/likes?emulator={pubsub}&streams=1&extension_s=10");
    let store = format!("firestore://{project}?emulator={firestore}");
    for _ in 0..2 {
        let output = run(&["setup", "--source", &source, "--store", &store]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    Some(Place { publish: format!("http://{pubsub}/v1/projects/{project}/topics/likes:publish"), source, store })
}

/// A project of the test's own whose subscription has no retry policy: a killed worker's messages come back when their
/// lease ends, not after a backoff that grows each time the emulator gives them to a stream that is gone.
async fn place_without_backoff(name: &str) -> Option<Place> {
    let (firestore, pubsub) = (firestore()?, pubsub()?);
    let project = unique(name);
    let admin = format!("http://{pubsub}/v1/projects/{project}");
    let topic = format!("projects/{project}/topics/likes");
    for (path, body) in [
        ("topics/likes", serde_json::json!({})),
        ("subscriptions/likes", serde_json::json!({"topic": topic, "ackDeadlineSeconds": 10})),
    ] {
        let made = reqwest::Client::new().put(format!("{admin}/{path}")).body(body.to_string()).send().await.unwrap();
        assert!(made.status().is_success(), "{}", made.text().await.unwrap());
    }
    Some(Place {
        source: format!("pubsub://{project}/likes?emulator={pubsub}&streams=1&extension_s=10"),
        store: format!("firestore://{project}?emulator={firestore}"),
        publish: format!("{admin}/topics/likes:publish"),
    })
}

async fn publish(place: &Place, payloads: &[String]) {
    use base64::Engine;
    let encode = |p: &String| base64::engine::general_purpose::STANDARD.encode(p);
    let messages: Vec<Value> = payloads.iter().map(|p| serde_json::json!({"data": encode(p)})).collect();
    let body = serde_json::json!({"messages": messages}).to_string();
    let sent = reqwest::Client::new().post(&place.publish).body(body).send().await.unwrap();
    assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
}

fn event(n: usize, kind: &str, user: usize) -> String {
    format!(
        r#"{{"eventId":"e{n}","type":"like.{kind}","postId":"viral","userId":"u{user}","occurredAt":"2026-01-01T00:00:{:02}Z"}}"#,
        n % 60
    )
}

fn counts(place: &Place) -> (i64, i64, i64) {
    let output = run(&["count", "viral", "--verify", "--json", "--store", &place.store]);
    let row: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let number = |name: &str| row[name].as_i64().unwrap();
    (number("count"), number("members"), number("drift"))
}

#[tokio::test(flavor = "multi_thread")]
async fn likes_from_pubsub_are_counted_once_in_firestore_and_a_drain_leaves_nothing() {
    let Some(place) = place("main-job") else { return };
    let worker = Worker::start(&["--source", &place.source, "--store", &place.store]);
    let mut payloads: Vec<String> = (0..400).map(|n| event(1, "added", n % 300)).collect();
    payloads.extend((0..20).map(|user| event(2, "removed", user)));
    payloads.push("rubbish".to_owned());
    publish(&place, &payloads).await;
    // The publisher's retry: everything once more under new message ids.
    publish(&place, &payloads).await;
    until("the count", (280, 280, 0), || counts(&place));
    until("one entry in the quarantine for each message id", 2, || {
        stdout(&run(&["quarantine", "list", "--json", "--store", &place.store])).lines().count()
    });
    let (status, printed) = worker.terminate();
    assert_eq!(status.code(), Some(0), "{printed}");
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&report["received"], &report["left"], &report["poison"]), (&842.into(), &0.into(), &2.into()));
    // Nothing is left on the subscription: a second worker has only the new like to count.
    let worker = Worker::start(&["--source", &place.with_many_streams(), "--store", &place.store]);
    publish(&place, &[event(1, "added", 1_000)]).await;
    until("the count with one more", (281, 281, 0), || counts(&place));
    let (_, printed) = worker.terminate();
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["received"], 1, "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_the_middle_is_replaced_and_the_count_is_exact() {
    let Some(place) = place_without_backoff("killed").await else { return };
    let users = 3_000;
    let payloads: Vec<String> = (0..users).map(|user| event(1, "added", user)).collect();
    let worker = Worker::start(&["--source", &place.source, "--store", &place.store, "--batch-writes", "50"]);
    for chunk in payloads.chunks(500) {
        publish(&place, chunk).await;
    }
    until("some are counted", true, || counts(&place).0 > 0);
    worker.kill();
    let (count, members, drift) = counts(&place);
    assert_eq!((count, drift), (members, 0), "whole batches");
    let _worker = Worker::start(&["--source", &place.with_many_streams(), "--store", &place.store]);
    until("all are counted", (users as i64, users as i64, 0), || counts(&place));
}

/// The commands of the README's "Pub/Sub and Firestore for real", one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_way_of_the_readme_works_with_the_names_that_it_shows() {
    let (Some(firestore), Some(pubsub)) = (firestore(), pubsub()) else { return };
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, section) = readme.split_once("### Pub/Sub and Firestore for real").expect("the README has it");
    let (_, block) = section.split_once("```sh\n").expect("its commands");
    let (block, _) = block.split_once("```").expect("they end");
    let project = unique("readme");
    let expected = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{project}.jsonl"));
    let commands: Vec<Vec<String>> = block
        .lines()
        .filter_map(|line| line.strip_prefix("hotcount "))
        .map(|line| line.split(" #").next().unwrap_or_default().trim_end_matches([' ', '&']))
        .map(|line| {
            let here = line.replace("expected.jsonl", expected.to_str().unwrap());
            here.split_whitespace()
                .map(|word| match word.split_once("://PROJECT") {
                    Some(("pubsub", rest)) => format!("pubsub://{project}{rest}?emulator={pubsub}"),
                    Some((scheme, rest)) => format!("{scheme}://{project}{rest}?emulator={firestore}"),
                    None => word.to_owned(),
                })
                .collect()
        })
        .collect();
    let names: Vec<&str> = commands.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["setup", "setup", "run", "load", "load", "count", "verify"], "{block}");
    let mut worker = None;
    for command in commands {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        match arguments[..] {
            ["run", ref rest @ ..] => {
                let address = rest.iter().position(|word| *word == "--http").expect("where it listens");
                let rest = [&rest[..address], &rest[address + 2..]].concat();
                worker = Some(Worker::start(&rest));
            }
            ["load", "check", ..] => {
                until("every post counts what the load expects", Some(0), || run(&arguments).status.code())
            }
            _ => {
                let output = run(&arguments);
                assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
            }
        }
    }
    drop(worker);
    std::fs::remove_file(expected).unwrap();
}

#[test]
fn a_missing_subscription_is_a_sentence_with_the_command_that_makes_it() {
    let (Some(_), Some(pubsub)) = (firestore(), pubsub()) else { return };
    let source = format!("pubsub://{}/nothing?emulator={pubsub}", unique("missing"));
    let output = run(&["run", "--source", &source, "--store", "memory:", "--http", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("hotcount setup --source"), "{}", stderr(&output));
}
