//! Which tables a tree has, and whether they are what was written.
//!
//! Everything has a checksum: `current` has that of the manifest `vN` that it names, the manifest those of whole tables, and
//! a table those of its blocks. The engine looks at the last alone, and while it reads; here the others are looked at before
//! it opens anything. Without this a missing `current` would be taken for a new tree, and a changed one for other tables.

use super::damage::Damage;
use super::error::StorageError;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Bytes of `current`: the manifest's number, its checksum, and the checksum's kind.
const CURRENT_BYTES: usize = 25;

/// Bytes of a table in the manifest: number, kind of the checksum, checksum, and the number of its rows.
const ENTRY_BYTES: usize = 33;

/// Begins every block of a table.
const BLOCK_MAGIC: &[u8; 4] = b"LSM\x03";

/// Bytes of a block before what it holds.
const BLOCK_HEAD: usize = 33;

/// A table as the manifest lists it.
pub(super) struct Listed {
    pub(super) path: PathBuf,
    checksum: u128,
}

/// The tables of a tree in the order of its levels, the newest first, from a manifest that is whole.
pub(super) fn tables(folder: &Path) -> Result<Vec<Listed>, StorageError> {
    let manifest = checked_manifest(folder)?;
    let damaged = || Damage::new(&manifest, 0, "the list of tables".to_owned());
    let reader = sfa::Reader::new(&manifest).map_err(|_| damaged())?;
    let section = reader.toc().section(b"tables").ok_or_else(damaged)?;
    let mut bytes = Vec::new();
    section.reader(&manifest)?.read_to_end(&mut bytes)?;
    list(folder, &bytes).ok_or_else(|| damaged().into())
}

/// Levels of runs of tables: how many there are stands before each.
fn list(folder: &Path, mut bytes: &[u8]) -> Option<Vec<Listed>> {
    fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = bytes.split_at_checked(n)?;
        *bytes = rest;
        Some(taken)
    }
    let mut listed = Vec::new();
    for _ in 0..take(&mut bytes, 1)?[0] {
        for _ in 0..take(&mut bytes, 1)?[0] {
            let tables = u32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?);
            for _ in 0..tables {
                let entry = take(&mut bytes, ENTRY_BYTES)?;
                let number = u64::from_le_bytes(*entry.first_chunk()?);
                let checksum = u128::from_le_bytes(*entry[9..].first_chunk()?);
                listed.push(Listed { path: folder.join("tables").join(number.to_string()), checksum });
            }
        }
    }
    Some(listed)
}

/// The manifest that `current` names, after both were held against their checksum.
fn checked_manifest(folder: &Path) -> Result<PathBuf, StorageError> {
    let current = folder.join("current");
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let damaged = |file: &Path, what: &str| StorageError::from(Damage::new(file, 0, what.to_owned()));
    let bytes = match fs::read(&current) {
        Err(error) if gone(&error) => return Err(damaged(&current, "it is missing")),
        bytes => bytes?,
    };
    let bytes: [u8; CURRENT_BYTES] =
        bytes.try_into().map_err(|_| damaged(&current, "the name of the list of tables"))?;
    let number = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    let checksum = u128::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]));
    let manifest = folder.join(format!("v{number}"));
    match fs::read(&manifest) {
        Err(error) if gone(&error) => Err(damaged(&current, "it names a list of tables that is missing")),
        bytes => {
            let whole = xxh3_128(&bytes?) == checksum;
            if whole { Ok(manifest) } else { Err(damaged(&manifest, "the list of tables, or what names it")) }
        }
    }
}

impl Listed {
    /// Reads all of the table, holds it against its checksum, and answers how many bytes it has.
    pub(super) fn check(&self) -> Result<u64, StorageError> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Damage::new(&self.path, 0, "a table that is missing".to_owned()).into());
            }
            file => file?,
        };
        let (mut hash, mut buffer, mut bytes) = (Xxh3::new(), vec![0; 1 << 20], 0);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => {
                    hash.update(&buffer[..read]);
                    bytes += read as u64;
                }
            }
        }
        if hash.digest128() == self.checksum {
            return Ok(bytes);
        }
        let offset = first_broken_block(&fs::read(&self.path)?);
        Err(Damage::new(&self.path, offset, "a table".to_owned()).into())
    }
}

/// The block of a table at the front of `bytes`, if it is whole.
pub(super) fn block(bytes: &[u8]) -> Option<&[u8]> {
    let head = bytes.get(..BLOCK_HEAD).filter(|head| head.starts_with(BLOCK_MAGIC))?;
    let sum = u128::from_le_bytes(*head[5..].first_chunk()?);
    let length = u32::from_le_bytes(*head[21..].first_chunk()?) as usize;
    if xxh3_128(&head[..29]) as u32 != u32::from_le_bytes(*head[29..].first_chunk()?) {
        return None;
    }
    let block = bytes.get(..BLOCK_HEAD + length)?;
    (xxh3_128(&block[BLOCK_HEAD..]) == sum).then_some(block)
}

/// The place of the next block from `at` on, whole or not.
pub(super) fn next_block(bytes: &[u8], at: usize) -> Option<usize> {
    Some(at + memchr::memmem::find(bytes.get(at..)?, BLOCK_MAGIC)?)
}

/// Where the first block begins that is not whole; the end of the blocks where all are. Other parts lie behind them.
fn first_broken_block(table: &[u8]) -> u64 {
    let mut at = 0;
    while let Some(block) = table.get(at..).and_then(block) {
        at += block.len();
    }
    at as u64
}
