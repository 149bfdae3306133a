//! `hotcount replay` of files as senders and tools leave them, and of files that are something else. The real binary.

use crate::process::{hotcount, run, stderr, stdout};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Only a hang reaches it.
const ENDS_WITHIN: Duration = Duration::from_secs(240);

fn event(n: u32) -> String {
    format!(
        r#"{{"eventId":"e{n}","type":"like.added","postId":"p","userId":"u{n}","occurredAt":"2026-01-01T00:00:00Z"}}"#
    )
}

fn events() -> [String; 3] {
    [event(1), event(2), event(3)]
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Replays a file that holds `text`, and its numbers by name.
fn replay(text: impl AsRef<[u8]>, flags: &[&str]) -> (Output, Value) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("events");
    std::fs::write(&file, text).unwrap();
    let output = run(&[&["replay", file.to_str().unwrap(), "--store", "memory:", "--json"], flags].concat());
    let result = stdout(&output).lines().last().map_or(Value::Null, |line| serde_json::from_str(line).unwrap());
    (output, result)
}

fn counted(result: &Value) -> u64 {
    ["applied", "folded", "duplicates", "stale"].map(|name| result[name].as_u64().unwrap()).iter().sum()
}

#[test]
fn a_replay_counts_events_in_whatever_way_they_follow_each_other() {
    let [a, b, c] = events();
    let printed = serde_json::to_string_pretty(&events().map(|event| serde_json::from_str::<Value>(&event).unwrap()));
    let lines = format!("{a}\n{b}\n{c}\n");
    let texts: Vec<(&str, Vec<u8>)> = vec![
        ("lines", lines.clone().into()),
        ("a byte order mark", format!("\u{feff}{lines}").into()),
        ("padding before", [&[0; 200], lines.as_bytes()].concat()),
        ("padding between", format!("{a}\n\0\0\0{b}\0\0\n{c}\0").into()),
        ("a torn line and padding", format!("{a}\n{{\"eventId\":\"x\0\0\0\0{b}\n{c}\n").into()),
        ("no newlines", events().concat().into()),
        ("an array", format!("[{a},{b},{c}]").into()),
        ("a printed array", printed.unwrap().into()),
        ("a sequence", format!("\u{1e}{a}\n\u{1e}{b}\n\u{1e}{c}\n").into()),
        ("gzip", gzip(lines.as_bytes())),
        ("gzip of two members", [gzip(a.as_bytes()), gzip(format!("\n{b}\n{c}").as_bytes())].concat()),
        ("zstd", zstd(lines.as_bytes())),
    ];
    for (what, text) in texts {
        let (output, result) = replay(text, &[]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", stderr(&output));
        let poison = u64::from(what.contains("torn"));
        assert_eq!((counted(&result), result["poison"].as_u64()), (3, Some(poison)), "{what}: {result}");
    }
}

#[test]
fn a_replay_counts_what_is_in_envelopes() {
    let [a, ..] = events();
    let cloud_event = |n: u32| {
        json!({"specversion": "1.0", "id": format!("e{n}"), "source": "/app", "type": "like.added",
            "time": "2026-01-01T00:00:00Z", "data": {"postId": "p", "userId": format!("u{n}")}})
    };
    let push = json!({"message": {"data": STANDARD.encode(&a), "messageId": "11", "publishTime": "2026-01-01T00:00:01Z",
        "attributes": {}}, "subscription": "projects/demo/subscriptions/likes"});
    let notification = json!({"Type": "Notification", "MessageId": "m1", "Message": a});
    let text = format!("{}\n{push}\n{}\n[{},{}]\n", cloud_event(1), notification, cloud_event(2), cloud_event(3));
    let (output, result) = replay(text, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((counted(&result), &result["applied"], &result["poison"]), (5, &3.into(), &0.into()), "{result}");
}

#[test]
fn a_replay_needs_of_an_event_what_the_order_needs_and_no_more() {
    let with =
        |n: u32, rest: &str| format!(r#"{{"eventId":"e{n}","type":"like.added","postId":"p","userId":"u{n}",{rest}}}"#);
    let lines = [
        with(1, r#""version":"3""#),
        with(2, r#""occurredAt":null,"version":3"#),
        with(3, r#""occurredAt":"2026-01-01T00:00:00Z","version":null"#),
        with(4, r#""occurredAt":"2026-01-01T00:00:00Z","version":"4""#),
        with(5, r#""occurredAt":"","version":5"#),
    ];
    for (order, expected) in [("occurred-at", 2), ("version", 4), ("none", 5)] {
        let (output, result) = replay(lines.join("\n"), &["--order", order]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!((counted(&result), result["poison"].as_u64()), (expected, Some(5 - expected)), "{order}");
    }
}

#[test]
fn a_file_of_which_nothing_counted_is_a_finding_with_a_sentence() {
    let utf16: Vec<u8> = events().join("\n").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let other = "{\"user\":\"u\",\"action\":\"like\"}\n".repeat(3);
    let many: String = (0..9_000).map(event).collect();
    let no_order = r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u"}"#;
    for (text, received, sentence) in [
        (b"".to_vec(), 0, "has no events"),
        (b"\0\0\n[ ]\n".to_vec(), 0, "has no events"),
        (gzip(b""), 0, "has no events"),
        (utf16, 1, "the text is UTF-16"),
        (b"<html>\n<body>\n</body>\n</html>\n".to_vec(), 1, "the bytes are HTML"),
        (gzip(&gzip(many.as_bytes())), 1, "the bytes are compressed (gzip)"),
        (other.into(), 3, "3 of 3 are poison, 3 of them because of eventId: missing"),
        (no_order.into(), 1, "--order says which field"),
    ] {
        let (output, result) = replay(&text, &[]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{sentence}: {said}");
        assert!(said.lines().last().unwrap_or_default().contains(sentence), "{sentence}: {said}");
        assert_eq!(result["received"], received, "{sentence}");
    }
}

#[test]
fn a_file_that_breaks_off_counts_what_came_before_and_says_so() {
    let text: String = (0..20_000).map(|n| event(n) + "\n").collect();
    for packed in [gzip(text.as_bytes()), zstd(text.as_bytes())] {
        let (output, result) = replay(&packed[..packed.len() / 2], &[]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("ends in the middle"), "{}", stderr(&output));
        assert!(counted(&result) > 3_000, "{result}");
        assert_eq!(result["received"], counted(&result) + result["poison"].as_u64().unwrap(), "{result}");
    }
}

/// A store that falls silent with the first commit, and a replay whose input has ended.
#[cfg(feature = "firestore")]
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_stopped_while_the_store_is_silent_ends_at_the_drain_deadline() {
    use crate::support::emulators::{firestore, unique};
    use crate::support::proxy::{Proxy, Verdict};
    use std::sync::atomic::{AtomicBool, Ordering};
    let Some(host) = firestore() else { return };
    let silent = AtomicBool::new(false);
    let wire = Proxy::start(&host, move |call| {
        silent.fetch_or(call.method == "Commit", Ordering::AcqRel);
        if silent.load(Ordering::Acquire) { Verdict::Delay(Duration::from_secs(3_600)) } else { Verdict::Pass }
    })
    .await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("events");
    std::fs::write(&file, event(1)).unwrap();
    let store = format!("firestore://{}?emulator={}", unique("silent"), wire.host());
    let mut command =
        hotcount(&["replay", file.to_str().unwrap(), "--store", &store, "--drain-deadline-s", "1", "--json"]);
    let mut replay = command.stdout(Stdio::piped()).spawn().unwrap();
    tokio::time::timeout(ENDS_WITHIN, wire.called("Commit", 1)).await.expect("the like is sent to the store");
    let signalled = Command::new("kill").args(["-TERM", &replay.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let asked = Instant::now();
    let status = loop {
        if let Some(status) = replay.try_wait().unwrap() {
            break status;
        }
        assert!(asked.elapsed() < ENDS_WITHIN, "the replay goes on {ENDS_WITHIN:?} after it was asked to stop");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(status.code(), Some(3), "the like is left");
}
