//! What on disk is not what was synced: which file, and where in it.

use std::path::{Path, PathBuf};

/// A place on disk that is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is damaged at byte {offset} ({what})", file.display())]
pub struct Damage {
    /// The file, or the folder that lacks one.
    pub file: PathBuf,
    /// Where in the file the damage begins, in bytes.
    pub offset: u64,
    /// What cannot be read.
    pub what: String,
}

impl Damage {
    pub(super) fn new(file: &Path, offset: u64, what: String) -> Self {
        Self { file: file.to_owned(), offset, what }
    }
}
