//! Crowds that keep the worker waiting: an honest request is answered whatever they do.

use crate::process::{Worker, hotcount, until};
use crate::raw::{Peer, count, get, head, like, metric, post};
use crate::worker;
use std::process::Command;

/// Connections that a worker of these tests has.
const FEW: usize = 16;

fn small_worker() -> Worker {
    worker(&["--http-connections", &FEW.to_string()])
}

/// One like, which must be counted at the first try, and health beside it.
fn an_honest_like_is_counted(address: &str, user: usize) {
    assert_eq!(post(address, "", like(user)).status, 204);
    assert_eq!(get(address, "/healthz").status, 200);
}

#[test]
fn sixteen_heads_without_a_body_keep_nobody_out() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let _silent: Vec<Peer> = std::iter::repeat_with(|| {
        let mut peer = Peer::connect(address);
        peer.begins(16 << 20);
        peer
    })
    .take(16)
    .collect();
    an_honest_like_is_counted(address, 1);
    assert_eq!(count(address), 1);
}

#[test]
fn seventeen_small_bodies_of_unknown_length_at_once_are_all_counted() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let mut senders: Vec<Peer> = (0..17).map(|_| Peer::connect(address)).collect();
    for (user, sender) in senders.iter_mut().enumerate() {
        let like = like(user);
        sender.sends(head("Transfer-Encoding: chunked\r\n") + &format!("{:x};part=1\r\n{like}\r\n", like.len()));
    }
    for sender in &mut senders {
        sender.sends("0\r\n\r\n");
        assert_eq!(sender.answer().status, 204);
    }
    assert_eq!(count(address), 17);
}

/// Ten times as many as there are places, all of one kind, and honest likes between them.
#[test]
fn whatever_a_crowd_leaves_half_done_an_honest_like_is_counted() {
    type Kind = (&'static str, fn(&mut Peer));
    let kinds: [Kind; 5] = [
        ("connect and say nothing", |_| ()),
        ("send half a head", |peer| {
            peer.sends("POST /v1/events HTTP/1.1\r\nHost: wor");
        }),
        ("send a head and no body", |peer| peer.begins(1_000)),
        ("send half a body", |peer| {
            peer.begins(1_000);
            peer.sends(&like(9)[..40]);
        }),
        ("rest after a request", |peer| {
            peer.sends("GET /healthz HTTP/1.1\r\nHost: worker\r\n\r\n");
            peer.answer();
        }),
    ];
    for (kind, does) in kinds {
        let worker = small_worker();
        let address = worker.address.as_str();
        let mut crowd = Vec::new();
        for user in 0..10 {
            for _ in 0..FEW {
                let mut peer = Peer::connect(address);
                does(&mut peer);
                crowd.push(peer);
            }
            an_honest_like_is_counted(address, user);
        }
        assert_eq!(count(address), 10, "{kind}");
        let closed = metric(address, r#"hotcount_http_connections_closed_total{why="limit"}"#);
        assert!(closed >= 9.0 * FEW as f64, "{kind}: {closed}");
        assert!(metric(address, "hotcount_http_connections") <= FEW as f64, "{kind}");
    }
}

#[test]
fn a_connection_that_is_closed_for_others_is_the_one_that_has_waited_longest() {
    let worker = small_worker();
    let address = worker.address.as_str();
    let mut first = Peer::connect(address);
    first.sends("GET /v1/cou");
    let mut half_way = Peer::connect(address);
    half_way.begins(like(1).len());
    half_way.sends(&like(1)[..10]);
    let _crowd: Vec<Peer> = (0..FEW - 2)
        .map(|_| {
            let mut peer = Peer::connect(address);
            peer.sends("GET /v1/cou");
            peer
        })
        .collect();
    until("all are there", FEW as f64, || metric(address, "hotcount_http_connections"));
    // Asking for metrics took the place of the first; the sender of a body has been quiet for less long.
    assert!(first.answer_if_any().is_none());
    half_way.sends(&like(1)[10..]);
    assert_eq!(half_way.answer().status, 204);
}

#[test]
fn a_body_that_stops_is_408_and_a_head_that_stops_is_closed() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let (mut body, mut silent) = (Peer::connect(address), Peer::connect(address));
    body.begins(1_000);
    body.sends(&like(1)[..20]);
    silent.sends("POST /v1/events HTTP/1.1\r\n");
    let answer = body.answer();
    assert!(answer.status == 408 && answer.head.contains("retry-after: 1"), "{answer:?}");
    assert!(silent.answer_if_any().is_none());
    assert_eq!(metric(address, r#"hotcount_http_requests_refused_total{why="slow"}"#), 1.0);
    assert_eq!(metric(address, r#"hotcount_http_connections_closed_total{why="head"}"#), 1.0);
}

/// The deadline is that of the request as a whole: a byte now and then does not stretch it.
#[test]
fn a_body_that_trickles_ends_with_the_deadline_of_its_request() {
    let worker = worker(&["--source", "http:?deadline_s=3"]);
    let mut peer = Peer::connect(&worker.address);
    peer.begins(1_000);
    let mut bytes = like(1).into_bytes().into_iter().cycle();
    until("a byte is refused", true, || !peer.sends([bytes.next().unwrap()]) || peer.has_answer());
    assert_eq!(peer.answer().status, 408);
}

#[test]
fn requests_sent_together_are_answered_one_after_the_other() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let mut peer = Peer::connect(address);
    let requests: String =
        (0..50).map(|user| head(&format!("Content-Length: {}\r\n", like(user).len())) + &like(user)).collect();
    peer.sends(requests);
    for _ in 0..50 {
        assert_eq!(peer.answer().status, 204);
    }
    assert_eq!(count(address), 50);
}

/// Each reader asks for a page of megabytes and takes nothing of it.
#[test]
fn readers_who_take_nothing_keep_no_like_out() {
    let worker = worker(&["--max-held-mib", "64"]);
    let address = worker.address.as_str();
    let large = "x".repeat(4 << 20);
    for n in 0..3 {
        assert_eq!(post(address, "", format!("{n}{large}")).status, 400);
    }
    let _readers: Vec<Peer> = (0..30)
        .map(|_| {
            let mut peer = Peer::connect(address);
            peer.sends("GET /v1/quarantine HTTP/1.1\r\nHost: worker\r\n\r\n");
            peer
        })
        .collect();
    for user in 0..10 {
        an_honest_like_is_counted(address, user);
    }
    assert_eq!(count(address), 10);
}

/// A worker that may open so many files.
fn worker_with_descriptors(files: usize, arguments: &[&str]) -> Worker {
    let mut all = vec!["run", "--http", "127.0.0.1:0", "--json"];
    all.extend(arguments);
    let worker = hotcount(&all);
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""))
        .arg(worker.get_program())
        .args(worker.get_args());
    for (name, _) in worker.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    Worker::start_as(command)
}

#[test]
fn with_few_descriptors_idle_connections_cost_the_store_none() {
    let directory = tempfile::TempDir::new().unwrap();
    let store = format!("embedded:{}", directory.path().join("data").display());
    let mut worker = worker_with_descriptors(64, &["--store", &store, "--recent-likes", "0"]);
    assert!(worker.log().contains("at most 16 connections"), "{}", worker.log());
    let address = worker.address.clone();
    let mut idle = Vec::new();
    for round in 0..20 {
        idle.extend((0..20).map(|_| Peer::connect(&address)));
        let body: String = (0..500).map(|n| like(round * 500 + n) + "\n").collect();
        assert_eq!(post(&address, "", body).status, 200);
    }
    assert_eq!(count(&address), 10_000);
    assert!(worker.ended().is_none(), "{}", worker.log());
    let (status, _) = worker.terminate();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn what_is_settled_while_the_worker_stops_is_answered() {
    let worker = worker(&["--linger-ms", "20000"]);
    let mut sender = Peer::connect(&worker.address);
    sender.sends(head(&format!("Content-Length: {}\r\n", like(1).len())) + &like(1));
    let address = worker.address.clone();
    until("the like waits", 1.0, || metric(&address, "hotcount_held_deliveries"));
    let mut resting = Peer::connect(&address);
    resting.sends("GET /healthz HTTP/1.1\r\nHost: worker\r\n\r\n");
    resting.answer();
    worker.signal("TERM");
    assert_eq!(sender.answer().status, 204);
    let (status, log) = worker.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(resting.answer_if_any().is_none());
}
