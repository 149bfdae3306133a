//! `hotcount backup` and `hotcount embedded` as commands.

use crate::process::{Worker, run, stderr, stdout};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use tempfile::TempDir;

fn events(from: u32, to: u32) -> String {
    let event = |n| {
        format!(
            "{{\"eventId\":\"e{n}\",\"type\":\"like.added\",\"postId\":\"p\",\"userId\":\"u{n}\",\"occurredAt\":\"2026-01-01T00:00:00Z\"}}\n"
        )
    };
    (from..to).map(event).collect()
}

/// Sends events as a sender does: what is answered 503 is sent again.
fn post(address: &str, body: &str) {
    let mut answer = String::new();
    for _ in 0..600 {
        answer = request::blocking_post(address, body);
        if !answer.starts_with("HTTP/1.1 503") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(answer.starts_with("HTTP/1.1 200"), "the worker did not take the events within a minute: {answer}");
}

/// A request by hand: one client for one test is not worth a dependency.
mod request {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    pub(super) fn blocking_post(address: &str, body: &str) -> String {
        let host = address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "POST /v1/events HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn summary(output: &std::process::Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_str(stdout(output).lines().last().unwrap()).unwrap()
}

#[test]
fn a_running_worker_gives_a_copy_of_its_store_and_restoring_is_opening_it() {
    let directory = TempDir::new().unwrap();
    let store = format!("embedded:{}", directory.path().join("store").display());
    let worker = Worker::start(&["--store", &store]);
    let http =
        if worker.address.starts_with("http") { worker.address.clone() } else { format!("http://{}", worker.address) };
    post(&http, &events(0, 500));
    let busy = run(&["backup", "--store", &store, directory.path().join("none").to_str().unwrap()]);
    assert_eq!(busy.status.code(), Some(2));
    assert!(
        stderr(&busy).contains("another process has it open") && stderr(&busy).contains("http://ADDR"),
        "{}",
        stderr(&busy)
    );
    assert!(!directory.path().join("none").exists());

    let into = directory.path().join("copy");
    let copied = summary(&run(&["backup", "--store", &http, into.to_str().unwrap(), "--json"]));
    assert_eq!(copied["members"], 500);
    let again = run(&["backup", "--store", &http, into.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("is not empty"), "{}", stderr(&again));
    post(&http, &events(500, 600));

    let copy = format!("embedded:{}", into.display());
    let verified = run(&["count", "p", "--verify", "--store", &copy, "--json"]);
    assert_eq!((summary(&verified)["count"].as_i64(), summary(&verified)["drift"].as_i64()), (Some(500), Some(0)));
    let restored = Worker::start(&["--store", &copy]);
    let http = if restored.address.starts_with("http") {
        restored.address.clone()
    } else {
        format!("http://{}", restored.address)
    };
    post(&http, &events(400, 700));
    let counted = summary(&run(&["count", "p", "--verify", "--store", &http, "--json"]));
    assert_eq!((counted["count"].as_i64(), counted["drift"].as_i64()), (Some(700), Some(0)));
}

#[test]
fn a_copy_that_breaks_off_leaves_nothing_that_opens() {
    let directory = TempDir::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhotco\r\n").unwrap();
    });
    let into = directory.path().join("copy");
    let broken = run(&["backup", "--store", &address, into.to_str().unwrap()]);
    server.join().unwrap();
    assert_eq!(broken.status.code(), Some(2));
    assert!(stderr(&broken).contains("broke off"), "{}", stderr(&broken));
    assert!(!into.exists());
}

#[test]
fn a_damaged_store_is_salvaged_and_compacted_by_name() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    let file = directory.path().join("events.jsonl");
    std::fs::write(&file, events(0, 300)).unwrap();
    let store = format!("embedded:{}", path.display());
    summary(&run(&["replay", file.to_str().unwrap(), "--store", &store, "--json"]));
    let log = std::fs::read_dir(path.join("store/log")).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();

    let refused = run(&["count", "p", "--store", &store]);
    assert_eq!(refused.status.code(), Some(2));
    let sentence = stderr(&refused);
    assert!(sentence.contains(log.to_str().unwrap()) && sentence.contains("hotcount embedded salvage"), "{sentence}");

    let into = directory.path().join("into");
    let salvaged = run(&["embedded", "salvage", path.to_str().unwrap(), into.to_str().unwrap(), "--json"]);
    assert_eq!(salvaged.status.code(), Some(1), "{}", stderr(&salvaged));
    let lines: Vec<Value> = stdout(&salvaged).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["file"].as_str(), log.to_str());
    assert!(lines.last().unwrap()["members"].as_u64().unwrap() < 300);
    let store = format!("embedded:{}", into.display());
    summary(&run(&["replay", file.to_str().unwrap(), "--store", &store, "--json"]));
    let counted = summary(&run(&["count", "p", "--verify", "--store", &store, "--json"]));
    assert_eq!((counted["count"].as_i64(), counted["drift"].as_i64()), (Some(300), Some(0)));
    let compacted = summary(&run(&["embedded", "compact", into.to_str().unwrap(), "--json"]));
    assert!(compacted["after"].as_u64().unwrap() > 0);
    let counted = summary(&run(&["count", "p", "--verify", "--store", &store, "--json"]));
    assert_eq!(counted["count"].as_i64(), Some(300));
}

#[test]
fn commands_that_read_or_change_make_no_store_where_there_is_none() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("mistyped");
    let store = format!("embedded:{}", path.display());
    let commands: [&[&str]; 6] = [
        &["count", "p"],
        &["verify"],
        &["verify", "--fix", "--yes"],
        &["quarantine", "list"],
        &["quarantine", "purge", "--all", "--yes"],
        &["quarantine", "replay", "--all", "--yes"],
    ];
    for command in commands {
        let output = run(&[command, &["--store", &store]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", stdout(&output));
        assert!(stderr(&output).contains("there is no store"), "{command:?}: {}", stderr(&output));
        assert!(!path.exists(), "{command:?} made something");
    }
}
