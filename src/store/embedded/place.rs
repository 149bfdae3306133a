//! The folder of a store: who owns it, what format it has, and how a new one comes to be there as a whole.
//!
//! ```text
//! PATH/lock          held by the process that has the store open; shared while it is only read
//! PATH/store/        the store, see below; it is made as PATH/new and renamed, so it is whole or not there
//! PATH/unfinished/   a copy that did not come to its end; nothing is opened beside it
//! ```
//!
//! PATH itself may be the root of a volume, so nothing is renamed across it.

use super::damage::Damage;
use super::error::OpenError;
use super::frame::checksum;
use super::{log, tables};
use crate::store::Access;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The format that this hotcount reads and writes.
pub(super) const FORMAT: u32 = 2;

/// The number of the first frame of a store.
pub(super) const FIRST_FRAME: u64 = 1;

const TITLE: &str = "hotcount embedded store";

/// Where a copy is made before it is one; see [`super::backup`].
pub(super) const UNFINISHED: &str = "unfinished";

/// A store's folder, owned by this process for as long as it has this.
pub(super) struct Place {
    /// The folder with log, tables and format.
    pub(super) store: PathBuf,
    /// What makes the checksums of this store its own.
    pub(super) salt: u64,
    /// Held while the store is open; nothing is locked where only reading finds no lock file.
    _lock: Option<File>,
}

impl Place {
    /// Takes the store in `path`, and makes one where that is asked for.
    ///
    /// # Errors
    /// When there is none, another process has it, it is of another format, or the disk fails.
    pub(super) fn take(path: &Path, access: Access) -> Result<Self, OpenError> {
        let store = path.join("store");
        if access == Access::Create {
            create_folders(path)?;
        } else if !store.is_dir() {
            return Err(if of_format_1(path) { OpenError::Older } else { OpenError::Missing });
        }
        let lock = lock(path, access)?;
        if path.join(UNFINISHED).exists() {
            return Err(OpenError::Unfinished(path.join(UNFINISHED)));
        }
        if !store.is_dir() {
            if of_format_1(path) {
                return Err(OpenError::Older);
            }
            let new = path.join("new");
            // Of a process that was killed while it made one; nobody else makes one now.
            remove_folder(&new)?;
            make(&new).inspect_err(|_| drop(fs::remove_dir_all(&new)))?;
            fs::rename(&new, &store)?;
            sync_folder(path)?;
        }
        let salt = read_format(&store)?;
        Ok(Self { store, salt, _lock: lock })
    }
}

/// Makes an empty store in `folder`, which does not exist: whole and durable, but for its own name.
pub(super) fn make(folder: &Path) -> Result<u64, OpenError> {
    let salt = random_salt();
    fs::create_dir(folder)?;
    fs::create_dir(folder.join("log"))?;
    for tree in tables::FOLDERS {
        tables::create(&folder.join(tree))?;
        sync_folder(&folder.join(tree))?;
    }
    log::Log::begin(folder, salt, FIRST_FRAME - 1)?.close()?;
    let text = format!("{TITLE}\nformat {FORMAT}\nsalt {salt:016x}\n");
    let mut file = File::create_new(folder.join("format"))?;
    writeln!(file, "{text}check {:016x}", checksum(0, text.as_bytes()))?;
    file.sync_all()?;
    sync_folder(folder)?;
    Ok(salt)
}

/// The salt of the store in `store`, if it is of this format.
pub(super) fn read_format(store: &Path) -> Result<u64, OpenError> {
    let path = store.join("format");
    let damaged = || OpenError::Damage(Damage::new(&path, 0, "what format the store has".to_owned()));
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged()),
        text => String::from_utf8(text?).map_err(|_| damaged())?,
    };
    let (text, check) = text.split_once("check ").ok_or_else(damaged)?;
    let format = text.strip_prefix(TITLE).and_then(|text| text.trim_start().strip_prefix("format "));
    let format: u32 = format.and_then(|text| text.lines().next()?.parse().ok()).ok_or_else(damaged)?;
    if u64::from_str_radix(check.trim_end(), 16) != Ok(checksum(0, text.as_bytes())) {
        return Err(damaged());
    }
    if format != FORMAT {
        return Err(OpenError::Newer(format));
    }
    let salt = text.lines().find_map(|line| line.strip_prefix("salt ")).ok_or_else(damaged)?;
    u64::from_str_radix(salt, 16).map_err(|_| damaged())
}

/// Whether `path` holds a store of format 1, which lay in the folder itself.
fn of_format_1(path: &Path) -> bool {
    path.join("keyspaces").is_dir() || path.join("version").is_file()
}

/// Takes the store's lock without waiting.
pub(super) fn lock(path: &Path, access: Access) -> Result<Option<File>, OpenError> {
    let name = path.join("lock");
    let (file, locked) = if access == Access::Read {
        match File::open(&name) {
            // A copy that was made by hand; making the file would change it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => {
                let file = file?;
                let locked = file.try_lock_shared();
                (file, locked)
            }
        }
    } else {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&name)?;
        let locked = file.try_lock();
        (file, locked)
    };
    match locked {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Creates `path` and what leads to it, each durable in its parent.
pub(super) fn create_folders(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_folders(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        other => other?,
    }
    sync_folder(parent)
}

/// Makes durable what names a folder holds.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a folder that may not be there.
pub(super) fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A number that no other store has.
fn random_salt() -> u64 {
    use rand::TryRng;
    // Without a source of randomness the clock still tells two stores apart.
    rand::rngs::SysRng.try_next_u64().unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as u64
    })
}
