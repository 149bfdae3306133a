//! `hotcount load` as a process: exit codes, what it prints, and the way from a file to a checked store.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn hotcount(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotcount"));
    // Whoever runs the tests may have settings of their own.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOTCOUNT_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Output {
    hotcount(args).output().expect("it starts")
}

fn last_json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_file_is_generated_replayed_and_checked_and_a_count_that_differs_is_a_finding() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (events, expected) = (path("events.jsonl"), path("expected.jsonl"));
    let store = format!("embedded:{}", text(&path("store")));
    let load = run(&[
        "load",
        "--to",
        text(&events),
        "--expect",
        text(&expected),
        "--messages",
        "20000",
        "--shape",
        "zipf:1.1",
        "--users",
        "3000",
        "--unlikes",
        "0.3",
        "--faults",
        "--json",
    ]);
    assert_eq!(load.status.code(), Some(0), "{load:?}");
    let report = last_json(&load);
    assert_eq!((&report["ended"], &report["accepted"]), (&"complete".into(), &20_000.into()), "{report}");
    assert!(report["latency_ms"]["p99"].as_f64().is_some(), "{report}");

    let replay = run(&["replay", text(&events), "--store", &store, "--json"]);
    assert_eq!(replay.status.code(), Some(0), "{replay:?}");
    assert_eq!(last_json(&replay)["received"], 20_000);

    let check = ["load", "check", "--expect", text(&expected), "--store", &store, "--json"];
    let right = run(&check);
    assert_eq!(right.status.code(), Some(0), "{right:?}");
    assert_eq!(last_json(&right)["differing"], 0);

    let one_more = r#"{"eventId":"e","type":"like.added","postId":"post-0","userId":"nobody","occurredAt":"2025-01-01T00:00:00Z"}"#;
    std::fs::write(&events, one_more).expect("written");
    assert_eq!(run(&["replay", text(&events), "--store", &store]).status.code(), Some(0));
    let wrong = run(&check);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert_eq!(last_json(&wrong)["differing"], 1);
    let first: Value = serde_json::from_slice(wrong.stdout.split(|b| *b == b'\n').next().unwrap()).expect("JSON");
    assert_eq!(first["post"], "post-0");
    assert_eq!(first["count"].as_i64(), first["expected"].as_i64().map(|n| n + 1));
}

#[test]
fn events_on_standard_output_leave_the_report_on_standard_error() {
    let load = run(&["load", "--to", "-", "--messages", "1000", "--redelivered", "0.5"]);
    assert_eq!(load.status.code(), Some(0), "{load:?}");
    assert_eq!(
        load.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"eventId\"")).count(),
        1_000
    );
    assert!(String::from_utf8_lossy(&load.stderr).contains("accepted 1000 of 1000"), "{load:?}");
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() {
    for (args, sentence) in [
        (&["load"][..], "--to"),
        (&["load", "--to", "-", "--posts", "0"], "0 posts cannot be"),
        (&["load", "--to", "-", "--shape", "virral"], "there is no shape 'virral'"),
        (&["load", "--to", "-", "--redelivered", "0.9", "--poison", "0.9"], "at most 1 can be"),
        (&["load", "--to", "-", "--rate", "0"], "--rate 0 cannot be"),
        (&["load", "--to", "-", "--for-s", "5"], "--rate"),
        (&["load", "--to", "gopher://x"], "use pubsub://PROJECT/TOPIC"),
        (&["load", "check", "--expect", "/dev/null", "--store", "http://127.0.0.1:1"], "names no post"),
    ] {
        let refused = run(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(sentence), "{args:?}: {said}");
    }
}

#[test]
fn a_worker_that_is_not_there_ends_with_exit_code_3_and_what_was_accepted() {
    // Bound and dropped: nobody listens there.
    let address = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let load = run(&["load", "--to", &format!("http://{address}"), "--give-up-s", "0", "--json"]);
    assert_eq!(load.status.code(), Some(3), "{load:?}");
    let report = last_json(&load);
    assert_eq!((&report["ended"], &report["accepted"]), (&"gave up".into(), &0.into()), "{report}");
    assert!(report["problem"].as_str().is_some_and(|p| p.contains("is it running")), "{report}");
}

/// Ends the process if the test does not.
struct Guard(Option<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn an_interrupt_still_prints_the_percentiles_and_what_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = folder.path().join("events.jsonl");
    let args = ["load", "--to", text(&events), "--rate", "1000", "--for-s", "3600", "--json"];
    let mut load = Guard(Some(hotcount(&args).spawn().expect("it starts")));
    let pid = load.0.as_ref().expect("running").id().to_string();
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::metadata(&events).map_or(0, |file| file.len()) == 0 {
        assert!(Instant::now() < deadline, "nothing was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill is there").success());
    let output = load.0.take().expect("running").wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report = last_json(&output);
    assert_eq!(report["ended"], "stopped", "{report}");
    let written = std::fs::read(&events).expect("the file").iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(report["accepted"].as_u64(), Some(written), "{report}");
    assert!(report["latency_ms"]["max"].as_f64().is_some_and(|max| max > 0.0), "{report}");
}
