//! What a crowd can make a worker hold: its peak, as the kernel saw it, stays below the budget and a fixed part.

use crate::process::Worker;
use crate::raw::{Peer, ask, head, like, post};
use crate::silent;
use std::fmt::Write;
use tempfile::TempDir;

/// The budget of these workers.
const BUDGET_MIB: usize = 64;

/// What a worker has beside its budget: itself, its store's buffers and caches, the buffers of its connections, what the
/// allocator keeps, and the largest grant, which may pass when there is any room at all.
const BESIDE_MIB: usize = 110;

/// What a store adds while it writes and reads events of many megabytes: its own copies of a few of them.
const STORE_COPIES_MIB: usize = 150;

/// A worker on the embedded store, whose own memory is small.
fn worker() -> (TempDir, Worker) {
    let directory = TempDir::new().unwrap();
    let store = format!("embedded:{}?memory_mib=8&cache_mib=8", directory.path().join("data").display());
    let budget = BUDGET_MIB.to_string();
    let worker = Worker::start(&["--store", &store, "--max-held-mib", &budget, "--source", "http:?deadline_s=240"]);
    (directory, worker)
}

/// The most that the process had in memory, in MiB.
fn peak_mib(worker: &Worker) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
}

fn stays_below(mib: usize, what: &str, worker: &Worker) {
    let peak = peak_mib(worker);
    eprintln!("{what}: {peak} MiB at its peak");
    assert!(peak < mib, "{what}: {peak} MiB, not below {mib}");
}

fn stays_bounded(what: &str, worker: &Worker) {
    stays_below(BUDGET_MIB + BESIDE_MIB, what, worker);
}

/// All of them at once.
fn at_once(number: usize, act: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for n in 0..number {
            let act = &act;
            scope.spawn(move || act(n));
        }
    });
}

/// Likes of one post, up to 16 MiB.
fn likes() -> String {
    let mut body = String::with_capacity(16 << 20);
    for user in 0.. {
        if body.len() + 200 > 16 << 20 {
            break;
        }
        writeln!(body, "{}", like(user)).unwrap();
    }
    body
}

#[test]
fn large_bodies_of_short_lines_stay_in_the_budget() {
    let (_directory, worker) = worker();
    let body = likes();
    at_once(4, |_| {
        let answer = post(&worker.address, "", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    });
    stays_bounded("four bodies of 16 MiB of likes", &worker);
}

#[test]
fn large_events_and_the_pages_that_list_them_stay_in_the_budget() {
    let (_directory, worker) = worker();
    let line = "x".repeat((16 << 20) - 100);
    at_once(5, |n| {
        let answer = post(&worker.address, "", format!("{n}{line}"));
        assert_eq!(answer.status, 400, "{answer:?}");
    });
    let bound = BUDGET_MIB + BESIDE_MIB + STORE_COPIES_MIB;
    stays_below(bound, "five events of 16 MiB", &worker);
    at_once(4, |_| {
        let mut peer = Peer::connect(&worker.address);
        peer.sends("GET /v1/quarantine HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n");
        let bytes = peer.read_to_end();
        assert!(!(1_000..=21 << 20).contains(&bytes), "a page of one entry, or no room for it: {bytes}");
    });
    stays_below(bound, "four pages of 16 MiB at once", &worker);
}

#[test]
fn senders_who_hang_up_while_the_store_is_silent_leave_no_more_than_the_budget() {
    let worker = silent::worker("http:?deadline_s=5", BUDGET_MIB);
    let body = likes();
    at_once(8, |_| {
        for _ in 0..20 {
            let mut peer = Peer::connect(&worker.address);
            peer.begins(body.len());
            // All of it, or as much as is taken in a second; then the sender is gone.
            peer.sends_for_a_second(&body);
        }
    });
    stays_bounded("160 bodies of 16 MiB whose senders hang up", &worker);
}

#[test]
fn a_thousand_stalled_bodies_and_unread_answers_stay_in_the_budget() {
    let worker = silent::worker("http:?deadline_s=30", BUDGET_MIB);
    let line = "x".repeat(100 << 10);
    let _crowd: Vec<Peer> = (0..1_000)
        .map(|_| {
            let mut peer = Peer::connect(&worker.address);
            peer.begins(16 << 20);
            peer.sends_for_a_second(&line);
            peer
        })
        .collect();
    assert_eq!(ask(&worker.address, head("Content-Length: 0\r\n")).status, 400, "it answers");
    stays_bounded("a thousand bodies that stop after 100 KiB", &worker);
}
