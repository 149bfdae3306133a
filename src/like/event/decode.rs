//! From bytes to a like.

use super::envelope::{self, Defaults};
use super::wire::{Scalar, Wire};
use super::{FROM_THE_FUTURE, Like, MAX_FUTURE, MAX_ID_BYTES, OrderPolicy, Poison};
use crate::like::framing::Refusal;
use crate::like::inflate::{Coding, Inflate};
use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The most that a compressed payload may hold. An event has some hundred bytes; its ids may have 4,500.
const MAX_INFLATED_BYTES: u64 = 1 << 20;

/// Envelopes inside each other, at most: a CloudEvent in a Pub/Sub message that was pushed in a CloudEvent, compressed.
const MAX_LAYERS: u32 = 4;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads one event that came without attributes; see [`decode_with`].
///
/// # Errors
/// The reason why the payload can never be counted.
pub fn decode(payload: &[u8], policy: OrderPolicy, seen_at: SystemTime) -> Result<Like, Poison> {
    decode_with(payload, &[], policy, seen_at)
}

/// Reads one event, plain or in an envelope that is told by its own marks: a CloudEvent, a wrapped Pub/Sub push, an SNS
/// notification. What a CloudEvent says beside its data (in `attributes` as `ce-id`, `ce-type`, `ce-time`, or around the data)
/// stands for what the data leaves out.
///
/// `seen_at` is when the message was published, or received where that is not known; it bounds how far in the future
/// `occurredAt` may lie, and is never the order itself (a publisher's retry would overtake an unlike).
///
/// # Errors
/// The reason why the payload can never be counted.
pub fn decode_with(
    payload: &[u8],
    attributes: &[(String, String)],
    policy: OrderPolicy,
    seen_at: SystemTime,
) -> Result<Like, Poison> {
    let reader = Reader { policy, seen_at, layers: 0 };
    reader.read(payload, || Defaults::in_attributes(attributes.iter().map(|(name, value)| (&**name, &**value))))
}

struct Reader {
    policy: OrderPolicy,
    seen_at: SystemTime,
    /// Envelopes opened so far.
    layers: u32,
}

impl Reader {
    /// `defaults` stand for what the event leaves out. Asked for only where something is missing, for nearly every event is
    /// plain and has all.
    fn read<'d>(&self, payload: &[u8], defaults: impl FnOnce() -> Defaults<'d>) -> Result<Like, Poison> {
        let bytes = if payload.first() == Some(&b'{') && payload.last() == Some(&b'}') {
            payload
        } else {
            without_padding(payload)
        };
        // Checked as a whole: cheaper than text by text, as the parser would.
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return self.inflate(payload, Poison::new("payload", format!("not UTF-8 ({error})"))),
        };
        let mut wire = match Wire::read(text, self.policy) {
            Ok(wire) => wire,
            Err(error) => {
                return self.inflate(payload, Poison::new("payload", format!("not an event in JSON ({error})")));
            }
        };
        if wire.event_id.is_absent() || wire.kind.is_absent() || wire.order.is_absent() {
            let is_bare = [&wire.event_id, &wire.post_id, &wire.user_id].into_iter().all(Scalar::is_absent);
            if is_bare && let Some(envelope) = envelope::open(text) {
                return self.open(envelope?);
            }
            fill(&mut wire, defaults(), self.policy);
        }
        self.like(&wire)
    }

    fn open(&self, envelope: envelope::Envelope<'_>) -> Result<Like, Poison> {
        if self.layers == MAX_LAYERS {
            return Err(Poison::new("payload", "envelopes inside each other, more than four"));
        }
        // Its publish time bounds nothing: whoever sends an envelope may write any time into it.
        let inside = Self { layers: self.layers + 1, ..*self };
        inside.read(&envelope.inside, || envelope.defaults).map_err(|poison| poison.within(envelope.place))
    }

    /// A payload that is no text may be compressed. If it is not, `otherwise` says what is wrong, or what it is.
    fn inflate(&self, payload: &[u8], otherwise: Poison) -> Result<Like, Poison> {
        let Some(refusal) = Refusal::of(payload) else { return Err(otherwise) };
        let unpacked =
            Coding::of(payload).filter(|_| self.layers < MAX_LAYERS).and_then(|coding| inflated(payload, coding));
        let Some(unpacked) = unpacked else { return Err(Poison::new("payload", refusal.to_string())) };
        let inside = Self { layers: self.layers + 1, ..*self };
        inside.read(&unpacked, Defaults::default).map_err(|poison| poison.within("what was unpacked"))
    }

    fn like(&self, wire: &Wire<'_>) -> Result<Like, Poison> {
        let event_id = match &wire.event_id {
            Scalar::Text(id) => checked_id("eventId", id)?,
            other => return Err(Poison::new("eventId", other.expected("a string"))),
        };
        let liked = match &wire.kind {
            Scalar::Text(t) if t == "like.added" => true,
            Scalar::Text(t) if t == "like.removed" => false,
            Scalar::Text(_) => return Err(Poison::new("type", "neither like.added nor like.removed")),
            other => return Err(Poison::new("type", other.expected("a string"))),
        };
        let (mut post_digits, mut user_digits) = (String::new(), String::new());
        let post = text_or_integer("postId", &wire.post_id, &mut post_digits)?;
        check_post(post)?;
        let user = text_or_integer("userId", &wire.user_id, &mut user_digits)?;
        let order = match self.policy {
            OrderPolicy::OccurredAt => self.occurred_at(&wire.order)?,
            OrderPolicy::Version => version(&wire.order)?,
            OrderPolicy::None if liked => 0,
            OrderPolicy::None => {
                return Err(Poison::new("type", "like.removed needs an order, and the policy is none"));
            }
        };
        Ok(Like::new(post, user, event_id, liked, order))
    }

    fn occurred_at(&self, value: &Scalar<'_>) -> Result<i64, Poison> {
        let text = match value {
            Scalar::Text(text) => text,
            Scalar::Absent | Scalar::Null => return Err(Poison::new("occurredAt", "missing, and it is the order")),
            other => return Err(Poison::new("occurredAt", other.expected("a string"))),
        };
        let time =
            OffsetDateTime::parse(text, &Rfc3339).map_err(|_| Poison::new("occurredAt", "not an RFC 3339 time"))?;
        let order = i64::try_from(time.unix_timestamp_nanos())
            .map_err(|_| Poison::new("occurredAt", "not in the years 1677 to 2262"))?;
        if order > nanos(self.seen_at).saturating_add(MAX_FUTURE.as_nanos() as i64) {
            return Err(Poison::new("occurredAt", FROM_THE_FUTURE));
        }
        Ok(order)
    }
}

/// What a CloudEvent says beside its data, where the data does not.
fn fill<'a>(wire: &mut Wire<'a>, defaults: Defaults<'a>, policy: OrderPolicy) {
    let time = defaults.time.filter(|_| policy == OrderPolicy::OccurredAt);
    let slots = [(&mut wire.event_id, defaults.id), (&mut wire.kind, defaults.kind), (&mut wire.order, time)];
    for (slot, default) in slots {
        if let Some(default) = default.filter(|_| slot.is_absent()) {
            *slot = Scalar::Text(default);
        }
    }
}

fn version(value: &Scalar<'_>) -> Result<i64, Poison> {
    match value {
        Scalar::Integer(version) => Ok(*version),
        // As protobuf's JSON writes integers of 64 bits.
        Scalar::Text(digits) => digits.parse().map_err(|_| {
            Poison::new("version", "must be a 64-bit integer, as a number or in a string, not this string")
        }),
        Scalar::Absent | Scalar::Null => Err(Poison::new("version", "missing, and it is the order")),
        other => Err(Poison::new("version", other.expected("a 64-bit integer"))),
    }
}

/// Without the zeros that an unclean stop leaves, and without a byte order mark.
fn without_padding(mut payload: &[u8]) -> &[u8] {
    let is_padding = |byte: &u8| *byte == 0 || byte.is_ascii_whitespace();
    loop {
        payload = match payload {
            [first, rest @ ..] if is_padding(first) => rest,
            [rest @ .., last] if is_padding(last) => rest,
            _ => match payload.strip_prefix(BYTE_ORDER_MARK) {
                Some(rest) => rest,
                None => return payload,
            },
        }
    }
}

/// All that `payload` holds, if it unpacks and is not too much.
fn inflated(payload: &[u8], coding: Coding) -> Option<Cow<'static, [u8]>> {
    let mut inflate = Inflate::new(coding, MAX_INFLATED_BYTES);
    let mut unpacked = Vec::new();
    inflate.push(payload);
    inflate.finish();
    while let Some(chunk) = inflate.next_chunk().ok()? {
        unpacked.extend_from_slice(chunk);
    }
    Some(unpacked.into())
}

/// Nanoseconds since 1970, saturating.
fn nanos(at: SystemTime) -> i64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n),
    }
}

fn text_or_integer<'a>(field: &'static str, value: &'a Scalar<'_>, digits: &'a mut String) -> Result<&'a str, Poison> {
    match value {
        Scalar::Text(text) => checked_id(field, text),
        Scalar::Integer(number) => {
            *digits = number.to_string();
            Ok(digits)
        }
        Scalar::BigInteger(number) => {
            *digits = number.to_string();
            Ok(digits)
        }
        other => Err(Poison::new(field, other.expected("a string or an integer"))),
    }
}

/// Whether a post can have this id, in any store.
///
/// # Errors
/// The reason why it cannot.
pub fn check_post(post: &str) -> Result<(), Poison> {
    checked_id("postId", post)?;
    let reserved = post.len() >= 4 && post.starts_with("__") && post.ends_with("__");
    if post.bytes().any(|byte| byte == b'/') || post == "." || post == ".." || reserved {
        return Err(Poison::new("postId", "not a legal document id (no '/', not '.', '..' or '__…__')"));
    }
    Ok(())
}

fn checked_id<'a>(field: &'static str, id: &'a str) -> Result<&'a str, Poison> {
    match id.len() {
        0 => Err(Poison::new(field, "empty")),
        1..=MAX_ID_BYTES => Ok(id),
        _ => Err(Poison::new(field, "longer than 1,500 bytes")),
    }
}
