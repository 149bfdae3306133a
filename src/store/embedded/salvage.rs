//! A new store of what can be read of a damaged one.
//!
//! Every block of every table and every frame of the log has a checksum, so what is read is what was written; what is not
//! whole is passed over and told. Of several versions of a membership the newest event wins, as ever. Counters are made anew
//! from the members, so that counts are exact for what there is: what is missing counts again when it is delivered again.

use super::backup::Writer;
use super::damage::Damage;
use super::error::{OpenError, StorageError};
use super::frame::{self, HEAD_BYTES, Tree};
use super::layout::{counter_key, kind, prefix_len, read_membership, text_of, write_numbers};
use super::log::{read_mark, segments};
use super::manifest::{self, block, next_block};
use super::place;
use super::tables::FOLDERS;
use crate::store::{Access, ErrorClass, StoreError};
use lsm_tree::table::Scanner;
use lsm_tree::{CompressionType, Slice, ValueType};
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Where the type of a block stands, and that of a block of rows.
const BLOCK_TYPE: usize = 4;
const ROWS_BLOCK: u8 = 0;

/// Bytes of blocks that are read at once.
const BLOCKS_BYTES: usize = 16 << 20;

/// What was saved, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Memberships that were read, each once.
    pub members: u64,
    /// Posts that have members.
    pub posts: u64,
    /// Quarantined deliveries that were read.
    pub quarantined: u64,
    /// Places that could not be read.
    pub damaged: u64,
}

/// Makes a store in `into` of what can be read of the one in `path`, which is not changed. `told` hears of every place that
/// cannot be read.
///
/// # Errors
/// When there is no store in `path`, another process has it open, `into` is not an empty folder, or the disk fails.
pub fn salvage(path: &Path, into: &Path, told: &mut dyn FnMut(&Damage)) -> Result<Salvaged, StoreError> {
    let cannot =
        |error: OpenError| StoreError::new(ErrorClass::Fatal, format!("{}: {}", path.display(), error.describe(path)));
    let store = path.join("store");
    if !store.is_dir() {
        return Err(cannot(OpenError::Missing));
    }
    let _lock = place::lock(path, Access::Read).map_err(cannot)?;
    let mut salvage = Salvage { writer: Writer::new(into)?, removed: HashSet::new(), told, damaged: 0 };
    let failed = |error: StorageError| error.for_store(path);
    // The newest first: what was seen is not replaced by what is older.
    salvage.log(&store)?;
    for (folder, tree) in FOLDERS.into_iter().zip([Tree::Rows, Tree::Quarantine]) {
        let folder = store.join(folder);
        for table in salvage.tables_of(&folder).map_err(failed)? {
            salvage.table(&table, tree)?;
        }
    }
    salvage.finish()
}

struct Salvage<'a> {
    writer: Writer,
    /// Poison that was removed: an older table may still hold it.
    removed: HashSet<Slice>,
    told: &'a mut dyn FnMut(&Damage),
    damaged: u64,
}

impl Salvage<'_> {
    fn tell(&mut self, damage: &Damage) {
        self.damaged += 1;
        (self.told)(damage);
    }

    /// Reads the frames of the log, the newest first.
    fn log(&mut self, store: &Path) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| StorageError::from(error).for_store(store);
        let folder = store.join("log");
        let segments = match segments(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.tell(&Damage::new(&folder, 0, "the log is missing".to_owned()));
                return Ok(());
            }
            segments => segments.map_err(failed)?,
        };
        let salt = match place::read_format(store) {
            Ok(salt) => Some(salt),
            Err(OpenError::Damage(damage)) => {
                self.tell(&damage);
                segments.iter().find_map(|(first, path)| salt_of(&fs::read(path).ok()?, *first))
            }
            Err(error) => return Err(StoreError::new(ErrorClass::Fatal, error.describe(store))),
        };
        let Some(salt) = salt else {
            self.tell(&Damage::new(&folder, 0, "nothing says which frames are of this store".to_owned()));
            return Ok(());
        };
        let mark = read_mark(store, salt).map_err(failed)?;
        for (first, path) in segments.into_iter().rev() {
            let bytes = fs::read(&path).map_err(failed)?;
            if !frame::has_head(&bytes, salt, first) && !bytes.is_empty() {
                self.tell(&Damage::new(&path, 0, "the head of the segment".to_owned()));
            }
            for payload in self.frames(&path, &bytes, salt, first, mark).into_iter().rev() {
                let operations: Vec<_> = frame::operations(payload).collect();
                for operation in operations.into_iter().rev().flatten() {
                    self.row(operation.tree, operation.key.into(), operation.value.map(Slice::from))?;
                }
            }
        }
        Ok(())
    }

    /// The payloads of the whole frames of a segment; what lies between them is told. What follows the last was never
    /// synced, unless the mark says that it was.
    fn frames<'b>(&mut self, path: &Path, bytes: &'b [u8], salt: u64, first: u64, mark: u64) -> Vec<&'b [u8]> {
        let (mut at, mut last, mut payloads) = (HEAD_BYTES.min(bytes.len()), first - 1, Vec::new());
        while let Some((place, frame)) = frame::next_frame(bytes, at, salt, last) {
            if frame.number > last + 1 {
                let what = format!("frames {} to {}", last + 1, frame.number - 1);
                self.tell(&Damage::new(path, at as u64, what));
            }
            payloads.push(frame.payload);
            (at, last) = (place + frame.bytes(), frame.number);
        }
        if last < mark && at < bytes.len() {
            self.tell(&Damage::new(path, at as u64, format!("frames from {} on", last + 1)));
        }
        payloads
    }

    /// The tables of a tree, the newest first: those that are listed, or, where the list cannot be read, all that there are.
    fn tables_of(&mut self, folder: &Path) -> Result<Vec<PathBuf>, StorageError> {
        match manifest::tables(folder) {
            Ok(listed) => Ok(listed.into_iter().map(|table| table.path).collect()),
            Err(StorageError::Damage(damage)) => {
                self.tell(&damage);
                let Ok(entries) = fs::read_dir(folder.join("tables")) else { return Ok(Vec::new()) };
                let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
                let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u64>().ok();
                let mut paths: Vec<_> = paths.filter(|path| number(path).is_some()).collect();
                paths.sort_by_key(|path| std::cmp::Reverse(number(path)));
                Ok(paths)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the blocks of a table that are whole.
    fn table(&mut self, path: &Path, tree: Tree) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| StorageError::from(error).for_store(path);
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.tell(&Damage::new(path, 0, "a table that is missing".to_owned()));
                return Ok(());
            }
            bytes => bytes.map_err(failed)?,
        };
        let (mut at, mut blocks, mut number) = (0, Vec::new(), 0);
        loop {
            match bytes.get(at..).and_then(block) {
                Some(block) if block[BLOCK_TYPE] == ROWS_BLOCK => {
                    blocks.extend_from_slice(block);
                    number += 1;
                    at += block.len();
                    if blocks.len() >= BLOCKS_BYTES {
                        self.blocks(&std::mem::take(&mut blocks), std::mem::take(&mut number), tree)
                            .map_err(failed)??;
                    }
                }
                // The blocks of rows come first, and all of them were read.
                Some(_) => break,
                None => {
                    self.tell(&Damage::new(path, at as u64, "a block of a table".to_owned()));
                    match next_block(&bytes, at + 1) {
                        Some(next) => at = next,
                        None => break,
                    }
                }
            }
        }
        self.blocks(&blocks, number, tree).map_err(failed)?
    }

    /// Reads the rows in some blocks that lie one behind the other. The engine reads them from a file.
    fn blocks(&mut self, blocks: &[u8], number: usize, tree: Tree) -> std::io::Result<Result<(), StoreError>> {
        if number == 0 {
            return Ok(Ok(()));
        }
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(blocks)?;
        file.flush()?;
        let rows = Scanner::new(file.path(), number, CompressionType::None, 0).map_err(std::io::Error::other)?;
        for row in rows {
            let row = row.map_err(std::io::Error::other)?;
            let value = (row.key.value_type == ValueType::Value).then_some(row.value);
            if let Err(error) = self.row(tree, row.key.user_key, value) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Keeps a row, unless a newer one of its key was seen.
    fn row(&mut self, tree: Tree, key: Slice, value: Option<Slice>) -> Result<(), StoreError> {
        let seen = self.seen(tree, &key)?;
        let keep = match (tree, key.first(), &value) {
            (Tree::Rows, Some(&kind::MEMBER), Some(value)) => match (&seen, read_membership(value)) {
                (None, _) => true,
                (Some(seen), Ok((row, _))) => {
                    read_membership(seen).map_or(true, |(seen, _)| row.cmp_newness(&seen).is_gt())
                }
                (Some(_), Err(_)) => false,
            },
            (Tree::Rows, Some(&(kind::REPAIRS | kind::SETTINGS)), Some(_)) => seen.is_none(),
            // Counters are made anew, and batch keys only save work.
            (Tree::Rows, ..) => false,
            (Tree::Quarantine, _, None) => {
                self.removed.insert(key);
                return Ok(());
            }
            (Tree::Quarantine, _, Some(_)) => seen.is_none() && !self.removed.contains(&key),
        };
        if keep { self.writer.put(tree, key, value) } else { Ok(()) }
    }

    /// What was kept under this key.
    fn seen(&self, tree: Tree, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        match (self.writer.generation.get(tree, key), self.writer.trees()) {
            (Some(value), _) => Ok(value.clone()),
            (None, Some(trees)) => trees.get(tree, key).map_err(|error| error.for_store(self.writer.folder())),
            (None, None) => Ok(None),
        }
    }

    /// Counts the members of each post, writes that as its count, and makes a store of all.
    fn finish(mut self) -> Result<Salvaged, StoreError> {
        self.writer.flush()?;
        let mut salvaged = Salvaged { damaged: self.damaged, ..Salvaged::default() };
        let Some(trees) = self.writer.trees() else { return Ok(salvaged) };
        let end = Bound::Excluded(vec![kind::MEMBER + 1]);
        let members = trees.range(Tree::Rows, Bound::Included(vec![kind::MEMBER]), end);
        salvaged.quarantined = trees.range(Tree::Quarantine, Bound::Unbounded, Bound::Unbounded).count() as u64;
        let folder = self.writer.folder().to_owned();
        let mut post: Option<(Vec<u8>, i64)> = None;
        for row in members {
            let (key, value) = row.map_err(|error| error.for_store(&folder))?;
            salvaged.members += 1;
            let Ok(length) = prefix_len(&key) else { continue };
            if post.as_ref().is_none_or(|(prefix, _)| prefix != &key[..length]) {
                self.count(post.take())?;
                salvaged.posts += 1;
                post = Some((key[..length].to_vec(), 0));
            }
            if let Some((_, count)) = &mut post {
                *count += i64::from(read_membership(&value).is_ok_and(|(membership, _)| membership.liked));
            }
        }
        self.count(post)?;
        self.writer.finish()?;
        Ok(salvaged)
    }

    /// Writes the count of a post: one shard, for all its members.
    fn count(&mut self, post: Option<(Vec<u8>, i64)>) -> Result<(), StoreError> {
        let Some((prefix, count)) = post.filter(|(_, count)| *count != 0) else { return Ok(()) };
        let Ok(post) = text_of(&prefix) else { return Ok(()) };
        self.writer.put(Tree::Rows, counter_key(&post, 0).into(), Some(write_numbers(&[count], &[]).into()))
    }
}

/// The salt in the head of a segment, where the head is whole.
fn salt_of(segment: &[u8], first: u64) -> Option<u64> {
    let salt = u64::from_le_bytes(*segment.get(12..)?.first_chunk()?);
    frame::has_head(segment, salt, first).then_some(salt)
}
