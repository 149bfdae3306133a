//! What can go wrong with the files of a store, what it means for what was asked, and the sentence that says so.

use super::damage::Damage;
use super::layout::Fault;
use super::log::ReadError;
use super::place::FORMAT;
use crate::store::{ErrorClass, StoreError, StoredFault, Undecidable};
use std::io;
use std::path::{Path, PathBuf};

/// `EMFILE` and `ENFILE`: the process, or the machine, has no file descriptor left. Their numbers are the same on every
/// Unix; the standard library has no name for them.
const OUT_OF_DESCRIPTORS: [i32; 2] = [24, 23];

/// A failure of the disk, of the tables, or of what they gave back.
#[derive(Debug, thiserror::Error)]
pub(super) enum StorageError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0:?}")]
    Tables(lsm_tree::Error),
    #[error(transparent)]
    Damage(#[from] Damage),
    /// What is stored for one like, post or entry cannot be used.
    #[error("{document}: {fault}")]
    Row { document: String, fault: Fault },
}

impl From<lsm_tree::Error> for StorageError {
    fn from(error: lsm_tree::Error) -> Self {
        match error {
            lsm_tree::Error::Io(error) => Self::Io(error),
            error => Self::Tables(error),
        }
    }
}

impl From<ReadError> for StorageError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Io(error),
            ReadError::Damage(damage) => Self::Damage(damage),
        }
    }
}

impl StorageError {
    /// Puts the name of the row to what is wrong with it.
    pub(super) fn row(document: impl FnOnce() -> String) -> impl FnOnce(Fault) -> Self {
        |fault| Self::Row { document: document(), fault }
    }

    /// Whether it goes away by itself, or when somebody makes room: then what failed is tried again.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::Io(error) if is_full(error) || is_out_of_descriptors(error))
    }

    /// The failure as the port knows it. `path` is the store's.
    pub(super) fn for_store(self, path: &Path) -> StoreError {
        let message = self.describe(path);
        let class = match self {
            Self::Row { document, fault } => {
                ErrorClass::Undecidable(vec![Undecidable { place: 0, document, fault: stored_fault(&fault) }])
            }
            error if error.passes() => ErrorClass::DidNotCommit,
            _ => ErrorClass::Fatal,
        };
        StoreError::new(class, message)
    }

    /// What happened and what to do, in a sentence.
    pub(super) fn describe(&self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Io(error) => describe_io(error, &path.to_string()),
            Self::Row { .. } => self.to_string(),
            Self::Damage(damage) => describe_damage(damage, &path.to_string()),
            Self::Tables(error) => describe_damage(&format!("a table is damaged ({error:?})"), &path.to_string()),
        }
    }
}

/// The fault of a row as the port knows it.
pub(super) fn stored_fault(fault: &Fault) -> StoredFault {
    match fault {
        Fault::Newer(version) => StoredFault::Newer(i64::from(*version)),
        Fault::Unreadable(_) => StoredFault::Unreadable(fault.to_string()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| OUT_OF_DESCRIPTORS.contains(&number))
}

fn describe_io(error: &io::Error, path: &str) -> String {
    match error.kind() {
        _ if is_full(error) => {
            format!("the disk that holds {path} is full: make room, nothing that was acknowledged is lost")
        }
        _ if is_out_of_descriptors(error) => format!(
            "no file of {path} can be opened, for this process has as many files and connections open as it may ({error}): \
             raise its limit (ulimit -n), or let fewer clients connect"
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{path} cannot be written: give this user the right to, or name another path")
        }
        _ => format!("the disk that holds {path} failed ({error}): check it and start again"),
    }
}

fn describe_damage(damage: &impl std::fmt::Display, path: &str) -> String {
    format!(
        "{damage}, so not all of what was acknowledged can be read, and nothing was changed: use a copy that hotcount backup \
         made, or make a store of what is readable (hotcount embedded salvage {path} INTO), and then seek the subscription \
         back to before the loss"
    )
}

/// Why a store does not open.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(
        "another process has it open: stop it, or read its counts through that worker, whose store URL is http://ADDR"
    )]
    Locked,
    #[error("there is no store: check the path; hotcount run and hotcount replay make one")]
    Missing,
    #[error(
        "it was written by an older hotcount (format 1, this one reads {FORMAT}): name another path, and seek the \
         subscription back or replay the events"
    )]
    Older,
    #[error("it was written by a newer hotcount (format {0}, this one reads {FORMAT}): use that version")]
    Newer(u32),
    #[error("{} is a copy that did not come to its end: remove it and make the copy again", .0.display())]
    Unfinished(PathBuf),
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    Storage(StorageError),
}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Damage(damage) => Self::Damage(damage),
            error => Self::Storage(error),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Storage(error.into())
    }
}

impl From<lsm_tree::Error> for OpenError {
    fn from(error: lsm_tree::Error) -> Self {
        Self::Storage(error.into())
    }
}

impl OpenError {
    /// What happened and what to do, in a sentence that names the path.
    pub(super) fn describe(self, path: &Path) -> String {
        match self {
            Self::Storage(error) => error.describe(path),
            Self::Damage(damage) => describe_damage(&damage, &path.display().to_string()),
            error => error.to_string(),
        }
    }
}
