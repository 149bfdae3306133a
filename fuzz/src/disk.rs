//! What the embedded store finds on its disk. Checksums keep most damage away; what comes through is either read as it was
//! written, or called damaged.

#[allow(dead_code, reason = "the store uses all of it")]
#[path = "../../src/store/embedded/layout.rs"]
mod layout;
#[allow(dead_code, reason = "the store uses all of it")]
#[path = "../../src/store/embedded/poison.rs"]
mod poison;
#[allow(dead_code, reason = "the store uses all of it")]
#[path = "../../src/store/embedded/table.rs"]
mod table;

use super::dice::Dice;
use hotcount::event::{Like, MAX_ID_BYTES};
use layout::{COUNTER_BYTES, LOG_HEAD, RECORD_HEAD, Records};
use std::collections::HashMap;
use table::{KeyHasher, Table};

/// The same bytes as everything that they could be.
pub fn disk(data: &[u8]) {
    keys(data);
    records(data);
    log(data);
    poison(data);
    table(data);
}

/// A key that names a post is the key of that post and no other.
fn keys(data: &[u8]) {
    if let Ok(length) = layout::prefix_len(data) {
        let (prefix, rest) = data.split_at(length);
        if let Ok(post) = layout::post_of(prefix) {
            assert_eq!(layout::post_prefix(&post), prefix, "{post:?}");
            assert!(rest.first() == Some(&0xFF) || data < layout::after_post(prefix.to_vec()).as_slice());
            if let Ok(user) = std::str::from_utf8(rest) {
                assert_eq!(layout::member_key(&post, user), data);
            }
        }
    }
    if let Ok((generation, number)) = layout::log_position(data) {
        assert_eq!(layout::log_key(generation, number), data);
    }
    let _ = layout::shard_of(data);
    if let Ok(number) = layout::counter(data) {
        assert_eq!(number.to_le_bytes(), data);
    }
}

/// Records lie one behind the other, without a gap, up to the first that is damaged.
fn records(data: &[u8]) {
    let mut at = 0;
    for record in Records::new(data) {
        let Ok(record) = record else { return };
        assert_eq!(record.bytes, &data[at..at + record.bytes.len()]);
        assert_eq!(record.bytes.len(), RECORD_HEAD + record.key.len() + record.value.len());
        at += record.bytes.len();
        member(record.key, record.value);
    }
    assert_eq!(at, data.len());
}

/// A membership that is read is what the same like would be written as.
fn member(key: &[u8], value: &[u8]) {
    let Ok(membership) = layout::membership(value) else { return };
    assert_eq!(membership.liked, layout::is_liked(value));
    let post = layout::prefix_len(key).and_then(|length| Ok((length, layout::post_of(&key[..length])?)));
    let Ok((length, post)) = post else { return };
    let Ok(user) = std::str::from_utf8(&key[length..]) else { return };
    if post.len() > MAX_ID_BYTES || user.len() > MAX_ID_BYTES || membership.event_id.len() > MAX_ID_BYTES {
        return;
    }
    let like = Like::new(&post, user, membership.event_id, membership.liked, membership.order);
    let mut again = Vec::new();
    layout::push_member_record(&mut again, &layout::post_prefix(&post), &like);
    let again = layout::record(&again).expect("a record");
    assert_eq!((again.replaced, again.key), (false, key));
    assert_eq!(layout::membership(again.value).ok(), Some(membership));
}

/// The two parts of a log entry are all of it.
fn log(data: &[u8]) {
    let Ok(entry) = layout::log_entry(data) else { return };
    let bytes = |records: Records<'_>| -> Option<usize> {
        records.map(|record| record.ok().map(|record| record.bytes.len())).sum()
    };
    if let (Some(members), Some(counters)) = (bytes(entry.members), bytes(entry.counters)) {
        assert_eq!(LOG_HEAD + members + counters, data.len());
    }
}

/// A quarantine entry that is read is written with the same meaning.
fn poison(data: &[u8]) {
    let Ok(entry) = poison::read(b"id", data) else { return };
    let (key, row) = poison::row("consumer", &entry).expect("it has an equal in JSON");
    assert_eq!(key, poison::key("consumer", "id"));
    let again = poison::read(b"id", &row).expect("what was written is read");
    assert_eq!(format!("{again:?}"), format!("{entry:?}"));
}

/// The hash table of a generation, beside one of the standard library, on any sequence of calls.
fn table(data: &[u8]) {
    let hasher = KeyHasher::default();
    let (mut members, mut counters) = (Table::default(), Table::default());
    let mut expected: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut sums: HashMap<Vec<u8>, i64> = HashMap::new();
    let mut dice = Dice(data);
    while !dice.is_empty() {
        // A few keys meet again, and a few hashes collide.
        let (call, key) = (dice.byte(), vec![dice.byte() % 32; 1 + dice.below(3)]);
        let hash = if call & 4 == 0 { hasher.hash(&key) } else { 7 };
        let key = if call & 4 == 0 { key } else { [&b"collides "[..], &key].concat() };
        if call & 3 == 0 {
            let delta = dice.int();
            counters.add(hash, &key, delta);
            let sum = sums.entry(key).or_default();
            *sum = sum.wrapping_add(delta);
        } else {
            let value = dice.some();
            let mut record = (key.len() as u16).to_le_bytes().to_vec();
            record.extend_from_slice(&(value.len() as u16).to_le_bytes());
            record.extend_from_slice(&key);
            record.extend_from_slice(value);
            members.put(hash, &record);
            assert_eq!(members.get(hash, &key), Some(value));
            expected.insert(key, value.to_vec());
        }
    }
    let held: Vec<_> = members.records().map(|record| (record.key.to_vec(), record.value.to_vec())).collect();
    assert_eq!(held.len(), expected.len());
    assert_eq!(held.into_iter().collect::<HashMap<_, _>>(), expected);
    for record in counters.records() {
        assert_eq!(record.value.len(), COUNTER_BYTES);
        assert_eq!(layout::counter(record.value).ok(), sums.remove(record.key));
    }
    assert!(sums.is_empty());
    members.clear();
    assert_eq!(members.records().count(), 0);
}
