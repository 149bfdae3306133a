//! `hotcount demo` with the real binary: it kills its worker, proves its counts, and leaves nothing behind.

use crate::process::{hotcount, run, stderr, stdout, until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}"))).collect()
}

#[test]
fn a_demo_kills_its_worker_twice_and_proves_every_count_and_every_message() {
    let directory = TempDir::new().unwrap();
    let kept = directory.path().join("kept");
    let kept = kept.to_str().unwrap();
    let demo = run(&["demo", "--messages", "8000", "--seed", "7", "--json", "--keep", kept]);
    assert_eq!(demo.status.code(), Some(0), "{}", stderr(&demo));
    let printed = lines(&stdout(&demo));
    let (summary, posts) = printed.split_last().unwrap();
    assert_eq!((&summary["exact"], &summary["findings"]), (&true.into(), &Value::Array(vec![])), "{summary}");
    let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("{name} in {summary}"));
    assert_eq!((number("messages"), number("accepted"), number("differing")), (8_000, 8_000, 0));
    assert_eq!(
        number("likes") + number("redelivered") + number("retried") + number("double_clicked"),
        8_000 - number("poison")
    );
    for some in ["redelivered", "retried", "double_clicked", "poison", "counted"] {
        assert!(number(some) > 0, "{some} in {summary}");
    }
    assert_eq!((number("poison"), number("counted")), (number("quarantined"), number("expected")));
    assert!(number("counted") < number("likes"), "some likes are taken back: {summary}");
    let kills = summary["kills"].as_array().unwrap();
    assert_eq!(kills.len(), 2, "{summary}");
    assert!(kills.iter().all(|kill| kill["at"].as_u64().unwrap() < 8_000), "in the middle: {summary}");
    assert!(number("sends_again") > 0, "a kill breaks requests off: {summary}");
    assert_eq!(summary["last_worker"]["left"], 0);
    // The hottest post takes four of five messages that are likes.
    let hottest = &posts[0];
    assert_eq!((&hottest["post"], &hottest["drift"]), (&"post-0".into(), &0.into()));
    assert_eq!((&hottest["counted"], &hottest["members"]), (&hottest["expected"], &hottest["expected"]));
    let arrivals = hottest["arrivals_per_s"].as_f64().unwrap();
    assert!((15_000.0..17_000.0).contains(&arrivals), "four fifths of 20,000 a second: {arrivals}");

    let said = stderr(&demo);
    for worker in ["worker 1 (process", "worker 1 killed (SIGKILL)", "worker 2 killed (SIGKILL)", "worker 3 (process"] {
        assert!(said.contains(worker), "{worker} in\n{said}");
    }
    // What is kept is a store like any other, and says the same.
    let verified = run(&["verify", "--deep", "--json", "--store", &format!("embedded:{kept}/data")]);
    let store = lines(&stdout(&verified)).pop().unwrap();
    assert_eq!((&store["members"], &store["drifting"]), (&summary["counted"], &0.into()), "{}", stderr(&verified));
    let again = run(&["demo", "--messages", "1000", "--keep", kept]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("is not empty: name a new directory"), "{}", stderr(&again));
}

#[test]
fn a_demo_for_people_ends_with_a_table_and_removes_its_data() {
    let temporary = TempDir::new().unwrap();
    let mut command = hotcount(&["demo", "--messages", "2000"]);
    let demo = command.env("TMPDIR", temporary.path()).output().unwrap();
    assert_eq!(demo.status.code(), Some(0), "{}", stderr(&demo));
    let table = stdout(&demo);
    for words in ["post-0 ", "all 50 posts ", "poison ", "worker killed after ", "exact: every post counts"] {
        assert!(table.lines().any(|line| line.starts_with(words)), "{words} in\n{table}");
    }
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0, "{}", stderr(&demo));
}

/// A demo that would go on for an hour, and the address of its worker.
struct Running {
    demo: Child,
    worker: SocketAddr,
    said: BufReader<std::process::ChildStderr>,
    directory: TempDir,
}

impl Running {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let mut command = hotcount(&["demo", "--messages", "1000000", "--rate", "200", "--keep"]);
        let mut demo = command.arg(directory.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(demo.stderr.take().unwrap());
        let mut heard = String::new();
        let worker = loop {
            assert!(said.read_line(&mut heard).unwrap() > 0, "the demo ended: {heard}");
            if let Some((_, address)) = heard.rsplit_once("listens on http://") {
                break address.trim().parse().unwrap();
            }
        };
        Self { demo, worker, said, directory }
    }

    fn signal(&self, name: &str) {
        let pid = self.demo.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Nobody listens there any more, and nobody has the store open.
    fn worker_ends(&self) {
        until("the worker listens", false, || TcpStream::connect(self.worker).is_ok());
        let store = format!("embedded:{}", self.directory.path().join("data").display());
        until("the exit code of verify", Some(0), || run(&["verify", "--store", &store]).status.code());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.demo.kill();
        let _ = self.demo.wait();
    }
}

#[test]
fn an_interrupted_demo_ends_its_worker_and_says_where_its_data_is() {
    let mut running = Running::start();
    // A line of progress comes after the handlers of signals.
    let mut said = String::new();
    while !said.contains("accepted") {
        assert!(running.said.read_line(&mut said).unwrap() > 0, "{said}");
    }
    running.signal("-INT");
    assert_eq!(running.demo.wait().unwrap().code(), Some(3));
    running.said.read_to_string(&mut said).unwrap();
    assert!(said.contains("interrupted; the worker has ended, and its data is kept"), "{said}");
    assert!(said.contains(running.directory.path().to_str().unwrap()), "{said}");
    running.worker_ends();
}

#[test]
fn a_demo_that_is_killed_takes_its_worker_with_it() {
    let mut running = Running::start();
    running.signal("-KILL");
    running.demo.wait().unwrap();
    running.worker_ends();
}
