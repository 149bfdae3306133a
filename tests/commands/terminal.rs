//! Text of strangers on a terminal: nothing that the real binary prints for people moves a cursor, breaks a row or turns a
//! direction. JSON has it as it is.

use crate::process::{run, stderr, stdout};
use serde_json::{Value, json};

/// A screen cleared, a title set, a row broken, a direction turned, and characters that nobody sees.
const EVIL: &str = "p\u{1b}[2J\u{1b}]0;owned\u{7}\nq\u{9b}\u{202e}\u{200b}\u{2028}\u{feff}\u{e0041}";
const SPECIAL: [char; 9] =
    ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{e0041}', '\r'];

fn assert_plain(text: &str, lines: usize) {
    assert!(!text.contains(SPECIAL), "{text:?}");
    assert_eq!(text.lines().count(), lines, "{text}");
}

#[test]
fn ids_reasons_and_payloads_of_strangers_are_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}/store", folder.path().display());
    let file = folder.path().join("events.jsonl");
    let like = |post: &str, kind: &str| json!({"eventId": "e1", "type": kind, "postId": post, "userId": "u1", "occurredAt": "2026-01-01T00:00:00Z"});
    std::fs::write(&file, format!("{}\n{}\n", like(EVIL, "like.added"), like("p", EVIL))).unwrap();
    let counted = run(&["replay", file.to_str().unwrap(), "--store", &store]);
    assert!(!stdout(&counted).contains(SPECIAL) && !stderr(&counted).contains(SPECIAL), "{}", stderr(&counted));
    let verified = run(&["verify", "--store", &store]);
    assert_plain(&stdout(&verified), 2);
    assert_plain(&stdout(&run(&["count", EVIL, "--store", &store])), 2);
    let listed = run(&["quarantine", "list", "--store", &store]);
    assert_plain(&stdout(&listed), 2);
    let rows = stdout(&run(&["verify", "--json", "--store", &store]));
    let row: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!(row["post"], EVIL);
    let missing = run(&["count", "p", "--store", "embedded:/no\u{1b}[2J/such"]);
    assert!(!stderr(&missing).contains(SPECIAL), "{}", stderr(&missing));
    let wrong = run(&["count", "p", "--no\u{1b}[2Jsuch"]);
    assert!(!wrong.status.success() && !stderr(&wrong).contains(SPECIAL), "{}", stderr(&wrong));
}

/// Reading what is not there makes nothing, and is not taken for reading nothing.
#[test]
fn a_mistyped_store_is_a_sentence_and_stays_missing() {
    let folder = tempfile::tempdir().unwrap();
    let expected = folder.path().join("expected.jsonl");
    std::fs::write(&expected, "{\"post\":\"p\",\"count\":0}\n").unwrap();
    let missing = folder.path().join("mistyped");
    let embedded = format!("embedded:{}", missing.display());
    for store in [embedded.as_str(), "memory:"] {
        for command in [
            &["count", "p"][..],
            &["verify"],
            &["verify", "--fix", "--yes"],
            &["quarantine", "list"],
            &["quarantine", "replay", "--all", "--yes"],
            &["quarantine", "purge", "--all", "--yes"],
            &["load", "check", "--expect", expected.to_str().unwrap()],
        ] {
            let output = run(&[command, &["--store", store]].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?} {store}: {}", stdout(&output));
            assert!(stderr(&output).contains("cannot be opened"), "{command:?}: {}", stderr(&output));
        }
        assert!(!missing.exists());
    }
}
