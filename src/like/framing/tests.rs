//! Which records a text has.

use super::*;
use proptest::prelude::*;

const A: &str = r#"{"eventId":"a"}"#;
const B: &str = r#"{"eventId":"b","extra":{"n":[1,{"x":"}{"}]}}"#;
const C: &str = r#"{"eventId":"c","text":"\"}{\""}"#;

/// All records of `text`, pushed in chunks of that many bytes.
fn cut(framing: Framing, text: &[u8], chunk: usize, most: usize) -> (Vec<Record>, Option<Refusal>, bool) {
    let mut framer = Framer::new(framing, most);
    let mut records = Vec::new();
    for chunk in text.chunks(chunk.max(1)) {
        framer.push(chunk);
        records.extend(std::iter::from_fn(|| framer.next_record()));
    }
    framer.finish();
    records.extend(std::iter::from_fn(|| framer.next_record()));
    (records, framer.refusal(), framer.many())
}

fn texts(framing: Framing, text: impl AsRef<[u8]>) -> Vec<String> {
    let text = text.as_ref();
    let whole = cut(framing, text, text.len(), 10 << 20);
    for chunk in [1, 2, 3, 7] {
        assert_eq!(cut(framing, text, chunk, 10 << 20), whole, "in chunks of {chunk}");
    }
    whole.0.iter().map(|record| String::from_utf8_lossy(&record.payload).into_owned()).collect()
}

#[test]
fn objects_are_found_in_whatever_way_they_follow_each_other() {
    let pretty =
        |text: &str| serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(text).unwrap()).unwrap();
    let forms = [
        format!("{A}\n{B}\n{C}\n"),
        format!("{A}\r\n\r\n{B}\r\n{C}"),
        format!("{A}{B}{C}"),
        format!("{A} {B}\t{C}\n"),
        format!("[{A},{B},{C}]"),
        format!("[\n  {A},\n  {B},\n  {C}\n]\n"),
        format!("[{A}\n,{B}\n,{C}]"),
        format!("{A},\n{B},\n{C},\n"),
        format!("\u{1e}{A}\n\u{1e}{B}\n\u{1e}{C}\n"),
        format!("\u{1e}{A}\u{1e}{B}\u{1e}{C}"),
        format!("\u{feff}{A}\n{B}\n\u{feff}{C}\n"),
        format!("\0\0\0\0{A}\n{B}\n\0\0\0{C}\0\0\n"),
        format!("{A}\0\0\0\0{B}\n\0\n\0{C}"),
        format!("\n\n {A}\n\n\n{B}\n{C}\n\n"),
    ];
    for text in forms {
        for framing in [Framing::Lines, Framing::Objects, Framing::Sequence] {
            assert_eq!(texts(framing, &text), [A, B, C], "{text:?}");
        }
    }
    let printed = [pretty(A), pretty(B), pretty(C)];
    for separator in ["\n", "", "\r\n", ",\n", "\u{1e}", "\0\0"] {
        for framing in [Framing::Objects, Framing::Sequence] {
            assert_eq!(texts(framing, printed.join(separator)), printed, "{separator:?}");
        }
    }
    assert_eq!(texts(Framing::One, format!("[{}]", printed.join(","))), printed);
}

#[test]
fn a_broken_record_costs_no_other_line() {
    let broken = [
        r#"{"eventId":"x","ty"#,
        r#"{"eventId":"x","#,
        r#"{"eventId":"x","type":"#,
        r#"{"eventId":"x","extra":["#,
        r#"{"eventId":"x","extra":{"a":1}"#,
        r#"{"eventId":"x\"#,
        r#"{"eventId":"x"]"#,
        r#"{eventId:"x"}"#,
        "{",
        "}",
        "rubbish",
        r#"nothing {"eventId":"x"}"#,
        r#"{"eventId":"x"} nothing"#,
        "null",
        "[1,2]",
        "\"",
    ];
    for line in broken {
        for framing in [Framing::Lines, Framing::Objects] {
            let text = format!("{A}\n{line}\n{B}\n{line}\n{line}\n{C}");
            let got = texts(framing, &text);
            let good: Vec<_> = got.iter().filter(|got| [A, B, C].contains(&got.as_str())).collect();
            assert_eq!(good, [A, B, C], "{line} as {framing:?}: {got:?}");
            assert!(got.len() <= 10, "{line} as {framing:?}: {got:?}");
        }
    }
    assert_eq!(texts(Framing::Objects, format!("{{\"a\":1{A}{B}")), [r#"{"a":1{"eventId":"a"}"#, B]);
    assert_eq!(texts(Framing::Objects, format!("{{\"a\":\"torn\0\0\0\0{A}\n{B}")), [r#"{"a":"torn"#, A, B]);
}

#[test]
fn the_lines_of_an_object_that_broke_are_one_record() {
    let text = format!("{A}\n{{\n  \"eventId\": \"x\",\n  \"type\": oh no,\n  \"more\": [\n    1\n  ]\n}}\n{B}\n{C}\n");
    let got = texts(Framing::Objects, &text);
    assert_eq!((got.len(), &*got[0], &*got[2], &*got[3]), (4, A, B, C), "{got:?}");
    let (records, ..) = cut(Framing::Objects, text.as_bytes(), 5, 1 << 20);
    assert_eq!(records.iter().map(|r| (r.number, r.line)).collect::<Vec<_>>(), [(1, 1), (2, 2), (3, 9), (4, 10)]);
}

#[test]
fn a_record_knows_its_line() {
    let text = format!("\n{A}\n\n{B}{C}\nrubbish\n{{\n\"a\":\n1}}\n{A}\n");
    let (records, ..) = cut(Framing::Objects, text.as_bytes(), 3, 1 << 20);
    let places: Vec<_> = records.iter().map(|record| (record.number, record.line)).collect();
    assert_eq!(places, [(1, 2), (2, 4), (3, 4), (4, 5), (5, 6), (6, 9)]);
}

#[test]
fn a_record_over_the_limit_is_cut_and_the_next_is_whole() {
    let most = 2_000;
    let long = |inside: &str| format!("{A}\n{}\n{B}\n", inside.replace('~', &"x".repeat(3 * most)));
    for inside in
        ["~", "{\"a\":\"~\"}", "{\"a\":\"~", "{~", "[~", "{\"a\":{}~}", "{\n\"a\":\"~\"\n}", "{\n\"a\":\n~\n~\n}"]
    {
        for framing in [Framing::Lines, Framing::Objects] {
            let text = long(inside);
            let (records, ..) = cut(framing, text.as_bytes(), 100, most);
            assert!(records.iter().all(|record| record.payload.len() <= most), "{inside:?}");
            assert!(records.len() <= if framing == Framing::Lines { 8 } else { 3 }, "{inside:?}: {}", records.len());
            assert_eq!((&*records[0].payload, &*records.last().unwrap().payload), (A.as_bytes(), B.as_bytes()));
        }
    }
    let glued = format!("{A}{{\"a\":\"{}\"}}{B}", "x".repeat(3 * most));
    let (records, ..) = cut(Framing::Objects, glued.as_bytes(), 100, most);
    assert_eq!((records.len(), &*records[2].payload), (3, B.as_bytes()));
}

#[test]
fn what_is_held_is_one_record_and_one_piece() {
    let most = 100_000;
    for text in [
        "[".repeat(400 << 10),
        "x".repeat(400 << 10),
        " ".repeat(400 << 10),
        "{".repeat(400 << 10),
        "{\n".repeat(200 << 10),
        "{\"a\":[\n".repeat(60_000),
        format!("{{\n{}", "\"a\":1,\n".repeat(60_000)),
        format!("{A}\n").repeat(30_000),
    ] {
        for framing in [Framing::Lines, Framing::Objects, Framing::One] {
            let mut framer = Framer::new(framing, most);
            for chunk in text.as_bytes().chunks(10_000) {
                framer.push(chunk);
                let held = framer.held_bytes();
                assert!(held <= (2 * (most + 10_000)).max(KEEP_BYTES), "{} as {framing:?}: {held}", &text[..9]);
                while framer.next_record().is_some() {}
            }
        }
    }
}

#[test]
fn a_text_that_is_none_is_one_record_and_says_why() {
    let utf16: Vec<u8> = A.repeat(200).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [b"\xff\xfe", &utf16[..]].concat();
    let big_endian: Vec<u8> = A.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (text, refusal) in [
        (&utf16[..], Refusal::Utf16),
        (&marked, Refusal::Utf16),
        (&big_endian, Refusal::Utf16),
        (b"\x1f\x8b\x08\n\n\n\n", Refusal::Compressed("gzip")),
        (b"<html>\n<body>\n</html>\n", Refusal::Foreign("HTML")),
    ] {
        for framing in [Framing::Lines, Framing::Objects, Framing::One, Framing::Sequence] {
            let (records, why, _) = cut(framing, text, 3, 1 << 20);
            assert_eq!((records.len(), why), (1, Some(refusal)));
            assert_eq!(records[0].payload, text[..text.len().min(REFUSED_BYTES)]);
        }
    }
}

#[test]
fn one_value_is_one_record_and_several_are_none() {
    let one = |text: &str| cut(Framing::One, text.as_bytes(), 4, 1 << 20);
    assert_eq!(one(&format!("\u{feff} {C}\r\n")).0[0].payload, C);
    assert!(!one(A).2);
    for text in [format!("{A}\n{B}\n"), format!("{A}{B}"), format!("{A}\n{{\"broken")] {
        let (records, refusal, _) = one(&text);
        assert_eq!((records, refusal), (vec![], Some(Refusal::Several)), "{text}");
    }
    for text in ["{\n \"a\": oh no\n}\n{}", "null", "rubbish\nrubbish", "{\"a\":1"] {
        let (records, refusal, _) = one(text);
        assert_eq!((records.len(), &records[0].payload[..], refusal), (1, text.as_bytes(), None));
    }
    assert_eq!(one(&format!("[{A}]")).0.len(), 1);
    assert!(one(&format!("[{A}]")).2, "an array is many");
    assert_eq!(one(" \n\0 ").0, []);
    assert_eq!(one("[]").0, []);
}

#[test]
fn a_content_type_says_how_a_body_is_framed() {
    for (content_type, framing) in [
        ("application/x-ndjson", Framing::Lines),
        ("application/jsonl; charset=utf-8", Framing::Lines),
        ("Application/JSON", Framing::One),
        ("application/cloudevents+json; charset=utf-8", Framing::One),
        ("application/cloudevents-batch+json", Framing::One),
        ("application/json-seq", Framing::Sequence),
        ("application/stream+json", Framing::Objects),
        ("text/plain; charset=UTF-8", Framing::Objects),
        ("application/x-www-form-urlencoded", Framing::Objects),
        ("", Framing::Objects),
    ] {
        assert_eq!(Framing::of(content_type), framing, "{content_type}");
    }
}

/// Pieces that texts are made of, so that near-valid ones come up.
const WORDS: &[&str] = &[
    A, B, C, "{", "}", "[", "]", ",", ":", "\"", "\\", "\n", "\n", "\r\n", "\0", "\u{1e}", "\u{feff}", " ", "1", "x",
    "\"a\":", "{\"a\":", "é",
];

proptest! {
    #[test]
    fn the_records_are_the_same_wherever_a_piece_ends(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..60), chunk in 1..50_usize, how in 0..4_usize,
    ) {
        let framing = [Framing::Lines, Framing::Objects, Framing::One, Framing::Sequence][how];
        let text = words.concat();
        let whole = cut(framing, text.as_bytes(), usize::MAX, 1 << 20);
        prop_assert_eq!(cut(framing, text.as_bytes(), chunk, 1 << 20), whole);
    }

    #[test]
    fn good_lines_are_records_whatever_stands_in_the_lines_between(
        lines in prop::collection::vec((any::<bool>(), prop::collection::vec(prop::sample::select(WORDS), 1..6)), 0..20),
    ) {
        // What breaks between lines is not to spoil them; what is joined to a good line by a word may.
        let mut text = String::new();
        let mut good = Vec::new();
        for (number, (is_good, words)) in lines.iter().enumerate() {
            if *is_good {
                good.push(format!(r#"{{"eventId":"good-{number}"}}"#));
                text += good.last().unwrap();
            } else {
                text += &words.concat().replace(['\n', '\r'], " ");
            }
            text.push('\n');
        }
        let (records, ..) = cut(Framing::Lines, text.as_bytes(), 13, 1 << 20);
        let got: Vec<_> = records.iter().map(|record| String::from_utf8_lossy(&record.payload).into_owned())
            .filter(|record| record.contains("good-")).collect();
        prop_assert_eq!(got, good);
    }
}
