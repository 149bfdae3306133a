//! The real binary: files, HTTP, signals, exit codes, and sentences that say what to do.

use crate::process::{Worker, run, stderr, stdout};
use serde_json::Value;
use std::fmt::Write;
use tempfile::TempDir;

fn event(n: u32, kind: &str, post: &str, user: u32) -> String {
    format!(
        r#"{{"eventId":"e{n}","type":"like.{kind}","postId":"{post}","userId":{user},"occurredAt":"2026-01-01T00:00:{:02}Z"}}"#,
        n % 60
    )
}

/// A directory with a file of events: 300 likes of 200 users on one post, one unlike, one line of rubbish.
fn events() -> (TempDir, String, String) {
    let directory = TempDir::new().unwrap();
    let mut text = String::new();
    for n in 0..300 {
        writeln!(text, "{}", event(n % 50, "added", "viral", n % 200)).unwrap();
    }
    writeln!(text, "{}\nrubbish", event(59, "removed", "viral", 7)).unwrap();
    let file = directory.path().join("events.jsonl");
    std::fs::write(&file, text).unwrap();
    let store = format!("embedded:{}", directory.path().join("data").display());
    (directory, file.display().to_string(), store)
}

fn last_json(text: &str) -> Value {
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn a_replay_counts_every_member_once_and_a_second_one_changes_nothing() {
    let (_directory, file, store) = events();
    for round in 0..2 {
        let output = run(&["replay", &file, "--store", &store, "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let result = last_json(&stdout(&output));
        let number = |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("{name} in {result}"));
        assert_eq!((number("received"), number("poison"), number("posts")), (302, 1, 1));
        let ends = ["applied", "folded", "duplicates", "stale", "poison"].map(number);
        assert_eq!(ends.iter().sum::<u64>(), 302, "{result}");
        assert!(result["events_per_s"].is_number() && result["elapsed_s"].is_number());
        assert_eq!(round == 0, number("applied") > 0);
    }
    let counted = run(&["count", "viral", "nobody", "--store", &store, "--verify", "--json"]);
    let lines: Vec<Value> = stdout(&counted).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["count"], &lines[0]["members"], &lines[0]["drift"]), (&199.into(), &199.into(), &0.into()));
    assert_eq!(lines[1]["count"], 0);
    let verified = run(&["verify", "--deep", "--store", &store, "--json"]);
    assert_eq!(last_json(&stdout(&verified))["drifting"], 0);
    let poison = run(&["quarantine", "list", "--store", &store, "--json"]);
    let entry = last_json(&stdout(&poison));
    assert!(entry["reason"].as_str().unwrap().starts_with("payload: "), "{entry}");
}

#[test]
fn the_example_of_the_readme_counts_108_likes_on_the_viral_post_and_12_on_the_quiet_one() {
    let directory = TempDir::new().unwrap();
    let store = format!("embedded:{}", directory.path().display());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/likes.jsonl");
    assert!(run(&["replay", file, "--store", &store]).status.success());
    let counted = run(&["count", "viral", "quiet", "--verify", "--json", "--store", &store]);
    assert!(counted.status.success());
    let counts: Vec<Value> = stdout(&counted).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&counts[0]["count"], &counts[1]["count"]), (&108.into(), &12.into()));
}

#[test]
fn replays_with_the_same_seed_into_one_store_count_every_file() {
    let directory = TempDir::new().unwrap();
    let store = format!("embedded:{}", directory.path().join("data").display());
    let posts = ["p0", "p1", "p2"];
    for post in posts {
        let file = directory.path().join(post);
        let text: String = (0..100).map(|user| event(1, "added", post, user) + "\n").collect();
        std::fs::write(&file, text).unwrap();
        let output = run(&["replay", &file.display().to_string(), "--store", &store, "--seed", "5", "--lanes", "1"]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let output = run(&["verify", "--deep", "--json", "--store", &store]);
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts: Vec<_> = rows[..posts.len()].iter().map(|row| (row["post"].as_str(), row["count"].as_i64())).collect();
    assert_eq!(counts, posts.map(|post| (Some(post), Some(100))));
}

#[test]
fn standard_input_is_a_file_too() {
    let (_directory, file, store) = events();
    let mut command = crate::process::hotcount(&["replay", "-", "--store", &store, "--json"]);
    let output = command.stdin(std::fs::File::open(file).unwrap()).output().unwrap();
    assert_eq!(last_json(&stdout(&output))["received"], 302);
}

#[test]
fn what_cannot_work_is_one_sentence_that_says_what_to_do_and_exit_code_2() {
    let (_directory, file, store) = events();
    let worker = Worker::start(&["--store", &store]);
    let cases: [(&[&str], &str); 9] = [
        (&["count", "p", "--store", "nosql:x"], "no store is called 'nosql': use embedded:PATH"),
        (&["run", "--source", "kafka:x", "--store", "memory:"], "no source is called 'kafka': use pubsub://"),
        (&["count", "p", "--store", &store], "another process has"),
        (&["count", "p", "--store", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (&["replay", "/nowhere.jsonl", "--store", "memory:"], "/nowhere.jsonl cannot be opened"),
        (&["replay", &file, "--store", "memory:", "--max-held", "100"], "--max-held 100"),
        (&["replay", &file, "--store", "memory:", "--batch-writes", "2"], "--batch-writes 2"),
        (&["run", "--store", "memory:", "--linger-ms", "60000"], "--linger-ms 60000"),
        (
            &["run", "--store", "memory:", "--http", worker.address.trim_start_matches("http://")],
            "choose another address",
        ),
    ];
    for (arguments, sentence) in cases {
        let output = run(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(sentence), "{arguments:?}: {said}");
        let lines = said.lines().filter(|line| line.starts_with("error:")).count();
        assert_eq!(lines, 1, "{said}");
    }
    assert_eq!(run(&["count"]).status.code(), Some(2), "wrong usage");
}

async fn post(worker: &Worker, content_type: &str, body: String) -> (u16, Value) {
    let request = reqwest::Client::new().post(format!("{}/v1/events", worker.address));
    let response = request.header("content-type", content_type).body(body).send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default())
}

async fn get(worker: &Worker, path: &str) -> (u16, String) {
    let response = reqwest::get(format!("{}{path}", worker.address)).await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_response_is_the_ack_and_counts_health_and_metrics_stand_beside_it() {
    let (_directory, _, store) = events();
    let worker = Worker::start(&["--store", &store]);
    assert_eq!(post(&worker, "application/json", event(1, "added", "p", 1)).await.0, 204);
    assert_eq!(post(&worker, "application/json", event(1, "added", "p", 1)).await.0, 204, "sending again is safe");
    let (status, answer) = post(&worker, "application/json", r#"{"eventId":"e","type":"share"}"#.to_owned()).await;
    assert_eq!(status, 400);
    assert!(answer["reason"].as_str().unwrap().starts_with("type: "), "{answer}");
    let lines = format!("{}\nrubbish\n{}\n", event(2, "added", "p", 2), event(3, "added", "q", 1));
    let (status, answer) = post(&worker, "application/x-ndjson", lines).await;
    assert_eq!((status, &answer["received"], &answer["poison"][0]["line"]), (200, &3.into(), &2.into()));
    let (_, count) = get(&worker, "/v1/counts/p?verify=true").await;
    assert_eq!(serde_json::from_str::<Value>(&count).unwrap()["count"], 2);
    assert_eq!(get(&worker, "/healthz").await.0, 200);
    assert_eq!(get(&worker, "/readyz").await.0, 200);
    let (_, metrics) = get(&worker, "/metrics").await;
    for name in [
        "hotcount_likes_applied_total 3",
        "hotcount_deliveries_poison_total{field=\"type\"} 1",
        "hotcount_held_deliveries 0",
    ] {
        assert!(metrics.contains(name), "{name} in\n{metrics}");
    }
    let remote = run(&["verify", "--store", &worker.address, "--json"]);
    assert_eq!(last_json(&stdout(&remote))["posts"], 2, "{}", stderr(&remote));
    let (status, printed) = worker.terminate();
    assert_eq!((status.code(), &last_json(&printed)["left"]), (Some(0), &0.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_between_answers_loses_none_of_them_and_sending_again_doubles_none() {
    let (_directory, _, store) = events();
    let mut answered = 0;
    for round in 0..3 {
        let worker = Worker::start(&["--store", &store]);
        for n in 0..20 {
            // Every round sends the users of the round before once more.
            let user = round * 10 + n;
            assert_eq!(post(&worker, "application/json", event(1, "added", "p", user)).await.0, 204);
            answered = answered.max(user + 1);
        }
        worker.kill();
    }
    let output = run(&["count", "p", "--verify", "--json", "--store", &store]);
    let counted = last_json(&stdout(&output));
    assert_eq!((&counted["count"], &counted["drift"]), (&answered.into(), &0.into()), "{}", stderr(&output));
}

/// Whether the process has a handler for SIGINT.
#[cfg(target_os = "linux")]
fn handles_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_replay_ends_although_standard_input_stays_open() {
    use std::process::{Command, Stdio};
    let mut command = crate::process::hotcount(&["replay", "-", "--store", "memory:", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    crate::process::until("it watches for signals", true, || handles_interrupts(child.id()));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    crate::process::until("the exit code", Some(0), || child.try_wait().unwrap().and_then(|status| status.code()));
    drop(stdin);
}

#[test]
fn setup_prints_a_script_for_what_the_emulators_have_no_api_for() {
    let output = run(&["setup", "--source", "pubsub://demo/likes", "--store", "firestore://demo", "--print"]);
    let script = stdout(&output);
    for line in ["--max-delivery-attempts=100", "--enable-ttl", "firestore.indexes.json", "\"cell\"", "set -eu"] {
        assert!(script.contains(line), "{line} in\n{script}");
    }
    let checked = std::process::Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
    assert!(checked.success(), "the script is shell");
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let help = stdout(&run(&["--help"]));
    for word in
        ["run", "replay", "count", "verify", "quarantine", "dead-letters", "load", "demo", "setup", "Exit codes"]
    {
        assert!(help.contains(word), "{word} in\n{help}");
    }
}
