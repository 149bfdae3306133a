//! What a URL keeps secret is in no output of the real binary: no result, error, log or help, whatever the command does
//! with the URL.

use crate::process::{Worker, hotcount, run, stderr, stdout};
use hotcount::source::{ConnectError, Source, pubsub::PubSub};
use std::process::Output;
use tempfile::tempdir;

const SECRET: &str = "hunter2";

/// Nobody listens on port 1.
const URLS: [&str; 12] = [
    "pubsub://user:hunter2@demo/likes",
    "pubsub://user:hunter2%40demo/likes",
    "pubsub://demo/likes?emulator=user:hunter2@127.0.0.1:1",
    "pubsub://demo/likes?password=hunter2&emulator=127.0.0.1:1",
    "firestore://user:hunter2@demo",
    "firestore://demo?token=hunter2",
    "firestore://demo?hunter2",
    "http://user:hunter2@127.0.0.1:1",
    "http://user:hunter2@127.0.0.1:1/v1?key=hunter2",
    "embedded:./no/such?key=hunter2",
    "postgres://user:hunter2@host/likes?sslpassword=hunter2",
    "user:hunter2@host",
];

fn assert_kept(output: &Output, what: &str) {
    let said = stdout(output) + &stderr(output);
    assert!(!said.contains(SECRET), "{what}: {said}");
    assert!(!output.status.success(), "{what}: {said}");
    assert!(said.len() > 30, "{what}: {said}");
}

#[test]
fn no_command_repeats_the_password_or_an_option_of_a_url() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("events.jsonl");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    for url in URLS {
        for command in [
            &["run", "--http", "127.0.0.1:0", "--store", "memory:", "--source"][..],
            &["run", "--http", "127.0.0.1:0", "--store"],
            &["replay", file, "--store"],
            &["count", "p", "--store"],
            &["verify", "--fix", "--yes", "--store"],
            &["quarantine", "list", "--store"],
            &["quarantine", "purge", "--all", "--yes", "--store"],
            &["dead-letters", "list", "--source"],
            &["setup", "--store", "memory:", "--source"],
            &["load", "--messages", "1", "--give-up-s", "0", "--to"],
            &["load", "check", "--expect", file, "--store"],
            // What a URL is not expected as.
            &["count", "p", "--stroe"],
            &["replay", "--shards"],
            &["replay", "--store", "memory:", "-", "--typo"],
        ] {
            if command[0] == "load" && !url.contains("//") {
                // A file of that name.
                continue;
            }
            let output =
                hotcount(command).arg(url).arg("--log").arg("trace").current_dir(folder.path()).output().unwrap();
            if command[0] == "load" && command[1] == "check" && output.status.success() {
                continue;
            }
            assert_kept(&output, &format!("{command:?} {url}"));
        }
    }
}

#[test]
fn help_does_not_show_what_the_environment_sets() {
    for (command, variable) in [
        ("run", "HOTCOUNT_SOURCE"),
        ("run", "HOTCOUNT_STORE"),
        ("count", "HOTCOUNT_STORE"),
        ("setup", "HOTCOUNT_SOURCE"),
        ("dead-letters list", "HOTCOUNT_SOURCE"),
        ("load", "HOTCOUNT_LOAD_TO"),
    ] {
        let mut help = hotcount(&[]);
        help.args(command.split(' ')).arg("--help").env(variable, "pubsub://user:hunter2@demo/likes");
        let output = help.output().unwrap();
        let text = stdout(&output);
        assert!(output.status.success() && text.contains(variable) && !text.contains(SECRET), "{command}: {text}");
    }
}

#[test]
fn a_password_in_the_variable_of_an_emulator_is_not_repeated() {
    for (variable, flag, url) in [
        ("PUBSUB_EMULATOR_HOST", "--source", "pubsub://demo/likes"),
        ("FIRESTORE_EMULATOR_HOST", "--store", "firestore://demo"),
    ] {
        let mut worker = hotcount(&["run", "--http", "127.0.0.1:0", "--log", "trace", flag, url]);
        let folder = tempdir().unwrap();
        worker.current_dir(folder.path());
        let output = worker.env(variable, "http://user:hunter2@127.0.0.1:1").output().unwrap();
        assert_kept(&output, variable);
        assert!(stderr(&output).contains("127.0.0.1:1"), "{}", stderr(&output));
    }
}

#[test]
fn a_worker_behind_a_password_is_asked_with_it_and_called_without_it() {
    let folder = tempdir().unwrap();
    let worker = Worker::start(&["--store", &format!("embedded:{}/my%20data", folder.path().display())]);
    let address = worker.address.replace("http://", "http://user:hunter2@");
    let counted = run(&["count", "p", "--store", &address, "--log", "trace"]);
    assert!(counted.status.success(), "{}", stderr(&counted));
    let loaded = run(&["load", "--to", &address, "--messages", "10", "--log", "trace"]);
    assert!(loaded.status.success(), "{}", stderr(&loaded));
    for output in [&counted, &loaded] {
        assert!(!(stdout(output) + &stderr(output)).contains(SECRET));
    }
    assert!(worker.terminate().0.success());
    // The path of its store was decoded.
    assert!(folder.path().join("my data").is_dir());
}

#[tokio::test]
async fn the_name_of_a_source_is_made_of_what_was_checked() {
    let Err(error) = PubSub::connect("pubsub://user:hunter2@demo/likes").await else { panic!("it is taken") };
    assert!(matches!(&error, ConnectError::BadUrl { url, .. } if url == "pubsub://…@demo/likes"), "{error:?}");
    let http = hotcount::connect::source("http:?deadline_s=5").await.unwrap();
    assert_eq!(Source::name(&*http), "http");
}
