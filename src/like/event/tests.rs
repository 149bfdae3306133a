//! What is a like, and what is poison.

mod envelopes;

use super::*;
use proptest::prelude::*;
use std::time::{SystemTime, UNIX_EPOCH};

fn noon() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn read(json: &str) -> Result<Like, String> {
    decode(json.as_bytes(), OrderPolicy::OccurredAt, noon()).map_err(|p| p.to_string())
}

const GOOD: &str = r#"{"eventId":"e1","type":"like.added","postId":"p","userId":7,"occurredAt":"2026-12-01T10:00:00.000001+02:00","extra":[1,{"a":2}]}"#;

#[test]
fn an_event_becomes_a_like_with_nanoseconds_as_its_order() {
    let like = read(GOOD).expect("a good event");
    assert_eq!(format!("{like:?}"), "+ p 7 @1796112000000001000 e1");
}

#[test]
fn of_two_events_in_one_microsecond_the_later_is_the_newer() {
    let at = |fraction: &str| {
        read(&GOOD.replace("00.000001+02:00", &format!("00.{fraction}+02:00"))).expect("a good event").order()
    };
    assert!(at("000001001") < at("000001002"));
    assert!(at("000001") < at("000001001"));
    assert_eq!(at("0000010019"), at("000001001"), "RFC 3339 may have more digits than nanoseconds");
}

#[test]
fn a_time_that_nanoseconds_cannot_tell_is_poison() {
    let at = |time: &str| {
        let json = GOOD.replace("2026-12-01T10:00:00.000001+02:00", time);
        decode(json.as_bytes(), OrderPolicy::OccurredAt, noon() + Duration::from_secs(300 * 365 * 86_400))
            .map(|like| like.order())
            .map_err(|poison| poison.to_string())
    };
    assert_eq!(at("1677-09-21T00:12:43.145224192Z"), Ok(i64::MIN));
    assert_eq!(at("2262-04-11T23:47:16.854775807Z"), Ok(i64::MAX));
    for time in [
        "1677-09-21T00:12:43.145224191Z",
        "2262-04-11T23:47:16.854775808Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ] {
        assert_eq!(at(time), Err("occurredAt: not in the years 1677 to 2262".to_owned()), "{time}");
    }
}

#[test]
fn the_reason_names_the_field() {
    let cases = [
        ("", "payload: not an event in JSON"),
        ("[]", "payload: not an event in JSON"),
        (r#"["e","like.added","p","u","2020-01-01T00:00:00Z"]"#, "expected an object"),
        (r#"{"eventId":"e","eventId":"f"}"#, "duplicate field `eventId`"),
        ("{}", "eventId: missing, must be a string"),
        (r#"{"eventId":7}"#, "eventId: must be a string, not this integer"),
        (r#"{"eventId":""}"#, "eventId: empty"),
        (r#"{"eventId":"e","type":"share"}"#, "type: neither like.added nor like.removed"),
        (r#"{"eventId":"e","type":"like.added","postId":1.5}"#, "postId: must be a string or an integer, not a number"),
        (r#"{"eventId":"e","type":"like.added","postId":"a/b"}"#, "postId: not a legal document id"),
        (r#"{"eventId":"e","type":"like.added","postId":".."}"#, "postId: not a legal document id"),
        (r#"{"eventId":"e","type":"like.added","postId":"__x__"}"#, "postId: not a legal document id"),
        (
            r#"{"eventId":"e","type":"like.added","postId":"p","userId":null}"#,
            "userId: missing (null), must be a string or an integer",
        ),
        (r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u"}"#, "occurredAt: missing"),
        (
            r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u","occurredAt":"yesterday"}"#,
            "occurredAt: not an RFC 3339",
        ),
        (
            r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u","occurredAt":"2099-01-01T00:00:00Z"}"#,
            "occurredAt: more than ten",
        ),
        (
            r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u","occurredAt":null}"#,
            "occurredAt: missing, and it is the order",
        ),
        (
            r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u","occurredAt":"2020-01-01T00:00:00Z","occurredAt":null}"#,
            "duplicate field `occurredAt`",
        ),
    ];
    for (json, reason) in cases {
        let got = read(json).expect_err(json);
        assert!(got.contains(reason), "{json}: {got}");
    }
}

#[test]
fn a_reason_is_short_however_long_the_payload_is() {
    let got = read(&format!("\"{}\"", "é".repeat(1 << 20))).expect_err("no object");
    assert!(got.starts_with("payload: not an event in JSON") && got.len() < 600, "{} bytes", got.len());
    let refused = Poison::refused_by_store("x".repeat(1 << 20));
    assert!(refused.problem.len() < 600, "{} bytes", refused.problem.len());
}

#[test]
fn an_integer_id_is_its_decimal_text() {
    let json = r#"{"eventId":"e","type":"like.added","postId":18446744073709551615,"userId":-5,"occurredAt":"2020-01-01T00:00:00Z"}"#;
    assert_eq!(read(json).expect("good").member(), ("18446744073709551615", "-5"));
}

#[test]
fn the_version_policy_needs_a_version_and_no_time() {
    let json = br#"{"eventId":"e","type":"like.removed","postId":"p","userId":"u","version":-3}"#;
    assert_eq!(decode(json, OrderPolicy::Version, noon()).expect("good").order(), -3);
    assert_eq!(decode(GOOD.as_bytes(), OrderPolicy::Version, noon()).expect_err("no version").field, "version");
}

#[test]
fn a_version_may_stand_in_a_string() {
    let read = |version: &str| {
        let json = format!(r#"{{"eventId":"e","type":"like.added","postId":"p","userId":"u","version":{version}}}"#);
        decode(json.as_bytes(), OrderPolicy::Version, noon()).map(|like| like.order()).map_err(|p| p.to_string())
    };
    assert_eq!((read("\"4\""), read("\"-9223372036854775808\"")), (Ok(4), Ok(i64::MIN)));
    for version in ["\"\"", "\"4.0\"", "\" 4\"", "\"9223372036854775808\"", "\"four\"", "4.5", "true", "[4]", "{}"] {
        assert!(read(version).expect_err(version).starts_with("version: must be a 64-bit integer"), "{version}");
    }
    assert_eq!(read("null").expect_err("absent"), "version: missing, and it is the order");
}

#[test]
fn a_field_that_the_policy_does_not_need_can_be_anything() {
    for anything in
        ["null", "\"\"", "\"x\"", "1.5", "true", "[[1]]", "{\"a\":1}", "18446744073709551616", "\"\\ud800\""]
    {
        let json = |order: &str, other: &str| {
            format!(
                r#"{{"{other}":{anything},"eventId":"e","type":"like.added","postId":"p","userId":"u",{order},"{other}":{anything}}}"#
            )
        };
        let by_time = json(r#""occurredAt":"2020-01-01T00:00:00Z""#, "version");
        assert!(decode(by_time.as_bytes(), OrderPolicy::OccurredAt, noon()).is_ok(), "{by_time}");
        let by_version = json(r#""version":3"#, "occurredAt");
        assert!(decode(by_version.as_bytes(), OrderPolicy::Version, noon()).is_ok(), "{by_version}");
        let by_none = json(r#""extra":3"#, "occurredAt").replace("extra", "version");
        assert!(decode(by_none.as_bytes(), OrderPolicy::None, noon()).is_ok(), "{by_none}");
    }
}

#[test]
fn padding_and_a_byte_order_mark_around_an_event_are_skipped() {
    for (before, after) in
        [("\u{feff}", ""), ("\0\0\0", ""), ("", "\0\0"), ("\0 \u{feff}\0", "\n\0\r\n"), ("\n", " \0 ")]
    {
        assert_eq!(read(&format!("{before}{GOOD}{after}")), read(GOOD), "{before:?} {after:?}");
    }
    assert!(read(&format!("{GOOD}\0x")).is_err());
}

#[test]
fn text_that_is_not_utf_8_gets_a_sentence_and_packed_text_is_unpacked() {
    let utf16 = |to_bytes: fn(u16) -> [u8; 2]| GOOD.encode_utf16().flat_map(to_bytes).collect::<Vec<u8>>();
    let (little, big) = (utf16(u16::to_le_bytes), utf16(u16::to_be_bytes));
    for bytes in [&little, &big, &[b"\xff\xfe", &little[..]].concat(), &[b"\xfe\xff", &big[..]].concat()] {
        let poison = decode(bytes, OrderPolicy::OccurredAt, noon()).expect_err("UTF-16");
        assert!(poison.to_string().starts_with("payload: the text is UTF-16"), "{poison}");
    }
    let packed = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, text).expect("memory takes it");
        encoder.finish().expect("memory takes it")
    };
    let read = |bytes: &[u8]| decode(bytes, OrderPolicy::OccurredAt, noon()).map_err(|poison| poison.to_string());
    assert_eq!(read(&packed(&packed(GOOD.as_bytes()))), super::tests::read(GOOD));
    assert!(read(&packed(b"{}")).expect_err("empty").ends_with("(in what was unpacked)"));
    for wrong in [packed(&[b' '; 2 << 20]), packed(GOOD.as_bytes())[..30].to_vec()] {
        assert!(read(&wrong).expect_err("too much, or cut").starts_with("payload: the bytes are compressed (gzip)"));
    }
}

#[test]
fn without_an_order_a_removal_is_poison() {
    let json = br#"{"eventId":"e","type":"like.removed","postId":"p","userId":"u"}"#;
    assert_eq!(decode(json, OrderPolicy::None, noon()).expect_err("removal").field, "type");
    assert_eq!(decode(GOOD.as_bytes(), OrderPolicy::None, noon()).expect("good").order(), 0);
}

#[test]
fn ids_end_at_1500_bytes() {
    let event = |n: usize| {
        let user = "é".repeat(n / 2);
        format!(
            r#"{{"eventId":"e","type":"like.added","postId":"p","userId":"{user}","occurredAt":"2020-01-01T00:00:00Z"}}"#
        )
    };
    assert_eq!(read(&event(1_500)).expect("at the limit").user().len(), 1_500);
    assert_eq!(read(&event(1_502)).expect_err("over it"), "userId: longer than 1,500 bytes");
}

#[test]
fn an_escaped_id_is_unescaped() {
    let json =
        r#"{"eventId":"e","type":"like.added","postId":"a\u002db","userId":"u","occurredAt":"2020-01-01T00:00:00Z"}"#;
    assert_eq!(read(json).expect("good").post(), "a-b");
}

proptest! {
    #[test]
    fn any_bytes_are_a_like_or_poison_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for policy in [OrderPolicy::OccurredAt, OrderPolicy::Version, OrderPolicy::None] {
            if let Err(poison) = decode(&bytes, policy, noon()) {
                prop_assert!(!poison.field.is_empty());
            }
        }
    }

    #[test]
    fn near_valid_json_is_a_like_or_poison_and_never_a_panic(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = GOOD.as_bytes().to_vec();
        *at.get_mut(&mut bytes) = byte;
        let _ = decode(&bytes, OrderPolicy::OccurredAt, noon());
        bytes.truncate(cut.index(GOOD.len()));
        let _ = decode(&bytes, OrderPolicy::OccurredAt, noon());
    }

    #[test]
    fn a_like_gives_back_the_ids_it_was_made_of(post in "\\PC{1,20}", user in "\\PC{1,20}", id in "\\PC{1,20}") {
        let like = Like::new(&post, &user, &id, true, 1);
        prop_assert_eq!((like.post(), like.user(), like.event_id()), (&*post, &*user, &*id));
    }
}
