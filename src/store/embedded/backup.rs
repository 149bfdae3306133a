//! A copy of a store at one time, as a stream of bytes, and a store made of it.
//!
//! The stream is a log: a head, frames of rows, each with its checksum and number, and an empty frame at the end. Whatever
//! is cut off or changed on the way is noticed, and what has arrived until then is no store: it is made in `unfinished`
//! beside its place, which is renamed at the end.

use super::engine::Engine;
use super::error::StorageError;
use super::frame::{self, HEAD_BYTES, Operation, Tree};
use super::generation::Generation;
use super::layout::kind;
use super::place::{self, FIRST_FRAME, UNFINISHED};
use super::read::{Sorted, all_rows};
use super::tables::Trees;
use crate::store::{Access, Backup, ErrorClass, StoreError};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use lsm_tree::Slice;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The salt of every copy: it goes from one store to another.
const SALT: u64 = 0;

/// Bytes of rows in one frame of a copy, about; a frame has at least one row, however large.
const FRAME_BYTES: usize = 256 << 10;

/// The largest frame that is accepted: a row is a delivery and its head at most.
const MAX_FRAME_BYTES: usize = 256 << 20;

/// Bytes of rows that are written as one table.
const TABLE_BYTES: usize = 64 << 20;

/// What a copy holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Memberships.
    pub members: u64,
    /// Quarantined deliveries, of all consumers.
    pub quarantined: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// The rows of both trees at one time, as the frames of a copy.
struct Frames {
    rows: Sorted,
    quarantine: Sorted,
    next: u64,
    ended: bool,
}

/// A copy of what the store holds now. What is written later is not in it, and does not wait for it.
pub(super) fn stream(engine: &Engine) -> Backup {
    let generations = engine.generations();
    let frames = Frames {
        rows: all_rows(&generations, engine, Tree::Rows),
        quarantine: all_rows(&generations, engine, Tree::Quarantine),
        next: FIRST_FRAME,
        ended: false,
    };
    let path = engine.path.clone();
    let head = stream::once(async { Ok(Bytes::copy_from_slice(&frame::head(SALT, FIRST_FRAME))) });
    // A frame is made when it is asked for, off the async threads: who reads slowly slows nobody.
    let frames = stream::try_unfold(frames, move |mut frames| {
        let path = path.clone();
        async move {
            if frames.ended {
                return Ok(None);
            }
            let made = tokio::task::spawn_blocking(move || frames.next().map(|frame| Some((frame, frames)))).await;
            let made = made
                .map_err(|panic| StoreError::caused(ErrorClass::Fatal, "reading the store for a copy failed", panic))?;
            made.map_err(|error: StorageError| error.for_store(&path))
        }
    });
    head.chain(frames).boxed()
}

impl Frames {
    /// The next frame; the empty one comes last.
    fn next(&mut self) -> Result<Bytes, StorageError> {
        let mut out = Vec::new();
        let at = frame::begin(&mut out);
        while out.len() < FRAME_BYTES {
            let row = match self.rows.next() {
                Some(row) => Some((Tree::Rows, row?)),
                None => self.quarantine.next().transpose()?.map(|row| (Tree::Quarantine, row)),
            };
            let Some((tree, (key, value))) = row else { break };
            frame::push_operation(&mut out, Operation { tree, key: &key, value: Some(&value) });
        }
        self.ended = out.len() == frame::FRAME_HEAD;
        frame::finish(&mut out, at, SALT, self.next, self.next - 1);
        self.next += 1;
        Ok(out.into())
    }
}

/// Makes a store in `folder` of the copy that `stream` brings. The folder must be empty or not exist. `told` hears how far
/// it is.
///
/// # Errors
/// When the folder is not empty, the copy breaks off or is not whole, or the disk fails. Then there is no store in it.
pub async fn restore(folder: &Path, mut stream: Backup, mut told: impl FnMut(Copied)) -> Result<Copied, StoreError> {
    let mut writer = blocking({
        let folder = folder.to_owned();
        move || Writer::new(&folder)
    })
    .await?;
    let (mut received, mut copied, mut next) = (BytesMut::new(), Copied::default(), None);
    let broken =
        |what: &str| StoreError::new(ErrorClass::Fatal, format!("the copy is not whole: {what}; make it again"));
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        copied.bytes += chunk.len() as u64;
        received.extend_from_slice(&chunk);
        loop {
            let number = match next {
                None if received.len() < HEAD_BYTES => break,
                None if frame::has_head(&received, SALT, FIRST_FRAME) => {
                    drop(received.split_to(HEAD_BYTES));
                    next = Some(Some(FIRST_FRAME));
                    continue;
                }
                None => return Err(broken("it is none of this hotcount's")),
                Some(None) if received.is_empty() => break,
                Some(None) => return Err(broken("something follows its end")),
                Some(Some(number)) => number,
            };
            let Some(length) = frame::length(&received) else { break };
            if length > MAX_FRAME_BYTES {
                return Err(broken("a part of it is larger than any can be"));
            }
            if received.len() < length {
                break;
            }
            let bytes = received.split_to(length).freeze();
            let whole = frame::frame(&bytes, SALT).filter(|frame| frame.number == number);
            let Some(frame) = whole else { return Err(broken("a part of it has changed on the way")) };
            next = Some((!frame.payload.is_empty()).then_some(number + 1));
            writer = blocking(move || writer.take(&bytes)).await?;
            (copied.members, copied.quarantined) = (writer.members, writer.quarantined);
        }
        told(copied);
    }
    if next != Some(None) {
        return Err(broken("it broke off"));
    }
    blocking(move || writer.finish()).await?;
    Ok(copied)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(StoreError::caused(ErrorClass::Fatal, "writing the copy failed", panic)))
}

/// Makes a new store out of rows, in a folder that becomes a store when it is whole.
pub(super) struct Writer {
    folder: PathBuf,
    /// Whether the folder was made for this.
    made: bool,
    trees: Option<Trees>,
    pub(super) generation: Generation,
    members: u64,
    quarantined: u64,
    finished: bool,
    _lock: File,
}

impl Writer {
    pub(super) fn new(folder: &Path) -> Result<Self, StoreError> {
        let failed = |error: StorageError| error.for_store(folder);
        let made = !folder.exists();
        place::create_folders(folder).map_err(|error| failed(error.into()))?;
        let taken = |text: &str| StoreError::new(ErrorClass::Fatal, format!("{} {text}", folder.display()));
        let mut held = fs::read_dir(folder).map_err(|error| failed(error.into()))?;
        if held.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "lost+found")) {
            return Err(taken("is not empty: name a folder that is, or that is not there"));
        }
        let lock = File::create(folder.join("lock")).map_err(|error| failed(error.into()))?;
        lock.try_lock().map_err(|_| taken("is being written by another process"))?;
        let mut writer = Self {
            folder: folder.to_owned(),
            made,
            trees: None,
            generation: Generation::default(),
            members: 0,
            quarantined: 0,
            finished: false,
            _lock: lock,
        };
        let unfinished = folder.join(UNFINISHED);
        let sentence = |error: super::error::OpenError| StoreError::new(ErrorClass::Fatal, error.describe(folder));
        place::make(&unfinished).map_err(sentence)?;
        writer.trees = Some(Trees::open(&unfinished, Access::Create, 16 << 20).map_err(failed)?.0);
        Ok(writer)
    }

    /// Where the store will be.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The tables so far, for looking at what was written.
    pub(super) fn trees(&self) -> Option<&Trees> {
        self.trees.as_ref()
    }

    /// Writes the rows of a whole frame.
    fn take(mut self, bytes: &[u8]) -> Result<Self, StoreError> {
        let frame = frame::frame(bytes, SALT);
        for operation in frame::operations(frame.map_or(&[], |frame| frame.payload)) {
            let no_sense =
                |_| StoreError::new(ErrorClass::Fatal, "the copy is not understood: use the version that made it");
            let operation = operation.map_err(no_sense)?;
            self.members += u64::from(operation.tree == Tree::Rows && operation.key.first() == Some(&kind::MEMBER));
            self.quarantined += u64::from(operation.tree == Tree::Quarantine);
            self.put(operation.tree, operation.key.into(), operation.value.map(Slice::from))?;
        }
        Ok(self)
    }

    /// Writes a row. Of two with one key the later one stays.
    pub(super) fn put(&mut self, tree: Tree, key: Slice, value: Option<Slice>) -> Result<(), StoreError> {
        self.generation.put(tree, key, value);
        if self.generation.bytes() >= TABLE_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        let generation = std::mem::take(&mut self.generation);
        match &self.trees {
            Some(trees) if !generation.is_empty() => {
                trees.write(&generation, FIRST_FRAME - 1).map_err(|error| error.for_store(&self.folder))
            }
            _ => Ok(()),
        }
    }

    /// Makes a store of it: from here on it opens.
    pub(super) fn finish(mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.trees = None;
        let rename = || {
            fs::rename(self.folder.join(UNFINISHED), self.folder.join("store"))?;
            place::sync_folder(&self.folder)
        };
        rename().map_err(|error| StorageError::from(error).for_store(&self.folder))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // What is left is no store, and says so when it is opened; removing it is for tidiness.
        self.trees = None;
        let _ = place::remove_folder(&self.folder.join(UNFINISHED));
        let _ = fs::remove_file(self.folder.join("lock"));
        if self.made {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}
