//! The emulator harness itself: what it starts answers, and ends with the process that started it.

use crate::support::emulators::{firestore, pubsub, unique};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Set for a process that this test starts, and kills while it holds an emulator.
const HOLDER: &str = "HOTCOUNT_TEST_HOLDS_EMULATORS";

fn answers(host: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(host)?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut status = [0_u8; 12];
        stream.read_exact(&mut status)?;
        Ok(status == *b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

#[test]
fn the_firestore_emulator_answers_and_is_shared() {
    let Some(host) = firestore() else { return };
    assert!(answers(&host), "{host}");
    assert_eq!(firestore(), Some(host));
}

#[test]
fn the_pubsub_emulator_answers_and_is_shared() {
    let Some(host) = pubsub() else { return };
    assert!(answers(&host), "{host}");
    assert_eq!(pubsub(), Some(host));
}

#[test]
fn emulators_end_with_a_test_process_that_is_killed() {
    if firestore().is_none() || pubsub().is_none() {
        return;
    }
    let mut holder = Command::new(std::env::current_exe().expect("a test binary has a path"))
        .args(["--exact", "--nocapture", "--ignored", "emulators::hold_emulators_until_killed"])
        .env(HOLDER, "1")
        .env_remove("FIRESTORE_EMULATOR_HOST")
        .env_remove("PUBSUB_EMULATOR_HOST")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary starts itself");
    let lines = BufReader::new(holder.stdout.take().expect("piped")).lines();
    let hosts: Vec<String> = lines
        .map(|line| line.expect("text"))
        .filter_map(|line| line.split_once("holds ").map(|(_, host)| host.to_owned()))
        .take(2)
        .collect();
    let answered = hosts.iter().filter(|host| answers(host)).count();
    holder.kill().expect("SIGKILL is sent");
    holder.wait().expect("it ends");
    assert_eq!(answered, 2, "{hosts:?}");
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Some(host) = hosts.iter().find(|host| TcpStream::connect(host.as_str()).is_ok()) {
        assert!(Instant::now() < deadline, "{host} still listens");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "the other half of the test above, run by it alone"]
fn hold_emulators_until_killed() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    println!("\nholds {}", firestore().expect("it started for the parent"));
    println!("\nholds {}", pubsub().expect("it started for the parent"));
    // Ends with the SIGKILL of the parent; bounded, should the parent be gone.
    std::thread::park_timeout(Duration::from_secs(300));
}

#[test]
fn names_are_unique() {
    assert_ne!(unique("post"), unique("post"));
}
