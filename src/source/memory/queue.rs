//! The line itself: what waits, what is held, and what became of the rest. No async and no clock.

use super::super::Meta;
use super::{Finish, Settled, Totals};
use crate::source::ack::Settlement;
use bytes::Bytes;
use std::collections::VecDeque;

/// A message in the line, or held by a token.
pub(super) struct Letter {
    pub(super) number: u64,
    pub(super) payload: Bytes,
    pub(super) meta: Option<Box<Meta>>,
    /// Which delivery the next one is, or the present one while held.
    pub(super) attempt: u32,
}

/// Invariant: `bytes` is what waits and what is held, so it falls only when a message is settled.
pub(super) struct Queue {
    waiting: VecDeque<Letter>,
    bytes: usize,
    totals: Totals,
    settled: VecDeque<Settled>,
    max_remembered: usize,
    finish: Option<Finish>,
}

impl Queue {
    pub(super) fn new(max_remembered: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            totals: Totals::default(),
            settled: VecDeque::new(),
            max_remembered,
            finish: None,
        }
    }

    /// The message's number, or its payload when there is no room.
    pub(super) fn publish(
        &mut self,
        payload: Bytes,
        meta: Option<Box<Meta>>,
        max_messages: usize,
        max_bytes: usize,
    ) -> Result<u64, Bytes> {
        let messages = self.totals.waiting + self.totals.held;
        if messages >= max_messages as u64 || self.bytes.saturating_add(payload.len()) > max_bytes {
            return Err(payload);
        }
        let number = self.totals.published;
        self.totals.published += 1;
        self.totals.waiting += 1;
        self.bytes += payload.len();
        self.waiting.push_back(Letter { number, payload, meta, attempt: 1 });
        Ok(number)
    }

    /// Up to `max` messages from the front, and whether the source has ended.
    pub(super) fn take(&mut self, max: usize) -> (Vec<Letter>, bool) {
        let ended = match self.finish {
            Some(Finish::AtOnce) => true,
            Some(Finish::WhenSettled) => self.totals.waiting + self.totals.held == 0,
            None => false,
        };
        if ended {
            return (Vec::new(), true);
        }
        let taken: Vec<Letter> = self.waiting.drain(..max.min(self.waiting.len())).collect();
        let count = taken.len() as u64;
        self.totals.waiting -= count;
        self.totals.held += count;
        self.totals.delivered += count;
        (taken, false)
    }

    pub(super) fn settle(&mut self, letter: &Letter, how: &Settlement) {
        self.totals.held -= 1;
        self.bytes -= letter.payload.len();
        match how {
            Settlement::Counted => self.totals.counted += 1,
            Settlement::Quarantined(_) => self.totals.quarantined += 1,
        }
        if self.max_remembered == 0 {
            return;
        }
        if self.settled.len() == self.max_remembered {
            self.settled.pop_front();
        }
        self.settled.push_back(Settled { number: letter.number, how: how.clone() });
    }

    pub(super) fn put_back(&mut self, mut letter: Letter) {
        self.totals.held -= 1;
        self.totals.waiting += 1;
        self.totals.dropped += 1;
        letter.attempt = letter.attempt.saturating_add(1);
        self.waiting.push_back(letter);
    }

    pub(super) fn finish(&mut self, when: Finish) {
        self.finish = Some(when);
    }

    pub(super) fn settled(&self) -> Vec<Settled> {
        self.settled.iter().cloned().collect()
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }
}
