//! How keys, values and log entries look as bytes.
//!
//! Everything that sorts, sorts as the text's bytes do, so a batch, a generation and a table are all in one order.

use crate::event::Like;
use crate::membership::Membership;

/// The version of this layout. A store with a higher one is refused: it was written by a newer hotcount.
pub(super) const FORMAT: u32 = 1;

/// The key of the one row of the counters that is no counter: the newest generation that they hold. No post is empty,
/// so no counter has this key, and it sorts before all of them.
pub(super) const MERGED_KEY: &[u8] = &[END];

/// Ends the post inside a key. A NUL inside a post is written as NUL, 0xFF; what follows the end is never 0xFF, for a
/// user is UTF-8 and a shard has its tag. So no post is a prefix of another, and keys sort by post, then user.
const END: u8 = 0;
const ESCAPED: u8 = 0xFF;

/// Stands before the shard number in a counter's key.
const SHARD_TAG: u8 = 1;

/// Bytes before the key of a record: the length of the key and of the value, 16 bits each, little endian.
pub(super) const RECORD_HEAD: usize = 4;

/// Marks a record that a newer one has replaced; keys are far shorter than this.
pub(super) const REPLACED: u16 = 0x8000;

/// Bytes of a counter's value.
pub(super) const COUNTER_BYTES: usize = 8;

/// What stands on disk or in memory is not what this layout writes.
#[derive(Debug, thiserror::Error)]
#[error("{0} in the store is damaged")]
pub(super) struct Damaged(pub(super) &'static str);

/// Appends what all keys of a post begin with.
pub(super) fn push_post(out: &mut Vec<u8>, post: &str) {
    if memchr::memchr(END, post.as_bytes()).is_none() {
        out.extend_from_slice(post.as_bytes());
    } else {
        for &byte in post.as_bytes() {
            out.push(byte);
            if byte == END {
                out.push(ESCAPED);
            }
        }
    }
    out.push(END);
}

/// What all keys of a post begin with.
pub(super) fn post_prefix(post: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(post.len() + 4);
    push_post(&mut key, post);
    key
}

/// The first key after all keys that begin with `prefix`, which is a post's.
pub(super) fn after_post(mut prefix: Vec<u8>) -> Vec<u8> {
    prefix.push(ESCAPED);
    prefix
}

/// The key of a membership.
pub(super) fn member_key(post: &str, user: &str) -> Vec<u8> {
    let mut key = post_prefix(post);
    key.extend_from_slice(user.as_bytes());
    key
}

/// Appends the rest of a counter's key to a post's prefix.
pub(super) fn push_shard(key: &mut Vec<u8>, shard: u16) {
    key.push(SHARD_TAG);
    key.extend_from_slice(&shard.to_be_bytes());
}

/// The shard number in a counter's key.
pub(super) fn shard_of(key: &[u8]) -> Result<u16, Damaged> {
    let tail = key.last_chunk::<2>().ok_or(Damaged("the key of a counter"))?;
    Ok(u16::from_be_bytes(*tail))
}

/// How many bytes of a key are its post's prefix.
pub(super) fn prefix_len(key: &[u8]) -> Result<usize, Damaged> {
    memchr::memchr_iter(END, key)
        .find(|&at| key.get(at + 1) != Some(&ESCAPED))
        .map(|at| at + 1)
        .ok_or(Damaged("a key without an end of its post"))
}

/// The post that a prefix stands for.
pub(super) fn post_of(prefix: &[u8]) -> Result<String, Damaged> {
    let escaped = prefix.strip_suffix(&[END]).ok_or(Damaged("the post in a key"))?;
    let mut post = Vec::with_capacity(escaped.len());
    let mut after_nul = false;
    for &byte in escaped {
        if !(after_nul && byte == ESCAPED) {
            post.push(byte);
        }
        after_nul = byte == END;
    }
    String::from_utf8(post).map_err(|_| Damaged("the post in a key"))
}

/// Appends a membership as one record; answers where in `out` it begins.
pub(super) fn push_member_record(out: &mut Vec<u8>, post_prefix: &[u8], like: &Like) -> usize {
    let at = out.len();
    let key_len = post_prefix.len() + like.user().len();
    let value_len = 9 + like.event_id().len();
    // A like's three ids are at most 1,500 bytes each, 3,001 for a post of nothing but NULs: all lengths fit in 15 bits.
    out.extend_from_slice(&(key_len as u16).to_le_bytes());
    out.extend_from_slice(&(value_len as u16).to_le_bytes());
    out.extend_from_slice(post_prefix);
    out.extend_from_slice(like.user().as_bytes());
    out.push(u8::from(like.liked()));
    out.extend_from_slice(&like.order().to_le_bytes());
    out.extend_from_slice(like.event_id().as_bytes());
    at
}

/// The membership that a stored value says.
pub(super) fn membership(value: &[u8]) -> Result<Membership<'_>, Damaged> {
    let (head, event_id) = value.split_first_chunk::<9>().ok_or(Damaged("a membership"))?;
    let [liked, order @ ..] = *head;
    Ok(Membership {
        liked: liked != 0,
        order: i64::from_le_bytes(order),
        event_id: std::str::from_utf8(event_id).map_err(|_| Damaged("an event id"))?,
    })
}

/// Whether a stored membership counts.
pub(super) fn is_liked(value: &[u8]) -> bool {
    value.first().is_some_and(|&liked| liked != 0)
}

/// A counter's value, or a generation's number.
pub(super) fn counter(value: &[u8]) -> Result<i64, Damaged> {
    Ok(i64::from_le_bytes(value.try_into().map_err(|_| Damaged("a counter"))?))
}

/// The records in `bytes`, one after the other: where each begins, whether it is replaced, its key and its value.
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

/// One record as it lies in memory.
pub(super) struct Record<'a> {
    pub(super) replaced: bool,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// All of it, the lengths included.
    pub(super) bytes: &'a [u8],
}

/// The record at the front of `bytes`.
pub(super) fn record(bytes: &[u8]) -> Option<Record<'_>> {
    let (&[k0, k1, v0, v1], rest) = bytes.split_first_chunk::<RECORD_HEAD>()?;
    let key_len = u16::from_le_bytes([k0, k1]);
    let (replaced, key_len) = (key_len & REPLACED != 0, usize::from(key_len & !REPLACED));
    let value_len = usize::from(u16::from_le_bytes([v0, v1]));
    let (key, value) = rest.get(..key_len + value_len)?.split_at(key_len);
    Some(Record { replaced, key, value, bytes: &bytes[..RECORD_HEAD + key_len + value_len] })
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        match record(rest) {
            Some(record) => {
                self.at += record.bytes.len();
                Some(Ok(record))
            }
            None => {
                self.at = self.bytes.len();
                Some(Err(Damaged("a record of the log")))
            }
        }
    }
}

/// One batch in the log: the memberships that it wrote and what it added to counters, both as records.
///
/// `[bytes of memberships: u32 LE][memberships][counters]`
pub(super) struct LogEntry<'a> {
    pub(super) members: Records<'a>,
    pub(super) counters: Records<'a>,
}

/// Bytes before the memberships of a log entry.
pub(super) const LOG_HEAD: usize = 4;

/// Reads a log entry.
pub(super) fn log_entry(bytes: &[u8]) -> Result<LogEntry<'_>, Damaged> {
    let (head, rest) = bytes.split_first_chunk::<LOG_HEAD>().ok_or(Damaged("the log"))?;
    let members = usize::try_from(u32::from_le_bytes(*head)).map_err(|_| Damaged("the log"))?;
    let (members, counters) = rest.split_at_checked(members).ok_or(Damaged("the log"))?;
    Ok(LogEntry { members: Records::new(members), counters: Records::new(counters) })
}

/// The key of a log entry: its generation, then its number there.
pub(super) fn log_key(generation: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&generation.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The generation and number in a log entry's key.
pub(super) fn log_position(key: &[u8]) -> Result<(u64, u64), Damaged> {
    let key: &[u8; 16] = key.try_into().map_err(|_| Damaged("the key of a log entry"))?;
    let number = u128::from_be_bytes(*key);
    // The halves of 128 bits.
    Ok(((number >> 64) as u64, number as u64))
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
            prop_assert_eq!(post_of(&key[..len]).unwrap(), post.clone());
            prop_assert_eq!(&key[len..], user.as_bytes());
            prop_assert!(key < after_post(post_prefix(&post)));
            let mut counter = post_prefix(&post);
            push_shard(&mut counter, shard);
            let len = prefix_len(&counter).unwrap();
            prop_assert_eq!(post_of(&counter[..len]).unwrap(), post.clone());
            prop_assert_eq!(shard_of(&counter).unwrap(), shard);
            prop_assert!(counter < after_post(post_prefix(&post)));
        }
    }

    #[test]
    fn a_record_gives_its_membership_back() {
        let like = Like::new("post", "user", "event", true, -7);
        let mut bytes = Vec::new();
        push_member_record(&mut bytes, &post_prefix("post"), &like);
        let record = record(&bytes).expect("a record");
        assert_eq!(record.bytes.len(), bytes.len());
        assert_eq!(record.key, member_key("post", "user"));
        assert_eq!(membership(record.value).expect("a membership"), like.membership());
        assert!(Records::new(&bytes[..bytes.len() - 1]).next().expect("one").is_err());
    }
}
