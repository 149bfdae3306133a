//! Reading at one time: the tables on disk as one snapshot shows them, and the generations in memory over them.

use super::StorageError;
use super::engine::{Engine, Generation};
use super::layout::{
    MERGED_KEY, Records, after_post, counter, is_liked, member_key, membership, post_of, post_prefix, prefix_len,
    push_shard, shard_of,
};
use super::poison;
use super::table::Table;
use crate::event::Like;
use crate::store::{Depth, Examined, Listing, PageSize, QuarantinePage, Quarantined, REPAIR_SHARD, Tally};
use fjall::{Keyspace, Readable, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// A snapshot of the tables and the sealed generation, taken at one time.
struct View {
    snapshot: Snapshot,
    sealed: Option<Arc<Generation>>,
}

/// Takes a view. `active` runs under the lock that the writer needs to publish a group, so it only looks at memory.
fn view<T>(engine: &Engine, active: impl FnOnce(&Generation) -> T) -> (View, T) {
    let tables = engine.tables();
    (View { snapshot: engine.db.snapshot(), sealed: tables.sealed.clone() }, active(&tables.active))
}

impl View {
    /// The sealed generation, unless the counters on disk hold it already.
    fn sealed_counters(&self, engine: &Engine) -> Result<Option<&Generation>, StorageError> {
        let merged = match self.snapshot.get(&engine.counters, MERGED_KEY)? {
            Some(value) => counter(&value)?,
            None => 0,
        };
        Ok(self.sealed.as_deref().filter(|sealed| i64::try_from(sealed.number).is_ok_and(|number| number > merged)))
    }
}

/// See [`crate::store::Counts::tally`].
pub(super) fn tally(engine: &Engine, post: &str, depth: Depth) -> Result<Tally, StorageError> {
    Ok(counts(engine, &post_prefix(post), depth)?.0)
}

/// See [`crate::store::Repair::examine`].
pub(super) fn examine(engine: &Engine, post: &str) -> Result<Examined, StorageError> {
    let prefix = post_prefix(post);
    // Before the counts: a repair in between leaves an old version here, which is refused, never a new one beside old
    // counts, which would repair twice.
    let version = version(engine, &prefix)?;
    let (tally, repaired) = counts(engine, &prefix, Depth::ShardsAndMembers)?;
    Ok(Examined { tally, repaired, version })
}

/// How often the post was repaired, as the port's version.
pub(super) fn version(engine: &Engine, prefix: &[u8]) -> Result<Option<String>, StorageError> {
    Ok(engine.repairs.get(prefix)?.map(|value| counter(&value)).transpose()?.map(|repairs| repairs.to_string()))
}

/// The tally, and what the repair shard holds.
fn counts(engine: &Engine, prefix: &[u8], depth: Depth) -> Result<(Tally, i64), StorageError> {
    let deep = depth == Depth::ShardsAndMembers;
    let (view, (deltas, newest)) = view(engine, |active| {
        let members = if deep { active.members.copy_of(of_post(prefix)) } else { Vec::new() };
        (counters_of(engine, active, prefix), members)
    });
    let mut counts: BTreeMap<u16, i64> = BTreeMap::new();
    for row in view.snapshot.range(&engine.counters, prefix.to_vec()..after_post(prefix.to_vec())) {
        let (key, value) = row.into_inner()?;
        if key.as_ref() != MERGED_KEY {
            counts.insert(shard_of(&key)?, counter(&value)?);
        }
    }
    let sealed = view.sealed_counters(engine)?.map(|sealed| counters_of(engine, sealed, prefix));
    for (shard, delta) in sealed.into_iter().flatten().chain(deltas) {
        *counts.entry(shard).or_default() += delta;
    }
    let mut tally = Tally { count: counts.values().sum(), shards: counts.len() as u64, members: None };
    if deep {
        tally.members = Some(members(engine, &view, prefix, &newest)?);
    }
    Ok((tally, counts.get(&REPAIR_SHARD).copied().unwrap_or_default()))
}

/// The post's counters in a generation: one lookup for each shard number that occurs there at all.
fn counters_of(engine: &Engine, generation: &Generation, prefix: &[u8]) -> Vec<(u16, i64)> {
    let mut key = prefix.to_vec();
    let of_shard = |&shard: &u16| {
        key.truncate(prefix.len());
        push_shard(&mut key, shard);
        let value = generation.counters.get(engine.hasher.hash(&key), &key)?;
        // Memory holds only counters of eight bytes.
        Some((shard, value.try_into().map_or(0, i64::from_le_bytes)))
    };
    generation.shards.iter().filter_map(of_shard).collect()
}

/// How many members like the post. What a newer place says about a member hides what the older ones do: `newest`, which
/// are records of the active generation, then the sealed one, then the disk.
fn members(engine: &Engine, view: &View, prefix: &[u8], newest: &[u8]) -> Result<u64, StorageError> {
    let mut active = Table::default();
    for record in Records::new(newest) {
        let record = record?;
        active.put(engine.hasher.hash(record.key), record.bytes);
    }
    let mut liked = active.records().filter(|record| is_liked(record.value)).count() as u64;
    let sealed = view.sealed.as_ref().map(|sealed| &sealed.members);
    let of_post = of_post(prefix);
    for record in sealed.iter().flat_map(|sealed| sealed.records()).filter(|record| of_post(record.key)) {
        let hidden = || active.get(engine.hasher.hash(record.key), record.key).is_some();
        liked += u64::from(is_liked(record.value) && !hidden());
    }
    for row in view.snapshot.range(&engine.members, prefix.to_vec()..after_post(prefix.to_vec())) {
        let (key, value) = row.into_inner()?;
        let hash = engine.hasher.hash(&key);
        let hidden = || active.get(hash, &key).is_some() || sealed.is_some_and(|s| s.get(hash, &key).is_some());
        liked += u64::from(is_liked(&value) && !hidden());
    }
    Ok(liked)
}

/// Whether a key is of the post with this prefix. What follows it is 0xFF where it is no end but a NUL of a longer post.
fn of_post(prefix: &[u8]) -> impl Fn(&[u8]) -> bool {
    |key| key.strip_prefix(prefix).is_some_and(|user| user.first() != Some(&0xFF))
}

/// See [`crate::store::Counts::posts`].
pub(super) fn posts(
    engine: &Engine,
    listing: Listing,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, StorageError> {
    let keyspace = match listing {
        Listing::Shards => &engine.counters,
        Listing::Members => &engine.members,
    };
    // The first key that may belong to a later post.
    let start = after.map_or_else(Vec::new, |after| after_post(post_prefix(after)));
    let in_memory = |generation: &Generation| {
        let table = match listing {
            Listing::Shards => &generation.counters,
            Listing::Members => &generation.members,
        };
        first_prefixes(table, &start, limit)
    };
    let (view, active) = view(engine, in_memory);
    let mut found = active?;
    if let Some(sealed) = &view.sealed {
        found.extend(in_memory(sealed)?);
    }
    found.extend(first_prefixes_on_disk(&view.snapshot, keyspace, start.clone(), limit)?);
    found.iter().take(limit).map(|prefix| Ok(post_of(prefix)?)).collect()
}

/// The first `limit` prefixes of posts in a table from `start` on.
fn first_prefixes(table: &Table, start: &[u8], limit: usize) -> Result<BTreeSet<Vec<u8>>, StorageError> {
    let mut first = BTreeSet::new();
    for record in table.records().filter(|record| record.key >= start) {
        let prefix = &record.key[..prefix_len(record.key)?];
        let full = first.len() == limit;
        let beyond = full && first.last().is_none_or(|last: &Vec<u8>| last.as_slice() <= prefix);
        if !beyond && first.insert(prefix.to_vec()) && full {
            first.pop_last();
        }
    }
    Ok(first)
}

/// The same on disk: one search for each post, however many members it has.
fn first_prefixes_on_disk(
    snapshot: &Snapshot,
    keyspace: &Keyspace,
    mut start: Vec<u8>,
    limit: usize,
) -> Result<BTreeSet<Vec<u8>>, StorageError> {
    let mut first = BTreeSet::new();
    let mut bound = Bound::Included(start);
    while first.len() < limit {
        let Some(row) = snapshot.range(keyspace, (bound, Bound::Unbounded)).next() else { break };
        let key = row.key()?;
        if key.as_ref() == MERGED_KEY {
            bound = Bound::Excluded(key.to_vec());
            continue;
        }
        let prefix = key[..prefix_len(&key)?].to_vec();
        start = after_post(prefix.clone());
        bound = Bound::Included(start);
        first.insert(prefix);
    }
    Ok(first)
}

/// See [`crate::store::Store::membership`].
pub(super) fn stored_like(engine: &Engine, post: &str, user: &str) -> Result<Option<Like>, StorageError> {
    let key = member_key(post, user);
    let hash = engine.hasher.hash(&key);
    let like = |value: &[u8]| -> Result<Option<Like>, StorageError> {
        let stored = membership(value)?;
        Ok(Some(Like::new(post, user, stored.event_id, stored.liked, stored.order)))
    };
    let (view, active) = view(engine, |active| active.members.get(hash, &key).map(<[u8]>::to_vec));
    if let Some(value) = &active {
        return like(value);
    }
    if let Some(value) = view.sealed.as_ref().and_then(|sealed| sealed.members.get(hash, &key)) {
        return like(value);
    }
    match view.snapshot.get(&engine.members, &key)? {
        Some(value) => like(&value),
        None => Ok(None),
    }
}

/// See [`crate::store::Counts::quarantined`].
pub(super) fn quarantined(
    engine: &Engine,
    after: Option<&str>,
    size: PageSize,
) -> Result<QuarantinePage, StorageError> {
    let consumer = post_prefix(&engine.config.consumer);
    let end = Bound::Excluded(after_post(consumer.clone()));
    let start = match after {
        Some(after) => Bound::Excluded([consumer.as_slice(), after.as_bytes()].concat()),
        None => Bound::Included(consumer.clone()),
    };
    let (mut page, mut bytes) = (QuarantinePage::default(), 0);
    for row in engine.db.snapshot().range(&engine.quarantine, (start, end)) {
        if page.entries.len() >= size.entries || bytes >= size.bytes {
            page.next = page.entries.last().map(|entry| entry.id.clone());
            break;
        }
        let (key, value) = row.into_inner()?;
        let entry = poison::read(key.get(consumer.len()..).unwrap_or_default(), &value)?;
        bytes += entry.bytes();
        page.entries.push(entry);
    }
    Ok(page)
}

/// See [`crate::store::Store::find_quarantined`].
pub(super) fn find_quarantined(engine: &Engine, id: &str) -> Result<Option<Quarantined>, StorageError> {
    let row = engine.quarantine.get(poison::key(&engine.config.consumer, id))?;
    Ok(row.map(|row| poison::read(id.as_bytes(), &row)).transpose()?)
}
