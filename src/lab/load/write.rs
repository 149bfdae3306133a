//! Events as bytes. No formatting machinery on the way: most of an event is constant, the rest is digits.

use super::Config;
use super::plan::PlannedLike;
use super::random::{About, Stream};
use crate::like::event::MAX_ID_BYTES;

/// The day that all events are of. In the past, so that no event is ahead of its message's publish time.
const DAY: &[u8] = b"2025-01-01T";

/// Tells the ids of double clicks from those of events that are sent for the first time: one bit of the second half.
const DOUBLE_CLICK: u64 = 1;

/// Kinds of poison that [`Writer::poison`] goes through in turn.
const POISONS: u64 = 8;

#[derive(Clone, Debug)]
pub(super) struct Writer<'a> {
    prefix: &'a [u8],
    ids: Stream,
    poison: Stream,
    oversized_bytes: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(config: &'a Config) -> Self {
        Self {
            prefix: config.post_prefix.as_bytes(),
            ids: Stream::new(config.seed, About::EventId),
            poison: Stream::new(config.seed, About::Poison),
            oversized_bytes: config.oversized_bytes,
        }
    }

    /// Like number `number`.
    #[inline]
    pub(super) fn like(&self, like: &PlannedLike, number: u64, out: &mut Vec<u8>) {
        let id = self.ids.at(number);
        self.event(like, [id, self.ids.at(id) & !DOUBLE_CLICK], like.micros, out);
    }

    /// A double click of `like`, sent at `position`: an event of its own, a microsecond later. Between two likes lie
    /// more than that, so it never comes after the next one.
    pub(super) fn double_click(&self, like: &PlannedLike, position: u64, out: &mut Vec<u8>) {
        let id = self.ids.at(position);
        self.event(like, [id, self.ids.at(id) | DOUBLE_CLICK], like.micros + 1, out);
    }

    #[inline]
    fn event(&self, like: &PlannedLike, id: [u64; 2], micros: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"eventId\":\"");
        hex(id, out);
        let kind: &[u8] = if like.liked { b"added" } else { b"removed" };
        out.extend_from_slice(b"\",\"type\":\"like.");
        out.extend_from_slice(kind);
        out.extend_from_slice(b"\",\"postId\":\"");
        out.extend_from_slice(self.prefix);
        decimal(u64::from(like.post), out);
        out.extend_from_slice(b"\",\"userId\":\"user-");
        decimal(like.user, out);
        out.extend_from_slice(b"\",\"occurredAt\":\"");
        time(micros, out);
        out.extend_from_slice(b"\",\"version\":");
        decimal(micros, out);
        out.push(b'}');
    }

    /// A message that is no event under any policy. `position` makes it different from every other.
    pub(super) fn poison(&self, position: u64, out: &mut Vec<u8>) {
        let start: &[u8] = match self.poison.at(position) % POISONS {
            0 => b"not JSON, number ",
            1 => b"{\"eventId\":\"cut-off-",
            2 => b"[\"an array\",",
            3 => b"{\"type\":\"like.added\",\"postId\":\"p\",\"userId\":\"u\",\"version\":1,\"note\":",
            4 => b"{\"eventId\":\"e\",\"type\":\"like.exploded\",\"postId\":\"p\",\"userId\":",
            5 => b"{\"eventId\":\"e\",\"type\":\"like.added\",\"postId\":\"a/b\",\"userId\":",
            6 => b"{\"eventId\":\"\",\"type\":\"like.added\",\"postId\":\"p\",\"userId\":",
            _ => b"{\"eventId\":\"e\",\"type\":\"like.added\",\"postId\":null,\"userId\":",
        };
        out.extend_from_slice(start);
        decimal(position, out);
        match start {
            [b'[', ..] => out.push(b']'),
            // Cut off is what the second kind is; the first is no JSON whatever follows.
            [b'{', ..] if !start.ends_with(b"off-") => {
                out.extend_from_slice(b",\"occurredAt\":\"2025-01-01T00:00:00Z\"}");
            }
            _ => {}
        }
    }

    /// A message of the configured size with a user id that is too long.
    pub(super) fn oversized(&self, position: u64, out: &mut Vec<u8>) {
        let end = out.len() + self.oversized_bytes;
        out.extend_from_slice(b"{\"eventId\":\"oversized-");
        decimal(position, out);
        out.extend_from_slice(
            b"\",\"type\":\"like.added\",\"postId\":\"p\",\"occurredAt\":\"2025-01-01T00:00:00Z\",\"userId\":\"",
        );
        const TAIL: &[u8] = b"\"}";
        // At least MIN_OVERSIZED_BYTES in all, of which under 200 are not the id.
        debug_assert!(end - out.len() > MAX_ID_BYTES + TAIL.len());
        out.resize(end - TAIL.len(), b'x');
        out.extend_from_slice(TAIL);
    }
}

/// 32 digits.
#[inline]
fn hex(id: [u64; 2], out: &mut Vec<u8>) {
    let mut text = [0_u8; 32];
    for (half, digits) in id.into_iter().zip(text.chunks_exact_mut(16)) {
        for (byte, pair) in half.to_be_bytes().into_iter().zip(digits.chunks_exact_mut(2)) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
    }
    out.extend_from_slice(&text);
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// A number without leading zeros.
#[inline]
pub(super) fn decimal(mut n: u64, out: &mut Vec<u8>) {
    // The largest has 20 digits.
    let mut text = [0_u8; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

/// A time of the day in RFC 3339, to the microsecond.
#[inline]
fn time(micros: u64, out: &mut Vec<u8>) {
    let mut text = *b"00:00:00.000000Z";
    let (seconds, fraction) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32);
    let mut two = |at: usize, n: u32| {
        text[at] = b'0' + (n / 10) as u8;
        text[at + 1] = b'0' + (n % 10) as u8;
    };
    two(0, seconds / 3_600);
    two(3, seconds / 60 % 60);
    two(6, seconds % 60);
    two(9, fraction / 10_000);
    two(11, fraction / 100 % 100);
    two(13, fraction % 100);
    out.extend_from_slice(DAY);
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::like::event::{OrderPolicy, decode};
    use std::time::SystemTime;

    fn text(write: impl FnOnce(&Writer<'_>, &mut Vec<u8>)) -> String {
        let (config, mut out) = (Config::default(), Vec::new());
        write(&Writer::new(&config), &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn an_event_says_what_was_planned() {
        let planned = PlannedLike { post: 42, user: 7, liked: false, micros: 86_399_999_998 };
        let event = text(|writer, out| writer.double_click(&planned, 3, out));
        let like = decode(event.as_bytes(), OrderPolicy::Version, SystemTime::now()).expect("an event");
        assert_eq!(
            (like.post(), like.user(), like.liked(), like.order()),
            ("post-42", "user-7", false, 86_399_999_999)
        );
        assert!(event.contains("2025-01-01T23:59:59.999999Z"), "{event}");
        let like = decode(event.as_bytes(), OrderPolicy::OccurredAt, SystemTime::now()).expect("an event");
        assert_eq!(like.order() % 86_400_000_000_000, 86_399_999_999_000);
    }

    #[test]
    fn every_poison_is_poison_under_every_policy_and_no_two_are_alike() {
        let mut reasons = std::collections::BTreeSet::new();
        let mut payloads = std::collections::BTreeSet::new();
        for position in 0..200 {
            let payload = text(|writer, out| writer.poison(position, out));
            assert!(!payload.contains('\n'));
            for policy in [OrderPolicy::OccurredAt, OrderPolicy::Version, OrderPolicy::None] {
                let poison = decode(payload.as_bytes(), policy, SystemTime::now()).expect_err(&payload);
                reasons.insert((poison.field, poison.problem));
            }
            payloads.insert(payload);
        }
        assert_eq!(payloads.len(), 200);
        let fields: std::collections::BTreeSet<_> = reasons.iter().map(|(field, _)| *field).collect();
        assert!(fields.is_superset(&["payload", "eventId", "type", "postId"].into()), "{fields:?}");
    }

    #[test]
    fn an_oversized_message_has_its_size_and_is_poison() {
        let payload = text(|writer, out| writer.oversized(9, out));
        assert_eq!(payload.len(), Config::default().oversized_bytes);
        let poison = decode(payload.as_bytes(), OrderPolicy::None, SystemTime::now()).expect_err("too long");
        assert_eq!(poison.field, "userId");
    }
}
