//! Pages: the room that they take, and a page of the quarantine as it is written.
//!
//! A page of the quarantine is sent piece by piece, an entry's payload in pieces too, so that of what it holds nothing is
//! there twice; what was sent is given back.

use super::{QuarantineEntry, UnreadableEntry};
use crate::source::in_flight::{HeldBytes, InFlight};
use crate::store::{QuarantinePage, Quarantined};
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request for a page may wait for room.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of a payload that are encoded at once; a multiple of three, so that pieces of base64 join.
const PIECE_BYTES: usize = 48 << 10;

/// The unit of room, for a semaphore counts in 32 bits.
const KIB: usize = 1 << 10;

/// The room of all pages together.
pub(super) struct Pages {
    held: Arc<InFlight>,
    kib: Arc<Semaphore>,
}

impl Pages {
    /// A quarter of the budget, and at least enough for the largest page.
    pub(super) fn new(held: Arc<InFlight>, largest: usize) -> Self {
        let bytes = (held.budget().max_bytes() / 4).max(largest);
        Self { held, kib: Arc::new(Semaphore::new((bytes / KIB).min(Semaphore::MAX_PERMITS))) }
    }

    /// Room for a page of so many bytes; `None` when there was none in time.
    pub(super) async fn room(&self, bytes: usize) -> Option<PageRoom> {
        let kib = u32::try_from(bytes / KIB).unwrap_or(u32::MAX);
        let both = async {
            let permit = Arc::clone(&self.kib).acquire_many_owned(kib).await.ok()?;
            Some(PageRoom { held: self.held.take(bytes).await, permit })
        };
        tokio::time::timeout(ROOM_WITHIN, both).await.ok().flatten()
    }
}

/// The room of one page, until it is dropped.
pub(super) struct PageRoom {
    held: HeldBytes,
    permit: OwnedSemaphorePermit,
}

impl PageRoom {
    /// Keeps as much as `bytes` need.
    pub(super) fn set(&mut self, bytes: usize) {
        self.held.set(bytes);
        drop(self.permit.split(self.permit.num_permits().saturating_sub(bytes.div_ceil(KIB))));
    }
}

/// A page of the quarantine on its way out.
struct Writing {
    room: PageRoom,
    entries: std::vec::IntoIter<Quarantined>,
    /// What is left of the payload of the entry that is being written.
    data: Option<Bytes>,
    /// The bytes of the entries that are not written yet, and of the one that is.
    left: usize,
    is_first: bool,
    /// What comes after the entries; `None` once it is written.
    end: Option<String>,
}

/// What comes after the entries, as [`super::QuarantinePage`] has it.
#[derive(Serialize)]
struct End {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Writes a page, whose bytes `room` holds until they are written.
pub(super) fn written(page: QuarantinePage, mut room: PageRoom) -> Body {
    let left = page.entries.iter().map(Quarantined::bytes).sum();
    room.set(left);
    let end = End { unreadable: page.unreadable.into_iter().map(UnreadableEntry::from).collect(), next: page.next };
    let writing = Writing {
        room,
        entries: page.entries.into_iter(),
        data: None,
        left,
        is_first: true,
        end: Some(match json(&end).trim_start_matches('{') {
            "}" => "]}".to_owned(),
            more => format!("],{more}"),
        }),
    };
    let pieces = stream::unfold(writing, |mut writing| async {
        let piece = writing.piece()?;
        Some((Ok::<_, Infallible>(Bytes::from(piece)), writing))
    });
    Body::from_stream(pieces)
}

impl Writing {
    fn piece(&mut self) -> Option<String> {
        if let Some(data) = &mut self.data {
            let piece = BASE64.encode(data.split_to(data.len().min(PIECE_BYTES)));
            if !data.is_empty() {
                return Some(piece);
            }
            self.data = None;
            self.room.set(self.left);
            return Some(piece + "\"}");
        }
        let begin = match (std::mem::take(&mut self.is_first), self.entries.len()) {
            (true, 0) => return Some(format!("{{\"entries\":[{}", self.end.take()?)),
            (true, _) => "{\"entries\":[",
            (false, 0) => return self.end.take(),
            (false, _) => ",",
        };
        let entry = self.entries.next()?;
        self.left = self.left.saturating_sub(entry.bytes());
        let (about, data) = QuarantineEntry::apart(entry);
        self.data = Some(data);
        // The payload is the last field, and empty.
        let about = json(&about);
        Some(format!("{begin}{}", about.strip_suffix("\"}").unwrap_or(&about)))
    }
}

/// Texts, numbers and lists of them are always JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::budget::Budget;
    use crate::store::StoredFault;
    use futures::StreamExt;
    use std::time::SystemTime;

    fn entry(id: &str, bytes: usize) -> Quarantined {
        Quarantined {
            id: id.to_owned(),
            reason: "payload: \"data\":\"\"}".to_owned(),
            data: vec![7; bytes].into(),
            attributes: vec![("trace".to_owned(), "\"7\"".to_owned())],
            source: "http".to_owned(),
            message_id: None,
            published_at: None,
            received_at: SystemTime::UNIX_EPOCH,
            delivery_attempt: Some(3),
        }
    }

    fn pages(max_bytes: usize) -> Pages {
        Pages::new(InFlight::new(Budget::new(10, max_bytes)), 1 << 20)
    }

    async fn read(page: QuarantinePage) -> QuarantinePage {
        let pages = pages(1 << 20);
        let room = pages.room(1 << 20).await.expect("room");
        let text = axum::body::to_bytes(written(page, room), usize::MAX).await.expect("in memory");
        assert_eq!(pages.held.budget().bytes(), 0);
        let page: super::super::QuarantinePage = serde_json::from_slice(&text).expect("a page");
        page.read().expect("what was written")
    }

    #[tokio::test]
    async fn a_page_is_read_as_it_was_written() {
        let sizes = [0, 1, 2, 3, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 2];
        let entries: Vec<_> = sizes.iter().map(|bytes| entry(&bytes.to_string(), *bytes)).collect();
        for number in 0..=entries.len() {
            let unreadable = vec![("x".to_owned(), StoredFault::Newer(9)); number % 3];
            let next = (number % 2 == 0).then(|| "y".to_owned());
            let page = QuarantinePage { entries: entries[..number].to_vec(), unreadable, next };
            let told = format!("{page:?}");
            assert_eq!(format!("{:?}", read(page).await), told);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pages_share_a_quarter_of_the_budget_and_give_back_what_was_sent() {
        let pages = pages(8 << 20);
        let quarter = pages.held.budget().max_bytes() / 4;
        let mut first = pages.room(quarter).await.expect("a quarter of the budget");
        assert!(pages.room(1 << 10).await.is_none(), "and no more, however long one waits");
        assert!(pages.held.budget().has_bytes(), "likes have the rest");
        first.set(1 << 20);
        drop(pages.room(quarter - (1 << 20)).await.expect("what was given back"));
        let page = QuarantinePage { entries: vec![entry("a", 1 << 19), entry("b", 1 << 19)], ..Default::default() };
        let mut body = written(page, first).into_data_stream();
        let full = pages.held.budget().bytes();
        while pages.held.budget().bytes() == full {
            body.next().await.expect("more to come").expect("in memory");
        }
        assert!(pages.held.budget().bytes() <= full / 2 + 100);
        drop(body);
        assert_eq!(pages.held.budget().bytes(), 0);
    }
}
