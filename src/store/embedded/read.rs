//! Reading: the generations in memory over the tables on disk, at one time where more than one row is read.

use super::engine::Engine;
use super::error::{StorageError, stored_fault};
use super::frame::Tree;
use super::generation::Value;
use super::layout::{
    after_kind, after_prefix, kind, member_key, prefix, prefix_len, read_membership, read_numbers, shard_of, text_of,
};
use super::poison;
use super::tables::Rows;
use crate::like::event::Like;
use crate::store::{Audit, Depth, Listing, PageSize, QuarantinePage, Quarantined, REPAIR_SHARD, Tally};
use foldhash::fast::RandomState;
use lsm_tree::Slice;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::Peekable;
use std::ops::Bound;

/// The newest value of a row.
fn get(engine: &Engine, tree: Tree, key: &[u8]) -> Result<Option<Slice>, StorageError> {
    let in_memory = engine.generations().get(tree, key).cloned();
    match in_memory {
        Some(value) => Ok(value),
        // A generation may come to disk in between; then its rows are found there.
        None => engine.trees.get(tree, key),
    }
}

/// The members or the counters of one post, in no order.
struct OfPost {
    in_memory: std::collections::hash_map::IntoIter<Slice, Value>,
    /// The same keys: what is in memory hides what is on disk.
    hidden: HashMap<Slice, (), RandomState>,
    on_disk: Rows,
}

impl OfPost {
    /// What is in memory is copied, and what is on disk stays what it is, so that no lock is held while it is read.
    fn new(engine: &Engine, generations: &super::engine::Generations, prefix: Vec<u8>) -> Self {
        let mut newest: HashMap<Slice, Value, RandomState> = HashMap::default();
        for generation in generations.both() {
            newest.extend(generation.of_post(&prefix).map(|(key, value)| (key.clone(), value.clone())));
        }
        let end = after_prefix(prefix.clone());
        Self {
            hidden: newest.keys().map(|key| (key.clone(), ())).collect(),
            in_memory: newest.into_iter(),
            on_disk: engine.trees.range(Tree::Rows, Bound::Included(prefix), Bound::Excluded(end)),
        }
    }
}

impl Iterator for OfPost {
    type Item = Result<(Slice, Slice), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(row) = self.in_memory.find_map(|(key, value)| Some((key, value?))) {
            return Some(Ok(row));
        }
        self.on_disk.find(|row| !row.as_ref().is_ok_and(|(key, _)| self.hidden.contains_key(key)))
    }
}

/// The rows between two keys, sorted: of the quarantine, or the times at which batch keys go.
pub(super) fn rows_between(engine: &Engine, tree: Tree, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Sorted {
    let generations = engine.generations();
    let mut in_memory = BTreeMap::new();
    for generation in generations.both() {
        let rows = generation.range(tree, from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        in_memory.extend(rows.map(|(key, value)| (key.clone(), value.clone())));
    }
    Sorted { in_memory: in_memory.into_iter().peekable(), on_disk: engine.trees.range(tree, from, to).peekable() }
}

/// All rows of a tree at one time, sorted.
pub(super) fn all_rows(generations: &super::engine::Generations, engine: &Engine, tree: Tree) -> Sorted {
    let mut in_memory = BTreeMap::new();
    for generation in generations.both() {
        in_memory.extend(generation.sorted(tree).into_iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    // The position is of the tables here, and no row of the store.
    let first = match tree {
        Tree::Rows => vec![kind::POSITION + 1],
        Tree::Quarantine => Vec::new(),
    };
    let on_disk = engine.trees.range(tree, Bound::Included(first), Bound::Unbounded);
    Sorted { in_memory: in_memory.into_iter().peekable(), on_disk: on_disk.peekable() }
}

/// Sorted rows of memory and disk, each key once.
pub(super) struct Sorted {
    in_memory: Peekable<std::collections::btree_map::IntoIter<Slice, Value>>,
    on_disk: Peekable<Rows>,
}

impl Iterator for Sorted {
    type Item = Result<(Slice, Slice), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let from_memory = match (self.in_memory.peek(), self.on_disk.peek()) {
                (Some((newer, _)), Some(Ok((older, _)))) => newer <= older,
                (Some(_), None) => true,
                (None, _) | (_, Some(Err(_))) => false,
            };
            if !from_memory {
                return self.on_disk.next();
            }
            let (key, value) = self.in_memory.next()?;
            // What is on disk under the same key is older.
            drop(self.on_disk.next_if(|row| row.as_ref().is_ok_and(|(older, _)| *older == key)));
            if let Some(value) = value {
                return Some(Ok((key, value)));
            }
        }
    }
}

/// How a membership is called in sentences.
pub(super) fn member_name(post: &str, user: &str) -> String {
    format!("the membership of user {user:?} of post {post:?}")
}

/// How a counter is called in sentences.
pub(super) fn counter_name(post: &str, shard: u16) -> String {
    if shard == REPAIR_SHARD {
        format!("the repair shard of post {post:?}")
    } else {
        format!("shard {shard} of post {post:?}")
    }
}

/// See [`crate::store::Counts::tally`].
pub(super) fn tally(engine: &Engine, post: &str, depth: Depth) -> Result<Tally, StorageError> {
    Ok(counts(engine, post, depth)?.0)
}

/// See [`crate::store::Repair::audit`].
pub(super) fn audit(engine: &Engine, post: &str) -> Result<Audit, StorageError> {
    // Before the counts: a repair in between leaves an old version here, which is refused, never a new one beside old
    // counts, which would repair twice.
    let version = match get(engine, Tree::Rows, &prefix(kind::REPAIRS, post))? {
        Some(value) => {
            let name = StorageError::row(|| format!("the version of the repair shard of post {post:?}"));
            let ([repairs], _) = read_numbers(&value, "a version").map_err(name)?;
            Some(repairs.to_string())
        }
        None => None,
    };
    let (tally, repaired) = counts(engine, post, Depth::ShardsAndMembers)?;
    Ok(Audit { tally, repaired, version })
}

/// The tally, and what the repair shard holds.
fn counts(engine: &Engine, post: &str, depth: Depth) -> Result<(Tally, i64), StorageError> {
    let (mut tally, mut repaired) = (Tally::default(), 0);
    let generations = engine.generations();
    let shards = OfPost::new(engine, &generations, prefix(kind::COUNTER, post));
    // Under the same lock, so both are of one time.
    let members =
        (depth == Depth::ShardsAndMembers).then(|| OfPost::new(engine, &generations, prefix(kind::MEMBER, post)));
    drop(generations);
    for row in shards {
        let (key, value) = row?;
        let shard = shard_of(&key).map_err(StorageError::row(|| format!("a shard of post {post:?}")))?;
        let ([count], _) =
            read_numbers(&value, "a counter").map_err(StorageError::row(|| counter_name(post, shard)))?;
        tally.count = tally.count.wrapping_add(count);
        tally.shards += 1;
        if shard == REPAIR_SHARD {
            repaired = count;
        }
    }
    if let Some(members) = members {
        let mut liked = 0;
        for row in members {
            let (key, value) = row?;
            let user = || prefix_len(&key).map(|length| String::from_utf8_lossy(&key[length..])).unwrap_or_default();
            let name = || member_name(post, &user());
            let (membership, _) = read_membership(&value).map_err(StorageError::row(name))?;
            liked += u64::from(membership.liked);
        }
        tally.members = Some(liked);
    }
    Ok((tally, repaired))
}

/// See [`crate::store::Counts::posts`]: one search for each post, however many members it has.
pub(super) fn posts(
    engine: &Engine,
    listing: Listing,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, StorageError> {
    let kind = match listing {
        Listing::Shards => kind::COUNTER,
        Listing::Members => kind::MEMBER,
    };
    let mut from = after.map_or_else(|| vec![kind], |after| after_prefix(prefix(kind, after)));
    let mut found: BTreeSet<Slice> = BTreeSet::new();
    for generation in engine.generations().both() {
        for prefix in generation.prefixes(kind, &from) {
            let full = found.len() == limit;
            if full && found.last().is_none_or(|last| last <= prefix) {
                continue;
            }
            if found.insert(prefix.clone()) && full {
                found.pop_last();
            }
        }
    }
    for _ in 0..limit {
        let Some(row) = engine.trees.range(Tree::Rows, Bound::Included(from), Bound::Excluded(after_kind(kind))).next()
        else {
            break;
        };
        let (key, _) = row?;
        let name = StorageError::row(|| format!("the row {}", key.escape_ascii()));
        let length = prefix_len(&key).map_err(name)?;
        from = after_prefix(key[..length].to_vec());
        found.insert(Slice::from(&key[..length]));
    }
    let post =
        |prefix: &Slice| text_of(prefix).map_err(StorageError::row(|| format!("the row {}", prefix.escape_ascii())));
    found.iter().take(limit).map(post).collect()
}

/// See [`crate::store::Store::membership`].
pub(super) fn stored_like(engine: &Engine, post: &str, user: &str) -> Result<Option<Like>, StorageError> {
    let Some(value) = get(engine, Tree::Rows, &member_key(post, user))? else { return Ok(None) };
    let (stored, _) = read_membership(&value).map_err(StorageError::row(|| member_name(post, user)))?;
    Ok(Some(Like::new(post, user, stored.event_id, stored.liked, stored.order)))
}

/// See [`crate::store::Counts::quarantined`].
pub(super) fn quarantined(
    engine: &Engine,
    after: Option<&str>,
    size: PageSize,
) -> Result<QuarantinePage, StorageError> {
    let consumer = poison::prefix(&engine.config.consumer);
    let from = match after {
        Some(after) => Bound::Excluded([consumer.as_slice(), after.as_bytes()].concat()),
        None => Bound::Included(consumer.clone()),
    };
    let to = Bound::Excluded(after_prefix(consumer.clone()));
    let (mut page, mut bytes, mut last) = (QuarantinePage::default(), 0, None);
    for row in rows_between(engine, Tree::Quarantine, from, to) {
        let (key, value) = row?;
        if page.entries.len() + page.unreadable.len() >= size.entries || bytes >= size.bytes {
            page.next = last;
            break;
        }
        let id = key.get(consumer.len()..).unwrap_or_default();
        match poison::read(id, &value) {
            Ok(entry) => {
                bytes += entry.bytes();
                page.entries.push(entry);
            }
            Err(fault) => page.unreadable.push((String::from_utf8_lossy(id).into_owned(), stored_fault(&fault))),
        }
        last = Some(String::from_utf8_lossy(id).into_owned());
    }
    Ok(page)
}

/// See [`crate::store::Store::find_quarantined`].
pub(super) fn find_quarantined(engine: &Engine, id: &str) -> Result<Option<Quarantined>, StorageError> {
    let row = get(engine, Tree::Quarantine, &poison::key(&engine.config.consumer, id))?;
    let name = StorageError::row(|| format!("the quarantined delivery {id}"));
    row.map(|row| poison::read(id.as_bytes(), &row)).transpose().map_err(name)
}
