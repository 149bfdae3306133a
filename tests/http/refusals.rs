//! What a body is, and how it is answered where it is not what it should be.

use crate::raw::{Peer, ask, count, get, head, like, metric, post};
use crate::worker;

/// A body that says how long its pieces are.
fn chunked(pieces: &[&str]) -> String {
    let pieces: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
    head("Transfer-Encoding: chunked\r\n") + &pieces + "0\r\n\r\n"
}

#[test]
fn a_body_cut_short_or_broken_is_400_says_so_and_loses_nothing() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let mut short = Peer::connect(address);
    short.begins(1_000);
    short.sends(like(1));
    short.ends();
    let answer = short.answer();
    assert!(answer.status == 400 && answer.says("ended before its end"), "{answer:?}");

    let lines = format!("{}\n{}\n", like(1), like(2));
    let answer =
        ask(address, head("Transfer-Encoding: chunked\r\n") + &format!("{:x}\r\n{lines}\r\nZZ\r\n", lines.len()));
    assert!(answer.status == 400 && answer.says("broken") && answer.says("send all of them again"), "{answer:?}");
    assert_eq!(answer.json()["received"], 2);
    assert_eq!(post(address, "", lines).status, 200, "the same again");
    assert_eq!(count(address), 2);
    assert_eq!(get(address, "/v1/quarantine").json()["entries"].as_array().unwrap().len(), 0, "half an event is none");
    assert_eq!(metric(address, r#"hotcount_http_requests_refused_total{why="broken"}"#), 2.0);
}

#[test]
fn what_cannot_be_read_is_refused_with_a_sentence_and_nothing_is_kept() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let one = like(1);
    let two = format!("{}\n{}\n", like(1), like(2));
    let utf16: Vec<u8> = like(1).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [b"\xff\xfe".as_slice(), &utf16].concat();
    type Case<'a> = (&'a str, &'a [u8], u16, &'a str);
    let cases: [Case<'_>; 8] = [
        ("Content-Type: application/json\r\n", two.as_bytes(), 400, "application/x-ndjson"),
        ("Content-Encoding: br\r\n", one.as_bytes(), 415, "Content-Encoding 'br'"),
        ("Content-Encoding: gzip, br\r\n", one.as_bytes(), 415, "Content-Encoding"),
        ("", &utf16, 415, "UTF-16"),
        ("Content-Type: application/json\r\n", &marked, 415, "UTF-16"),
        ("", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xaa\x56\x4a\x2d\x4b\xcd", 415, "gzip"),
        ("", b"", 400, "no event"),
        ("", b" \r\n\n", 400, "no event"),
    ];
    for (lines, body, status, says) in cases {
        let answer = post(address, lines, body);
        assert!(answer.status == status && answer.says(says), "{lines}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    }
    assert_eq!(count(address), 0);
    assert_eq!(get(address, "/v1/quarantine").json()["entries"].as_array().unwrap().len(), 0);
}

#[test]
fn too_large_is_413_whether_it_is_said_beforehand_or_not() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let mut said = Peer::connect(address);
    said.begins((16 << 20) + 1);
    assert_eq!(said.answer().status, 413);
    // Events that came before the limit may be counted, and the answer says so.
    let mut unsaid = Peer::connect(address);
    unsaid.sends(head("Transfer-Encoding: chunked\r\n"));
    let line = like(1) + "\n";
    let piece = line.repeat((1 << 20) / line.len());
    for _ in 0..17 {
        unsaid.sends(format!("{:x}\r\n{piece}\r\n", piece.len()));
    }
    unsaid.sends("0\r\n\r\n");
    let answer = unsaid.answer();
    assert!(
        answer.status == 413 && answer.says("several requests") && answer.says("send all of them again"),
        "{answer:?}"
    );
    assert_eq!(count(address), 1);
}

#[test]
fn events_are_found_in_every_form_that_senders_use() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let (a, b) = (like(1), like(2));
    let many = [
        ("Content-Type: application/x-ndjson\r\n", format!("{a}\n{b}\n")),
        ("Content-Type: application/json-seq\r\n", format!("\u{1e}{a}\n\u{1e}{b}\n")),
        ("Content-Type: application/json\r\n", format!("[{a},{b}]")),
        ("Content-Type: application/x-www-form-urlencoded\r\n", format!("{a}\n{b}")),
        ("", format!("\u{feff}{a}\n{b}")),
        ("Content-Encoding: identity\r\n", format!("{a}{b}")),
        ("Content-Type: application/cloudevents-batch+json\r\n", format!("[{},{}]", cloud_event(&a), cloud_event(&b))),
    ];
    for (lines, body) in many {
        let answer = post(address, lines, &body);
        assert_eq!((answer.status, answer.json()["received"].as_u64()), (200, Some(2)), "{lines}{body}");
    }
    for (lines, body) in [("Content-Type: application/json\r\n", format!("\u{feff}{a}\n")), ("", a.clone())] {
        assert_eq!(post(address, lines, &body).status, 204, "{lines}{body}");
    }
    assert_eq!(ask(address, chunked(&[&a[..10], &a[10..]])).status, 204);
    assert_eq!(post(address, "Content-Type: application/cloudevents+json\r\n", cloud_event(&a)).status, 204);
    let bare = r#"{"postId":"viral","userId":"u3"}"#;
    let binary =
        "ce-specversion: 1.0\r\nce-id: e3\r\nce-type: like.added\r\nce-source: /x\r\nce-time: 2026-01-01T00:00:00Z\r\n";
    let answer = post(address, &format!("{binary}Content-Type: application/json\r\n"), bare);
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(count(address), 3);
}

/// A structured CloudEvent around an event.
fn cloud_event(event: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"c","source":"/x","type":"x","data":{event}}}"#)
}

/// `gzip` of the machine, as senders use it.
fn gzipped(text: &[u8]) -> Vec<u8> {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("body");
    std::fs::write(&file, text).unwrap();
    let packed = std::process::Command::new("gzip").arg("-c").arg(&file).output().unwrap();
    assert!(packed.status.success());
    packed.stdout
}

#[test]
fn a_compressed_body_is_unpacked_as_it_comes_and_may_not_grow_without_end() {
    // To unpack 64 MiB takes a debug build longer than the default on a busy machine.
    let worker = worker(&["--source", "http:?deadline_s=240", "--max-held-mib", "64"]);
    let address = worker.address.as_str();
    let text: String = (0..5_000).map(|user| like(user) + "\n").collect();
    let packed = gzipped(text.as_bytes());
    assert!(packed.len() < text.len() / 5);
    let answer = post(address, "Content-Encoding: gzip\r\n", &packed);
    assert_eq!((answer.status, answer.json()["received"].as_u64()), (200, Some(5_000)), "{answer:?}");
    let answer = post(address, "Content-Encoding: gzip\r\n", &packed[..packed.len() / 2]);
    assert!(answer.status == 400 && answer.says("its end is missing"), "{answer:?}");
    let answer = post(address, "Content-Encoding: gzip\r\n", text);
    assert!(answer.status == 400 && answer.says("damaged"), "{answer:?}");
    // A few KiB that stand for 100 MiB.
    let bomb = gzipped(&vec![b' '; 100 << 20]);
    let answer = post(address, "Content-Encoding: gzip\r\n", &bomb);
    assert!(answer.status == 413 && answer.says("64 MiB unpacked"), "{answer:?}");
    assert_eq!(count(address), 5_000);
}

#[test]
fn poison_is_listed_with_its_lines_and_the_list_has_a_limit() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let answer = post(address, "", "rubbish");
    assert!(answer.status == 400 && answer.says("not an event in JSON"), "{answer:?}");
    let body: String = (1..=3_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let answer = post(address, "", format!("{}\n{body}", like(1)));
    let list = answer.json();
    assert_eq!((answer.status, &list["received"], &list["poison_total"]), (200, &3_001.into(), &3_000.into()));
    let lines: Vec<u64> = list["poison"].as_array().unwrap().iter().map(|row| row["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, (2..=101).collect::<Vec<_>>());
    assert!(answer.body.len() < 64 << 10);
}

#[test]
fn an_illegal_post_is_400_wherever_it_stands() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let long = "x".repeat(1_501);
    for post in ["a%2Fb", ".", "%2E%2E", "__x__", &long] {
        for path in
            [format!("/v1/counts/{post}"), format!("/v1/counts/{post}/repair"), format!("/v1/posts?after={post}")]
        {
            let answer = get(address, &path);
            assert!(answer.status == 400 && answer.json()["error"].is_string(), "{path}: {answer:?}");
        }
        let repair = format!("POST /v1/counts/{post}/repair HTTP/1.1\r\nHost: worker\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(ask(address, repair).status, 400);
        assert_eq!(get(address, &format!("/v1/quarantine?after={post}")).status, 400);
    }
}

#[test]
fn every_refusal_has_a_body_in_json() {
    let worker = worker(&[]);
    let address = worker.address.as_str();
    let request = |line: &str| ask(address, format!("{line} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n"));
    for (line, status) in [
        ("GET /v1/nothing", 404),
        ("GET /", 404),
        ("GET /v1/events", 405),
        ("DELETE /v1/counts/p", 405),
        ("OPTIONS /v1/events", 405),
        ("GET /v1/posts?limit=0", 400),
        ("GET /v1/posts?listing=all", 400),
        ("GET /v1/quarantine?limit=26", 400),
        ("GET /v1/counts/p?verify=perhaps", 400),
        ("GET /v1/counts/%FF", 400),
    ] {
        let answer = request(line);
        assert!(answer.status == status && answer.json()["error"].is_string(), "{line}: {answer:?}");
        assert_eq!(status == 405, answer.head.contains("allow: "), "{line}: {answer:?}");
    }
    let mut peer = Peer::connect(address);
    peer.sends("HEAD /healthz HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n");
    // The length of what a GET would bring, and nothing of it.
    assert!(peer.answer_if_any().is_none());
}
