//! Planted bugs. A checker that finds nothing proves something only if it would have found these.

use std::cell::Cell;

/// A part that is wrong in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The map looks for a key under one lock and inserts it under another.
    InsertsInTwoSteps,
    /// The map takes a value out under one lock and forgets the key under another.
    RemovesInTwoSteps,
    /// A lane remembers its batch before the store has answered for it.
    RemembersTooEarly,
    /// Whoever makes room tells nobody.
    TellsNobody,
}

thread_local! {
    /// All threads of a checked schedule run on one thread of the system.
    static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

impl Mutant {
    /// Whether it stands in for the real part in this run.
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Runs `check` with the double in place.
    pub(crate) fn planted<T>(self, check: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(self));
        let outcome = check();
        PLANTED.set(None);
        outcome
    }
}
