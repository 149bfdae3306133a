//! Decides which commit fails, and sees what is acknowledged when a commit is sent.

use crate::lost_answer::cell::{At, Cell, Failure, When};
use crate::lost_answer::judge::Letters;
use gcloud_sdk::tonic::Code;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// What a commit carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) key: Vec<u8>,
    pub(crate) users: BTreeSet<String>,
}

#[derive(Default)]
struct State {
    sent: Vec<Sent>,
    /// The commits at which the cell's own failure struck.
    struck: Vec<usize>,
    wrong: Vec<String>,
}

/// The script of one cell.
pub(crate) struct Script {
    cell: Cell,
    letters: Letters,
    state: Mutex<State>,
}

const LOST: (Failure, When) = (Failure::Code(Code::Unavailable), When::BeforeApplying);
const NOT_DONE: (Failure, When) = (Failure::Code(Code::Aborted), When::BeforeApplying);
const REFUSED: (Failure, When) = (Failure::Code(Code::InvalidArgument), When::BeforeApplying);

impl Script {
    pub(crate) fn new(cell: Cell, letters: Letters) -> Self {
        Self { cell, letters, state: Mutex::default() }
    }

    /// What becomes of the next commit; `None`: nothing happens to it. A probe, which has no likes, fails only when the
    /// store fails as a whole.
    pub(crate) fn next(&self, sent: Sent) -> Option<(Failure, When)> {
        if sent.users.is_empty() && !matches!(self.cell.at, At::EachInARow(_)) {
            return None;
        }
        let acknowledged = self.letters.acknowledged();
        let mut state = self.state.lock().unwrap();
        if let Some(early) = sent.users.intersection(&acknowledged).next() {
            let number = state.sent.len();
            state.wrong.push(format!("{early} was acknowledged before commit {number}, which carries it"));
        }
        let number = state.sent.len();
        state.sent.push(sent);
        let own = (self.cell.failure, self.cell.when);
        let (lead, own_from, own_to) = match self.cell.at {
            At::First => (None, 0, 1),
            At::Retried => (Some(LOST), 1, 2),
            At::PartOfAFailing => (Some(NOT_DONE), 3, 4),
            At::PartOfARefused => (Some(REFUSED), 2, 3),
            At::EachInARow(many) => (None, 0, many),
        };
        if number < own_from {
            return lead;
        }
        if number < own_to {
            state.struck.push(number);
            return Some(own);
        }
        None
    }

    /// Asserts that the cell's failure struck, at the attempt that it was meant for, and that nothing was wrong meanwhile.
    pub(crate) fn check(&self) {
        let (cell, state) = (&self.cell, self.state.lock().unwrap());
        assert!(state.wrong.is_empty(), "{cell}: {:?}", state.wrong);
        let Some(&first) = state.struck.first() else { panic!("{cell}: the failure never struck: {:?}", state.sent) };
        let (whole, failed) = (&state.sent[0], &state.sent[first]);
        match cell.at {
            At::First | At::EachInARow(_) => assert_eq!(first, 0, "{cell}"),
            At::Retried => assert_eq!(failed, whole, "{cell}: it is the same batch"),
            At::PartOfAFailing | At::PartOfARefused => {
                assert_ne!(failed.key, whole.key, "{cell}: a part has a key of its own");
                let part = failed.users.is_subset(&whole.users) && failed.users.len() < whole.users.len();
                assert!(part && !failed.users.is_empty(), "{cell}: {failed:?} of {whole:?}");
            }
        }
    }
}
