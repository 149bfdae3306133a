//! How rows look as bytes: keys that sort as the texts in them do, and values that say which version wrote them.
//!
//! A value begins with its version. One that is higher than this hotcount knows was written by a newer one; what follows
//! the fields of a known version was added by a newer one too, is ignored when it is read, and kept when the row is
//! written again. All integers in values are little endian.

use crate::like::membership::Membership;
use crate::store::Settings;
use serde::{Deserialize, Serialize};

/// The version that values are written with.
pub(super) const ROW_VERSION: u8 = 1;

/// Begins the key of a row, and says what it is.
pub(super) mod kind {
    /// Up to which frame of the log the tables hold everything.
    pub(crate) const POSITION: u8 = b'0';
    /// The outcome of a batch, by consumer and batch key.
    pub(crate) const BATCH: u8 = b'b';
    /// A counter, by post and shard.
    pub(crate) const COUNTER: u8 = b'c';
    /// A batch key, by the time at which it may go.
    pub(crate) const EXPIRY: u8 = b'e';
    /// A membership, by post and user.
    pub(crate) const MEMBER: u8 = b'm';
    /// How often a post was repaired: the version of its repair shard.
    pub(crate) const REPAIRS: u8 = b'r';
    /// What all workers of one consumer agree on, by consumer.
    pub(crate) const SETTINGS: u8 = b's';
}

/// Ends a text inside a key. A NUL inside the text is written as NUL, 0xFF; what follows the end is never 0xFF, for a user
/// is UTF-8 and a shard has its tag. So no post is a prefix of another, and keys sort by post, then user.
const END: u8 = 0;
const ESCAPED: u8 = 0xFF;

/// Stands before the shard number in a counter's key.
const SHARD_TAG: u8 = 1;

/// Why a row cannot be used. It concerns what the row is about, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// It is not what any version writes.
    #[error("{0} is not what hotcount writes")]
    Unreadable(&'static str),
    /// A newer hotcount wrote it.
    #[error("it was written by a newer hotcount (version {0})")]
    Newer(u8),
}

/// Appends what all keys of a text begin with.
pub(super) fn push_text(out: &mut Vec<u8>, text: &str) {
    if memchr::memchr(END, text.as_bytes()).is_none() {
        out.extend_from_slice(text.as_bytes());
    } else {
        for &byte in text.as_bytes() {
            out.push(byte);
            if byte == END {
                out.push(ESCAPED);
            }
        }
    }
    out.push(END);
}

/// What all keys of this kind and text begin with.
pub(super) fn prefix(kind: u8, text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() + 8);
    key.push(kind);
    push_text(&mut key, text);
    key
}

/// The first key after all keys that begin with `prefix`, which is a text's.
pub(super) fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    prefix.push(ESCAPED);
    prefix
}

/// The first key after all keys of a kind.
pub(super) fn after_kind(kind: u8) -> Vec<u8> {
    vec![kind + 1]
}

/// The key of a membership.
pub(super) fn member_key(post: &str, user: &str) -> Vec<u8> {
    let mut key = prefix(kind::MEMBER, post);
    key.extend_from_slice(user.as_bytes());
    key
}

/// The key of a counter.
pub(super) fn counter_key(post: &str, shard: u16) -> Vec<u8> {
    let mut key = prefix(kind::COUNTER, post);
    key.push(SHARD_TAG);
    key.extend_from_slice(&shard.to_be_bytes());
    key
}

/// The shard number in a counter's key.
pub(super) fn shard_of(key: &[u8]) -> Result<u16, Fault> {
    let tail = key.last_chunk::<2>().ok_or(Fault::Unreadable("the key of a counter"))?;
    Ok(u16::from_be_bytes(*tail))
}

/// The key of a batch's outcome.
pub(super) fn batch_key(consumer: &str, key: &[u8; 16]) -> Vec<u8> {
    let mut row = prefix(kind::BATCH, consumer);
    row.extend_from_slice(key);
    row
}

/// The key under which a batch's key expires: seconds since 1970, then the key of its outcome.
pub(super) fn expiry_key(expires_s: u64, batch_key: &[u8]) -> Vec<u8> {
    let mut key = vec![kind::EXPIRY];
    key.extend_from_slice(&expires_s.to_be_bytes());
    key.extend_from_slice(batch_key);
    key
}

/// The time and the key of the outcome in an expiry's key.
pub(super) fn expiry_of(key: &[u8]) -> Result<(u64, &[u8]), Fault> {
    let (expires_s, batch_key) =
        key.get(1..).and_then(<[u8]>::split_first_chunk).ok_or(Fault::Unreadable("the key of an expiry"))?;
    Ok((u64::from_be_bytes(*expires_s), batch_key))
}

/// How many bytes of a key are its prefix: kind, text, and the text's end.
pub(super) fn prefix_len(key: &[u8]) -> Result<usize, Fault> {
    memchr::memchr_iter(END, key)
        .find(|&at| at > 0 && key.get(at + 1) != Some(&ESCAPED))
        .map(|at| at + 1)
        .ok_or(Fault::Unreadable("a key without an end of its text"))
}

/// The text that a prefix stands for.
pub(super) fn text_of(prefix: &[u8]) -> Result<String, Fault> {
    let escaped = prefix.get(1..).and_then(|text| text.strip_suffix(&[END]));
    let escaped = escaped.ok_or(Fault::Unreadable("the text in a key"))?;
    let mut text = Vec::with_capacity(escaped.len());
    let mut after_nul = false;
    for &byte in escaped {
        if !(after_nul && byte == ESCAPED) {
            text.push(byte);
        }
        after_nul = byte == END;
    }
    String::from_utf8(text).map_err(|_| Fault::Unreadable("the text in a key"))
}

/// The fields of a value of a version that is known.
pub(super) fn fields<'a>(value: &'a [u8], what: &'static str) -> Result<&'a [u8], Fault> {
    match value.split_first() {
        Some((&ROW_VERSION, fields)) => Ok(fields),
        Some((&version, _)) if version > ROW_VERSION => Err(Fault::Newer(version)),
        _ => Err(Fault::Unreadable(what)),
    }
}

/// Writes a membership: liked (1 byte), order (8), length of the event id (2), event id, and what a newer version added.
pub(super) fn write_membership(membership: Membership<'_>, added: &[u8]) -> Vec<u8> {
    let event_id = membership.event_id.as_bytes();
    let mut value = Vec::with_capacity(12 + event_id.len() + added.len());
    value.extend_from_slice(&[ROW_VERSION, u8::from(membership.liked)]);
    value.extend_from_slice(&membership.order.to_le_bytes());
    // An event id has 1,500 bytes at most.
    value.extend_from_slice(&(event_id.len() as u16).to_le_bytes());
    value.extend_from_slice(event_id);
    value.extend_from_slice(added);
    value
}

/// The membership that a value says, and what a newer version added to it.
pub(super) fn read_membership(value: &[u8]) -> Result<(Membership<'_>, &[u8]), Fault> {
    let unreadable = || Fault::Unreadable("a membership");
    let (head, rest) = fields(value, "a membership")?.split_first_chunk::<11>().ok_or_else(unreadable)?;
    let [liked @ 0..=1, order @ .., low, high] = *head else { return Err(unreadable()) };
    let (event_id, added) =
        rest.split_at_checked(usize::from(u16::from_le_bytes([low, high]))).ok_or_else(unreadable)?;
    let event_id = std::str::from_utf8(event_id).map_err(|_| unreadable())?;
    Ok((Membership { liked: liked == 1, order: i64::from_le_bytes(order), event_id }, added))
}

/// Writes numbers, each 8 bytes, and what a newer version added.
pub(super) fn write_numbers(numbers: &[i64], added: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(1 + 8 * numbers.len() + added.len());
    value.push(ROW_VERSION);
    numbers.iter().for_each(|number| value.extend_from_slice(&number.to_le_bytes()));
    value.extend_from_slice(added);
    value
}

/// So many numbers of a value, and what a newer version added.
pub(super) fn read_numbers<'a, const N: usize>(
    value: &'a [u8],
    what: &'static str,
) -> Result<([i64; N], &'a [u8]), Fault> {
    let (numbers, added) = fields(value, what)?.split_at_checked(8 * N).ok_or(Fault::Unreadable(what))?;
    let mut read = [0; N];
    for (number, bytes) in read.iter_mut().zip(numbers.chunks_exact(8)) {
        *number = bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
    }
    Ok((read, added))
}

/// Writes a value from its parts, which say themselves how long they are.
pub(super) fn write_row(parts: &[&[u8]]) -> Vec<u8> {
    let mut value = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    value.push(ROW_VERSION);
    parts.iter().for_each(|part| value.extend_from_slice(part));
    value
}

/// Settings as they are kept, in JSON.
#[derive(Serialize, Deserialize)]
struct KeptSettings {
    order: String,
    identity: String,
    layout: i64,
}

/// Writes what all workers of a consumer agree on.
pub(super) fn write_settings(settings: &Settings) -> Vec<u8> {
    let Settings { order, identity, layout } = settings.clone();
    // Two texts and a number always have JSON.
    write_row(&[&serde_json::to_vec(&KeptSettings { order, identity, layout }).unwrap_or_default()])
}

/// What all workers of a consumer agree on.
pub(super) fn read_settings(value: &[u8]) -> Result<Settings, Fault> {
    let unreadable = |_| Fault::Unreadable("the settings");
    let kept: KeptSettings = serde_json::from_slice(fields(value, "the settings")?).map_err(unreadable)?;
    Ok(Settings { order: kept.order, identity: kept.identity, layout: kept.layout })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_id() -> impl Strategy<Value = String> {
        prop_oneof!["[\\x00ab]{1,4}", "\\PC{1,6}"]
    }

    proptest! {
        #[test]
        fn keys_sort_as_posts_and_users_do(
            a in (any_id(), any_id()),
            b in (any_id(), any_id()),
        ) {
            let keys = (member_key(&a.0, &a.1), member_key(&b.0, &b.1));
            prop_assert_eq!(keys.0.cmp(&keys.1), (a.0.as_bytes(), a.1.as_bytes()).cmp(&(b.0.as_bytes(), b.1.as_bytes())));
        }

        #[test]
        fn a_key_gives_its_post_back(post in any_id(), user in any_id(), shard in any::<u16>()) {
            let key = member_key(&post, &user);
            let len = prefix_len(&key).unwrap();
            prop_assert_eq!(text_of(&key[..len]).unwrap(), post.clone());
            prop_assert_eq!(&key[len..], user.as_bytes());
            prop_assert!(key < after_prefix(prefix(kind::MEMBER, &post)));
            prop_assert!(key < after_kind(kind::MEMBER));
            let counter = counter_key(&post, shard);
            let len = prefix_len(&counter).unwrap();
            prop_assert_eq!(text_of(&counter[..len]).unwrap(), post.clone());
            prop_assert_eq!(shard_of(&counter).unwrap(), shard);
            prop_assert!(counter < after_prefix(prefix(kind::COUNTER, &post)));
        }

        #[test]
        fn a_value_gives_its_fields_back_and_what_a_newer_version_added(
            liked in any::<bool>(), order in any::<i64>(), event in any_id(), added in any::<Vec<u8>>(),
        ) {
            let membership = Membership { liked, order, event_id: &event };
            let value = write_membership(membership, &added);
            prop_assert_eq!(read_membership(&value), Ok((membership, added.as_slice())));
            let value = write_numbers(&[order, 1], &added);
            prop_assert_eq!(read_numbers::<2>(&value, "two"), Ok(([order, 1], added.as_slice())));
        }
    }

    #[test]
    fn a_newer_version_is_told_from_what_nobody_wrote() {
        assert_eq!(read_membership(&[2, 0]), Err(Fault::Newer(2)));
        let unreadable = Err(Fault::Unreadable("a membership"));
        for value in [&[][..], &[0, 1, 2], &[1], &[1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(read_membership(value), unreadable, "{value:?}");
        }
    }
}
