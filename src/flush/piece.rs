//! A sealed batch, or a part of one, with what its attempts have taught so far.

use crate::aggregate::Sealed;
use crate::receipt::Receipt;
use crate::store::Attempt;

pub(super) struct Piece {
    pub(super) sealed: Sealed<Receipt>,
    pub(super) state: State,
}

#[derive(Clone, Copy, Default)]
pub(super) struct State {
    pub(super) attempts: u32,
    /// Failures in a row; they lengthen the wait and halve the piece.
    pub(super) failures: u32,
    /// Whether an attempt may have committed without an answer. Parts of such a piece inherit it: their keys are new,
    /// but their members may be written, so they read before they write.
    pub(super) resuming: bool,
    /// The worker's commits when the store first refused what is in the piece.
    pub(super) refused_at_commits: Option<u64>,
    /// How often the store refused it as a piece of one like.
    pub(super) lone_refusals: u32,
}

impl Piece {
    pub(super) fn new(sealed: Sealed<Receipt>) -> Self {
        Self { sealed, state: State::default() }
    }

    pub(super) fn next_attempt(&mut self, shard: u16) -> Attempt {
        self.state.attempts += 1;
        Attempt { number: self.state.attempts, resuming: self.state.resuming, shard }
    }
}
