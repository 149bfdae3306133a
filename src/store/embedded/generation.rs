//! The rows in memory: what was written since the last tables, by key.
//!
//! A membership is found by its hash, for most likes ask for one. What is asked for in order is kept in order: poison, and
//! the times at which batch keys go. The members and counters of one post are found by a list of their keys.

use super::frame::Tree;
use super::layout::{kind, prefix_len};
use foldhash::fast::RandomState;
use lsm_tree::Slice;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// A row's value; `None` where it was removed, which hides an older value.
pub(super) type Value = Option<Slice>;

/// What a row costs beside its bytes: two slices in a map with some slots free, and one in a list.
const ROW_BYTES: usize = 96;

/// The rows of one generation. It changes only by whole groups that are durable.
#[derive(Default)]
pub(super) struct Generation {
    rows: HashMap<Slice, Value, RandomState>,
    /// The keys in `rows` of the members, and of the counters, of each post.
    of_post: Vec<Vec<Slice>>,
    /// Where in `of_post` the keys are that begin with this.
    places: HashMap<Slice, usize, RandomState>,
    /// The last of them that was asked for: rows come post by post.
    last: Option<(Slice, usize)>,
    expiries: BTreeMap<Slice, Value>,
    quarantine: BTreeMap<Slice, Value>,
    bytes: usize,
}

impl Generation {
    /// An empty one, with room for as many rows as this one has.
    pub(super) fn sized_like(&self) -> Self {
        Self {
            rows: HashMap::with_capacity_and_hasher(self.rows.len(), RandomState::default()),
            places: HashMap::with_capacity_and_hasher(self.places.len(), RandomState::default()),
            ..Self::default()
        }
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.expiries.is_empty() && self.quarantine.is_empty()
    }

    /// Writes or removes a row.
    pub(super) fn put(&mut self, tree: Tree, key: Slice, value: Value) {
        self.bytes += ROW_BYTES + key.len() + value.as_ref().map_or(0, |value| value.len());
        let of_kind = key.first().copied();
        match tree {
            Tree::Quarantine => drop(self.quarantine.insert(key, value)),
            Tree::Rows if of_kind == Some(kind::EXPIRY) => drop(self.expiries.insert(key, value)),
            Tree::Rows => {
                let of_post = matches!(of_kind, Some(kind::MEMBER | kind::COUNTER));
                if self.rows.insert(key.clone(), value).is_none()
                    && of_post
                    && let Ok(length) = prefix_len(&key)
                {
                    let place = self.place(&key[..length]);
                    self.of_post[place].push(key);
                }
            }
        }
    }

    /// Where the keys are that begin with `prefix`.
    fn place(&mut self, prefix: &[u8]) -> usize {
        if let Some((last, place)) = &self.last
            && last.as_ref() == prefix
        {
            return *place;
        }
        let (key, place) = match self.places.get_key_value(prefix) {
            Some((key, place)) => (key.clone(), *place),
            None => {
                let (key, place) = (Slice::from(prefix), self.of_post.len());
                self.of_post.push(Vec::new());
                self.places.insert(key.clone(), place);
                (key, place)
            }
        };
        self.last = Some((key, place));
        place
    }

    /// What it says about a row; `None` when nothing.
    pub(super) fn get(&self, tree: Tree, key: &[u8]) -> Option<&Value> {
        match tree {
            Tree::Quarantine => self.quarantine.get(key),
            Tree::Rows if key.first() == Some(&kind::EXPIRY) => self.expiries.get(key),
            Tree::Rows => self.rows.get(key),
        }
    }

    /// The rows whose keys begin with `prefix`, which is that of a post's members or counters. In no order.
    pub(super) fn of_post(&self, prefix: &[u8]) -> impl Iterator<Item = (&Slice, &Value)> {
        let keys = self.places.get(prefix).into_iter().flat_map(|&place| &self.of_post[place]);
        keys.filter_map(|key| self.rows.get_key_value(key))
    }

    /// What the keys of this kind begin with, each once, from `from` on. In no order.
    pub(super) fn prefixes(&self, kind: u8, from: &[u8]) -> impl Iterator<Item = &Slice> {
        self.places.keys().filter(move |prefix| prefix.first() == Some(&kind) && prefix.as_ref() >= from)
    }

    /// The rows between two keys, in order: of the quarantine, or the times at which batch keys go.
    pub(super) fn range(
        &self,
        tree: Tree,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Slice, &Value)> {
        let rows = match tree {
            Tree::Rows => &self.expiries,
            Tree::Quarantine => &self.quarantine,
        };
        rows.range::<[u8], _>((from, to))
    }

    /// All rows of a tree, sorted by key.
    pub(super) fn sorted(&self, tree: Tree) -> Vec<(&Slice, &Value)> {
        match tree {
            Tree::Quarantine => self.quarantine.iter().collect(),
            Tree::Rows => {
                let mut rows: Vec<_> = self.rows.iter().chain(&self.expiries).collect();
                rows.sort_unstable_by_key(|(key, _)| *key);
                rows
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{counter_key, expiry_key, member_key, prefix};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back_by_key_by_post_and_in_order(
            rows in prop::collection::vec((0..4_u8, "[ab]{1,2}", "[cd]{1,2}", any::<bool>()), 0..60),
        ) {
            let (mut generation, mut model) = (Generation::default(), BTreeMap::new());
            for (number, (kind, post, user, put)) in rows.iter().enumerate() {
                let (tree, key) = match kind {
                    0 => (Tree::Rows, member_key(post, user)),
                    1 => (Tree::Rows, counter_key(post, user.len() as u16)),
                    2 => (Tree::Rows, expiry_key(7, user.as_bytes())),
                    _ => (Tree::Quarantine, user.clone().into_bytes()),
                };
                let value = put.then(|| Slice::from(number.to_le_bytes()));
                generation.put(tree, key.as_slice().into(), value.clone());
                model.insert((tree == Tree::Quarantine, key), value);
            }
            for ((quarantine, key), value) in &model {
                let tree = if *quarantine { Tree::Quarantine } else { Tree::Rows };
                prop_assert_eq!(generation.get(tree, key), Some(value));
            }
            for tree in [Tree::Rows, Tree::Quarantine] {
                let sorted: Vec<_> = generation.sorted(tree).into_iter().map(|(k, v)| (k.to_vec(), v.clone())).collect();
                let of_tree = model.iter().filter(|((quarantine, _), _)| *quarantine == (tree == Tree::Quarantine));
                prop_assert_eq!(sorted, of_tree.map(|((_, k), v)| (k.clone(), v.clone())).collect::<Vec<_>>());
            }
            for kind in [kind::MEMBER, kind::COUNTER] {
                let begins = prefix(kind, "a");
                let mut of_post: Vec<_> = generation.of_post(&begins).map(|(key, _)| key.to_vec()).collect();
                of_post.sort();
                let expected: Vec<_> = model.keys().filter(|(_, k)| k.starts_with(&begins)).map(|(_, k)| k.clone()).collect();
                prop_assert_eq!(generation.prefixes(kind, &begins).filter(|p| p.as_ref() == begins).count(), usize::from(!of_post.is_empty()));
                prop_assert_eq!(of_post, expected);
            }
        }
    }
}
