//! Rewriting a store without what was removed from it and what newer rows replaced.

use super::Config;
use super::engine::Engine;
use super::error::{OpenError, StorageError};
use super::frame::Tree;
use crate::store::{Access, ErrorClass, Options, StoreError};
use std::fs;
use std::io;
use std::path::Path;

/// What rewriting changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of all files before.
    pub before: u64,
    /// Bytes of all files after.
    pub after: u64,
}

/// Rewrites all tables of the store in `path`, which no process may have open, so that its files hold nothing but the
/// newest version of what is there.
///
/// # Errors
/// When there is no store, another process has it open, it is damaged, or the disk fails; it needs room for a second copy
/// of what is there.
pub fn compact(path: &Path) -> Result<Compacted, StoreError> {
    let cannot =
        |error: OpenError| StoreError::new(ErrorClass::Fatal, format!("{}: {}", path.display(), error.describe(path)));
    let failed = |error: StorageError| error.for_store(path);
    let options = Options { access: Access::Change, ..Options::default() };
    let (engine, last) = Engine::open(path.to_owned(), Config::new(&options)).map_err(cannot)?;
    let before = bytes_of(&engine.place.store).map_err(|error| failed(error.into()))?;
    let mut log = engine.begin(last).map_err(failed)?;
    for tree in [Tree::Rows, Tree::Quarantine] {
        engine.trees.rewrite(tree).map_err(failed)?;
    }
    log.close().map_err(|error| failed(error.into()))?;
    let after = bytes_of(&engine.place.store).map_err(|error| failed(error.into()))?;
    Ok(Compacted { before, after })
}

/// Bytes of all files below a folder.
fn bytes_of(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_of(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
