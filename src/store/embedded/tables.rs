//! The two trees of sorted tables: rows, and the quarantine. Kept by `lsm-tree`, the engine inside fjall, which leaves the
//! log to whoever uses it.
//!
//! A tree is a list of tables and the tables themselves, which never change: see `manifest.rs`. Tables are synced before they
//! are listed, and the list before it is named.

use super::error::StorageError;
use super::frame::Tree;
use super::generation::{Generation, Value};
use super::layout::{kind, read_numbers, write_numbers};
use super::place::FIRST_FRAME;
use crate::store::Access;
use lsm_tree::compaction::Leveled;
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SeqNo, SequenceNumberCounter, Slice};
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// The folders of the two trees in a store.
pub(super) const FOLDERS: [&str; 2] = ["rows", "quarantine"];

/// Files of tables that are kept open. A store has a few dozen at most before the rest is opened when it is read.
const OPEN_FILES: usize = 64;

/// Bytes of a table that a merge of everything makes, as the engine has it elsewhere.
const TABLE_BYTES: u64 = 64 << 20;

/// Of several versions of a row, merging keeps the newest: nobody asks for another, and who reads has what it reads from.
const EVERYTHING_OLD: SeqNo = SeqNo::MAX;

/// The trees.
pub(super) struct Trees {
    rows: AnyTree,
    quarantine: AnyTree,
}

/// Creates an empty tree, durable but for its own name.
pub(super) fn create(folder: &Path) -> Result<(), StorageError> {
    let cache = Arc::new(Cache::with_capacity_bytes(0));
    drop(open(folder, &cache)?);
    Ok(())
}

fn open(folder: &Path, cache: &Arc<Cache>) -> Result<AnyTree, StorageError> {
    let numbers = SequenceNumberCounter::default();
    let tree = Config::new(folder, numbers.clone(), SequenceNumberCounter::default())
        .use_cache(Arc::clone(cache))
        .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES))))
        .open()?;
    // Tables that are written later have higher numbers, by which a newer row hides an older one.
    numbers.fetch_max(tree.get_highest_persisted_seqno().map_or(0, |highest| highest + 1));
    Ok(tree)
}

impl Trees {
    /// Opens both trees in `store`, whose manifests were found to be whole. Opening removes files that no manifest lists, so
    /// who only reads opens a view of them, which is answered too.
    pub(super) fn open(
        store: &Path,
        access: Access,
        cache_bytes: u64,
    ) -> Result<(Self, Option<tempfile::TempDir>), StorageError> {
        let no_view = |error| io::Error::other(format!("no temporary folder can be made to read it by: {error}"));
        let view = if access == Access::Read { Some(view(store).map_err(no_view)?) } else { None };
        let opened_at = view.as_ref().map_or(store, |view| view.path());
        let cache = Arc::new(Cache::with_capacity_bytes(cache_bytes));
        let [rows, quarantine] = FOLDERS.map(|folder| open(&opened_at.join(folder), &cache));
        Ok((Self { rows: rows?, quarantine: quarantine? }, view))
    }

    fn of(&self, tree: Tree) -> &AnyTree {
        match tree {
            Tree::Rows => &self.rows,
            Tree::Quarantine => &self.quarantine,
        }
    }

    /// The newest value of a row that is on disk.
    pub(super) fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Slice>, StorageError> {
        Ok(self.of(tree).get(key, SeqNo::MAX)?)
    }

    /// The rows between two keys, sorted. What is read was on disk when this was called, however late it is read.
    pub(super) fn range(&self, tree: Tree, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Rows {
        let rows = self.of(tree).range((from, to), SeqNo::MAX, None);
        Rows(Box::new(rows.map(|row| Ok(row.into_inner()?))))
    }

    /// Up to which frame of the log the tables hold everything.
    pub(super) fn position(&self) -> Result<u64, StorageError> {
        let Some(value) = self.get(Tree::Rows, &[kind::POSITION])? else { return Ok(FIRST_FRAME - 1) };
        let name = StorageError::row(|| "the row that says how far the tables reach".to_owned());
        let ([position], _) = read_numbers(&value, "a position").map_err(name)?;
        Ok(position as u64)
    }

    /// Writes a generation as tables, durable when this answers. `last` is the last frame that is in it. The row that says
    /// so comes with the rows, which are written last, so it is there only when everything is. Doing it again changes
    /// nothing.
    pub(super) fn write(&self, generation: &Generation, last: u64) -> Result<(), StorageError> {
        let quarantine = generation.sorted(Tree::Quarantine);
        if !quarantine.is_empty() {
            ingest(&self.quarantine, quarantine)?;
        }
        let position = (Slice::from([kind::POSITION]), Some(Slice::from(write_numbers(&[last as i64], &[]))));
        // No other row begins with a lower byte.
        let rows = [(&position.0, &position.1)].into_iter().chain(generation.sorted(Tree::Rows));
        ingest(&self.rows, rows)
    }

    /// Merges tables until every level is as small as it should be.
    pub(super) fn merge(&self) -> Result<(), StorageError> {
        let strategy: Arc<Leveled> = Arc::default();
        for tree in [&self.rows, &self.quarantine] {
            loop {
                let before = tree.current_version().id();
                tree.compact(Arc::<Leveled>::clone(&strategy), EVERYTHING_OLD)?;
                if tree.current_version().id() == before {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Rewrites all tables of a tree without what was removed, and removes the old ones.
    pub(super) fn rewrite(&self, tree: Tree) -> Result<(), StorageError> {
        Ok(self.of(tree).major_compact(TABLE_BYTES, EVERYTHING_OLD)?)
    }

    /// Whether tables of the quarantine may still hold what was removed.
    pub(super) fn has_removed_poison(&self) -> bool {
        self.quarantine.tombstone_count() > 0
    }

    /// Bytes of the quarantine on disk.
    pub(super) fn quarantine_bytes(&self) -> u64 {
        self.quarantine.disk_space()
    }
}

/// Sorted rows that are on disk.
pub(super) struct Rows(Box<dyn Iterator<Item = Result<(Slice, Slice), StorageError>> + Send>);

impl Iterator for Rows {
    type Item = Result<(Slice, Slice), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// Writes sorted rows as new tables, all or nothing.
fn ingest<'a>(tree: &AnyTree, rows: impl IntoIterator<Item = (&'a Slice, &'a Value)>) -> Result<(), StorageError> {
    let unused = tree.next_table_id();
    let write = || {
        let mut tables = tree.ingestion()?;
        for (key, value) in rows {
            match value {
                Some(value) => tables.write(key.clone(), value.clone())?,
                None => tables.write_tombstone(key.clone())?,
            }
        }
        tables.finish()
    };
    Ok(write().inspect_err(|_| remove_unused(tree, unused))?)
}

/// What failed half way leaves parts of tables, and on a full disk each try would leave more.
fn remove_unused(tree: &AnyTree, from: u64) {
    let version = tree.current_version();
    for id in from..tree.next_table_id() {
        // A merge that runs meanwhile removes its own parts, at the next opening.
        if !version.iter_tables().any(|table| table.id() == id) {
            // What cannot be removed now goes when the store is opened again.
            let _ = fs::remove_file(tree.tree_config().path.join("tables").join(id.to_string()));
        }
    }
}

/// A folder that shows the trees of `store` by links, for opening them without changing a byte.
fn view(store: &Path) -> io::Result<tempfile::TempDir> {
    let view = tempfile::Builder::new().prefix("hotcount-view-").tempdir()?;
    let store = fs::canonicalize(store)?;
    for folder in FOLDERS {
        let (from, to) = (store.join(folder), view.path().join(folder));
        fs::create_dir_all(to.join("tables"))?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        for entry in fs::read_dir(from.join("tables"))? {
            let entry = entry?;
            std::os::unix::fs::symlink(entry.path(), to.join("tables").join(entry.file_name()))?;
        }
    }
    Ok(view)
}
