//! A quarantine entry as a row: a head in JSON with its length before it, then the payload as it came.

use super::layout::{Fault, fields, push_text, write_row};
use crate::store::Quarantined;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    reason: Cow<'a, str>,
    attributes: Cow<'a, [(String, String)]>,
    source: Cow<'a, str>,
    message_id: Option<Cow<'a, str>>,
    published_at: Option<Instant>,
    received_at: Instant,
    delivery_attempt: Option<u32>,
}

/// Whole seconds since 1970, negative before it, and nanoseconds on top.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Instant(i64, u32);

impl From<SystemTime> for Instant {
    fn from(at: SystemTime) -> Self {
        match at.duration_since(UNIX_EPOCH) {
            Ok(since) => Self(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                let (whole, part) = (0_i64.saturating_sub_unsigned(before.as_secs()), before.subsec_nanos());
                if part == 0 { Self(whole, 0) } else { Self(whole.saturating_sub(1), 1_000_000_000 - part) }
            }
        }
    }
}

impl From<Instant> for SystemTime {
    fn from(Instant(seconds, nanos): Instant) -> Self {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        base.and_then(|base| base.checked_add(Duration::from_nanos(u64::from(nanos)))).unwrap_or(UNIX_EPOCH)
    }
}

/// What all keys of `consumer` begin with.
pub(super) fn prefix(consumer: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(consumer.len() + 40);
    push_text(&mut key, consumer);
    key
}

/// The key of an entry of `consumer`.
pub(super) fn key(consumer: &str, id: &str) -> Vec<u8> {
    let mut key = prefix(consumer);
    key.extend_from_slice(id.as_bytes());
    key
}

/// The row that keeps `entry` for `consumer`: its key and its value.
pub(super) fn row(consumer: &str, entry: &Quarantined) -> Result<(Vec<u8>, Vec<u8>), serde_json::Error> {
    let head = serde_json::to_vec(&Head {
        reason: entry.reason.as_str().into(),
        attributes: entry.attributes.as_slice().into(),
        source: entry.source.as_str().into(),
        message_id: entry.message_id.as_deref().map(Cow::from),
        published_at: entry.published_at.map(Instant::from),
        received_at: entry.received_at.into(),
        delivery_attempt: entry.delivery_attempt,
    })?;
    let length = (head.len() as u64).to_le_bytes();
    let value = write_row(&[&length, head.as_slice(), &entry.data]);
    Ok((key(consumer, &entry.id), value))
}

/// The entry that a row keeps.
pub(super) fn read(id: &[u8], row: &[u8]) -> Result<Quarantined, Fault> {
    let damaged = || Fault::Unreadable("an entry of the quarantine");
    let (length, rest) = fields(row, "an entry of the quarantine")?.split_first_chunk().ok_or_else(damaged)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| damaged())?;
    let (head, data) = rest.split_at_checked(length).ok_or_else(damaged)?;
    let head: Head<'_> = serde_json::from_slice(head).map_err(|_| damaged())?;
    Ok(Quarantined {
        id: String::from_utf8(id.to_vec()).map_err(|_| damaged())?,
        reason: head.reason.into_owned(),
        data: Bytes::copy_from_slice(data),
        attributes: head.attributes.into_owned(),
        source: head.source.into_owned(),
        message_id: head.message_id.map(Cow::into_owned),
        published_at: head.published_at.map(SystemTime::from),
        received_at: head.received_at.into(),
        delivery_attempt: head.delivery_attempt,
    })
}
