//! A JSONL file or standard output. Accepted means written; when the target is closed it is also synced.

use super::{Accepted, Batch, SendError, Target};
use async_trait::async_trait;
use std::path::Path;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

/// Messages written with one call: some 800 KiB, so that system calls and the way through the runtime do not matter.
const BATCH_MESSAGES: usize = 4_096;

enum Out {
    File(tokio::fs::File),
    Other(Box<dyn AsyncWrite + Send + Unpin>),
}

/// A file or standard output.
pub struct File {
    name: String,
    out: Mutex<Out>,
}

impl File {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// When it cannot be created.
    pub async fn create(path: &Path) -> std::io::Result<Self> {
        let mut file = tokio::fs::File::create(path).await?;
        // A write is handed over as a whole instead of in pieces.
        file.set_max_buf_size(16 << 20);
        Ok(Self { name: path.display().to_string(), out: Mutex::new(Out::File(file)) })
    }

    /// Standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self { name: "standard output".to_owned(), out: Mutex::new(Out::Other(Box::new(tokio::io::stdout()))) }
    }

    fn failed(&self, error: &std::io::Error) -> SendError {
        SendError::new(false, format!("{} cannot be written: {error}", self.name))
    }
}

#[async_trait]
impl Target for File {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn batch_messages(&self) -> usize {
        BATCH_MESSAGES
    }

    /// One, so that the lines are in the order of the plan.
    fn max_sends(&self) -> usize {
        1
    }

    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError> {
        let mut out = self.out.lock().await;
        // Flushed, because a write alone says nothing about its own failure.
        let written = match &mut *out {
            Out::File(file) => match file.write_all(&batch.jsonl).await {
                Ok(()) => file.flush().await,
                failed => failed,
            },
            Out::Other(other) => match other.write_all(&batch.jsonl).await {
                Ok(()) => other.flush().await,
                failed => failed,
            },
        };
        written.map(|()| Accepted::default()).map_err(|error| self.failed(&error))
    }

    async fn close(&self) -> Result<(), SendError> {
        match &mut *self.out.lock().await {
            // A pipe or a device cannot be synced, and has nothing to lose.
            Out::File(file) => match file.metadata().await {
                Ok(metadata) if metadata.is_file() => file.sync_data().await.map_err(|error| self.failed(&error)),
                _ => Ok(()),
            },
            Out::Other(_) => Ok(()),
        }
    }
}
