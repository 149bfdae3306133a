//! Events. The decoder reads them without a tree and without copies; here they are read once more, slowly and plainly,
//! and both must say the same.

use hotcount::like::event::{Like, MAX_FUTURE, MAX_ID_BYTES, OrderPolicy, decode, outside};
use hotcount::like::framing::Refusal;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// When the message was published, in seconds since 1970.
const SEEN_AT_S: u64 = 1_800_000_000;

fn seen_at() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(SEEN_AT_S)
}

/// `payload` is a like or poison under every policy, as a plain reading says; and a like survives being written as an event
/// and decoded again.
pub fn decoder(payload: &[u8]) {
    if let Some(outside) = outside(payload) {
        assert!(outside.attributes.len() <= 100 && outside.message_id.is_none_or(|id| id.len() <= 256));
    }
    for policy in [OrderPolicy::OccurredAt, OrderPolicy::Version, OrderPolicy::None] {
        let got = decode(payload, policy, seen_at());
        match &got {
            Ok(like) => {
                is_legal(like, policy);
                comes_back(like, policy);
            }
            Err(poison) => assert!(!poison.problem.is_empty() && poison.problem.len() < 1_000, "{poison}"),
        }
        if Refusal::of(payload).is_some() {
            continue;
        }
        match serde_json::from_slice::<Value>(without_padding(payload)) {
            Ok(Value::Object(event)) if is_envelope(&event) => {}
            Ok(Value::Object(event)) => {
                // A tree has forgotten whether a field came twice.
                let twice = got.as_ref().is_err_and(|poison| poison.problem.contains("duplicate field"));
                if !twice {
                    let expected = read_plainly(&event, policy);
                    let got = got.map(|like| {
                        let (post, user) = like.member();
                        (post.to_owned(), user.to_owned(), like.event_id().to_owned(), like.liked(), like.order())
                    });
                    assert_eq!(got.map_err(|poison| poison.field), expected);
                }
            }
            Ok(_) => assert_eq!(got.expect_err("only an object is an event").field, "payload"),
            // What the decoder need not understand it does not look into: how deep it nests, how large a number is, and
            // whether an escape in it means anything.
            Err(error) if tree_alone_refuses(&error) => {}
            Err(error) => assert_eq!(got.expect_err(&error.to_string()).field, "payload"),
        }
    }
}

/// Without zeros, white space and byte order marks around it.
fn without_padding(payload: &[u8]) -> &[u8] {
    let payload = payload.strip_prefix(b"\xef\xbb\xbf").unwrap_or(payload);
    let is_padding = |byte: &u8| *byte == 0 || byte.is_ascii_whitespace();
    match payload {
        [first, rest @ ..] if is_padding(first) => without_padding(rest),
        [rest @ .., last] if is_padding(last) => without_padding(rest),
        _ if payload.starts_with(b"\xef\xbb\xbf") => without_padding(payload),
        _ => payload,
    }
}

/// Whether something else may be inside; `src/like/event/tests/envelopes.rs` says what.
fn is_envelope(object: &serde_json::Map<String, Value>) -> bool {
    let is_there = |name: &&str| object.get(*name).is_some_and(|value| !value.is_null());
    let marks = ["specversion", "subscription", "Type"];
    !["eventId", "postId", "userId"].iter().any(&is_there) && marks.iter().any(is_there)
}

fn tree_alone_refuses(error: &serde_json::Error) -> bool {
    let text = error.to_string();
    ["recursion limit", "number out of range", "surrogate", "hex escape", "unicode code point"]
        .iter()
        .any(|reason| text.contains(reason))
}

/// What the rest of hotcount relies on.
fn is_legal(like: &Like, policy: OrderPolicy) {
    for id in [like.post(), like.user(), like.event_id()] {
        assert!((1..=MAX_ID_BYTES).contains(&id.len()), "an id of {} bytes", id.len());
    }
    assert!(is_document_id(like.post()), "the post '{}' is no document id", like.post());
    match policy {
        OrderPolicy::OccurredAt => {
            let latest = Duration::from_secs(SEEN_AT_S) + MAX_FUTURE;
            assert!(i128::from(like.order()) <= latest.as_nanos() as i128, "in the future");
        }
        OrderPolicy::Version => {}
        OrderPolicy::None => assert_eq!((like.order(), like.liked()), (0, true)),
    }
}

fn is_document_id(id: &str) -> bool {
    let reserved = id.len() >= 4 && id.starts_with("__") && id.ends_with("__");
    !id.contains('/') && id != "." && id != ".." && !reserved
}

/// Written as an event again, it is the same like.
fn comes_back(like: &Like, policy: OrderPolicy) {
    let kind = if like.liked() { "like.added" } else { "like.removed" };
    let mut event = json!({"eventId": like.event_id(), "type": kind, "postId": like.post(), "userId": like.user()});
    match policy {
        OrderPolicy::OccurredAt => {
            let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(like.order()));
            // A local time in the year 0 or 9999 may be in no year of RFC 3339 in UTC.
            let Some(text) = time.ok().and_then(|time| time.format(&Rfc3339).ok()) else { return };
            event["occurredAt"] = text.into();
        }
        OrderPolicy::Version => event["version"] = like.order().into(),
        OrderPolicy::None => {}
    }
    assert_eq!(decode(event.to_string().as_bytes(), policy, seen_at()).as_ref(), Ok(like));
}

type Plain = (String, String, String, bool, i64);

/// The like that an event means, or the field at fault.
fn read_plainly(event: &serde_json::Map<String, Value>, policy: OrderPolicy) -> Result<Plain, &'static str> {
    let event_id = event.get("eventId").and_then(Value::as_str).filter(|id| is_id(id)).ok_or("eventId")?;
    let liked = match event.get("type").and_then(Value::as_str) {
        Some("like.added") => true,
        Some("like.removed") => false,
        _ => return Err("type"),
    };
    let post = text_or_integer(event.get("postId")).filter(|id| is_document_id(id)).ok_or("postId")?;
    let user = text_or_integer(event.get("userId")).ok_or("userId")?;
    let occurred_at = event.get("occurredAt").and_then(Value::as_str).and_then(nanos_of);
    let version = event.get("version").and_then(|version| version.as_i64().or_else(|| version.as_str()?.parse().ok()));
    let latest = (SEEN_AT_S + MAX_FUTURE.as_secs()) as i64 * 1_000_000_000;
    let order = match policy {
        OrderPolicy::OccurredAt => occurred_at.filter(|at| *at <= latest).ok_or("occurredAt")?,
        OrderPolicy::Version => version.ok_or("version")?,
        OrderPolicy::None if liked => 0,
        OrderPolicy::None => return Err("type"),
    };
    Ok((post, user, event_id.to_owned(), liked, order))
}

fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len())
}

fn text_or_integer(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()).filter(|id| is_id(id)),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// Nanoseconds since 1970 of a time in RFC 3339, digit by digit.
fn nanos_of(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // RFC 3339 leaves it to its users what stands between date and time.
    let marks = [bytes[4], bytes[7], bytes[13], bytes[16]];
    if marks != *b"--::" || bytes[10].is_ascii_digit() {
        return None;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days_of_month = *days_in.get(usize::try_from(month - 1).ok()?)?;
    if !(1..=days_of_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &bytes[19..];
    let mut nanos = 0;
    if let Some(after) = rest.strip_prefix(b".") {
        let digits = after.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        nanos = (0..9).fold(0, |n, at| n * 10 + if at < digits { i64::from(after[at] - b'0') } else { 0 });
        rest = &after[digits..];
    }
    let offset_minutes = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|d| d.is_ascii_digit()) => {
            let two = |tens: &u8, ones: &u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
            let (hours, minutes) = (two(h1, h2), two(m1, m2));
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let leaps_before = |year: i64| (year + 3) / 4 - (year + 99) / 100 + (year + 399) / 400;
    let days_before_1970 = 1970 * 365 + leaps_before(1970);
    let day_of_year = days_in[..(month - 1) as usize].iter().sum::<i64>() + day - 1;
    let days = year * 365 + leaps_before(year) + day_of_year - days_before_1970;
    let seconds = days * 86_400 + hour * 3_600 + (minute - offset_minutes) * 60 + second.min(59);
    // The second 60 ends the last minute of a month in UTC, and is told as the last nanosecond before it.
    if second == 60 {
        let after = OffsetDateTime::from_unix_timestamp(seconds + 1).ok()?;
        if (after.day(), after.hour(), after.minute(), after.second()) != (1, 0, 0, 0) {
            return None;
        }
        nanos = 999_999_999;
    }
    i64::try_from(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)).ok()
}
