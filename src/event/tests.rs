//! What is a like, and what is poison.

use super::*;
use proptest::prelude::*;

fn noon() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn read(json: &str) -> Result<Like, String> {
    decode(json.as_bytes(), OrderPolicy::OccurredAt, noon()).map_err(|p| p.to_string())
}

const GOOD: &str = r#"{"eventId":"e1","type":"like.added","postId":"p","userId":7,"occurredAt":"2026-12-01T10:00:00.000001+02:00","extra":[1,{"a":2}]}"#;

#[test]
fn an_event_becomes_a_like_with_microseconds_as_its_order() {
    let like = read(GOOD).expect("a good event");
    assert_eq!(format!("{like:?}"), "+ p 7 @1796112000000001 e1");
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
            "userId: must be a string or an integer, not null",
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
            r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u","version":"1","occurredAt":"2020-01-01T00:00:00Z"}"#,
            "version: must be a 64-bit integer",
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
