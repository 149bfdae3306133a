//! Bodies that come compressed.
//!
//! What unpacks one holds a window of what came before, so there is room for few of them at once: an eighth of the budget,
//! and at least enough for one. Others wait, as for all room.

use super::answer::Refused;
use super::intake::Intake;
use super::{Door, MAX_UNPACKED_BYTES};
use crate::like::inflate::{Coding, Inflate, InflateError};
use crate::source::in_flight::HeldBytes;
use tokio::sync::SemaphorePermit;

/// What unpacking gzip takes: its window, a chunk of input and a chunk of output, in KiB.
const GZIP_KIB: usize = 256;

/// What unpacking zstd takes: the largest window that is read here, and the same.
const ZSTD_KIB: usize = 10 << 10;

/// The room of all of them, in KiB, in a budget of so many bytes.
pub(super) fn room_kib(max_bytes: usize) -> usize {
    (max_bytes / 8 / 1_024).clamp(ZSTD_KIB, tokio::sync::Semaphore::MAX_PERMITS)
}

/// A body that is being unpacked.
pub(super) struct Unpacking<'a> {
    inflate: Inflate,
    held: HeldBytes,
    _room: Option<SemaphorePermit<'a>>,
}

impl<'a> Unpacking<'a> {
    /// Waits until there is room for one more.
    pub(super) async fn begin(door: &'a Door, coding: Coding) -> Self {
        let kib = match coding {
            Coding::Gzip => GZIP_KIB,
            Coding::Zstd => ZSTD_KIB,
        };
        // Never closed, and the numbers are small.
        let room = door.unpacking_kib.acquire_many(kib as u32).await.ok();
        let inflate = Inflate::new(coding, MAX_UNPACKED_BYTES as u64);
        Self { inflate, held: HeldBytes::none(&door.held), _room: room }
    }

    /// Takes what comes out with this chunk.
    pub(super) async fn take(&mut self, chunk: &[u8], intake: &mut Intake<'_>) -> Result<(), Refused> {
        self.inflate.push(chunk);
        self.chunks(intake).await
    }

    /// The compressed body has ended.
    pub(super) async fn finish(mut self, intake: &mut Intake<'_>) -> Result<(), Refused> {
        self.inflate.finish();
        self.chunks(intake).await
    }

    async fn chunks(&mut self, intake: &mut Intake<'_>) -> Result<(), Refused> {
        while let Some(chunk) = self.inflate.next_chunk().map_err(refused)? {
            intake.take(chunk).await?;
        }
        self.held.set(self.inflate.held_bytes());
        Ok(())
    }
}

fn refused(error: InflateError) -> Refused {
    match error {
        InflateError::TooLarge(_) => Refused::TooLarge,
        InflateError::Damaged(..) | InflateError::Truncated(_) => Refused::Broken(error.to_string()),
    }
}
