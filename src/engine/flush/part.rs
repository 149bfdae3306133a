//! A sealed batch, or a part of one, with what its attempts have taught so far; and what follows when it fails. Pure.

use super::deferred::UnderWay;
use crate::common::backoff::Lasting;
use crate::engine::aggregate::Sealed;
use crate::engine::receipt::Receipt;
use crate::store::Attempt;
use std::time::{Duration, Instant};

/// Failures in a row, with a code that passes, after which it is asked whether the store works: "too large" hides behind
/// several codes, and so does one document that somebody has locked.
const ASK_AFTER: u32 = 3;

/// The same for a part that waits aside, where the store was known to work a moment ago.
const ASK_AFTER_ASIDE: u32 = 2;

/// An attempt that has failed after so long has waited for a lock, and counts as many: the next one would wait as long.
const LONG_FAILURE: Duration = Duration::from_secs(2);

/// A like that the store refused alone so often, for so long, while it took other writes, is refused for good. A store may
/// answer with a code that means "never" for some seconds; half a minute is longer than its restarts take.
const LONE_REFUSALS: u32 = 5;
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Failures that lengthen the wait of contended likes. They are a race and no failure of the store: someone wins each round,
/// so waiting for long only lets more likes pile up.
pub(super) const MAX_CONTENDED_WAITS: u32 = 4;

pub(crate) struct Part {
    pub(super) sealed: Sealed<Receipt>,
    pub(super) state: State,
    /// While it is there, further likes of its members wait aside.
    pub(super) under_way: Option<UnderWay>,
}

/// What a part is there for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be applied.
    #[default]
    Apply,
    /// To be left to redelivery when its time has come: a newer worker can do it. It waits, so that a source that delivers
    /// again at once is not asked at the speed of the CPU.
    Leave,
}

#[derive(Clone, Copy, Default)]
pub(super) struct State {
    pub(super) purpose: Purpose,
    pub(super) attempts: u32,
    /// Failures in a row; they lengthen the wait.
    pub(super) failures: u32,
    /// Whether an attempt may have committed without an answer. Parts of such a part inherit it: their keys are new,
    /// but their members may be written, so they read before they write.
    pub(super) resuming: bool,
    /// Whether others keep writing its members.
    pub(super) contended: bool,
    /// Refusals of it as a part of one like, while the store took other writes.
    lone_refusals: Lasting,
}

/// Where a part is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// On a lane, which takes no other batch meanwhile.
    Lane,
    /// On a contended lane, in the way of no other batch.
    Contended,
}

/// What a failure means that names no like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// It may pass.
    Passes,
    /// The code means that no batch can succeed.
    Never,
    /// The code means that this batch cannot succeed.
    Refused,
}

/// What follows a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Follows {
    /// The same again after a wait, where it is.
    Again,
    /// The same again after a wait, aside.
    Contended,
    /// Parts of it, aside: what is healthy of it commits with the first of them.
    Divided,
    /// It is refused for good.
    Quarantined,
}

impl State {
    /// Notes a failure that was answered after `took`.
    pub(super) fn failed(&mut self, failure: Failure, took: Duration) {
        if failure != Failure::Refused {
            self.end_of_refusals();
        }
        let long = failure == Failure::Passes && took >= LONG_FAILURE;
        self.failures = self.failures.saturating_add(if long { ASK_AFTER } else { 1 });
    }

    /// The row of refusals that it is in.
    pub(super) fn refusals(&self) -> Option<Lasting> {
        (self.lone_refusals != Lasting::default()).then_some(self.lone_refusals)
    }

    /// It was refused when it came before: the row goes on.
    pub(super) fn goes_on(&mut self, row: Lasting) {
        if self.refusals().is_none() {
            self.lone_refusals = row;
        }
    }

    /// Another answer came: a row of refusals is over.
    pub(super) fn end_of_refusals(&mut self) {
        self.lone_refusals = Lasting::default();
    }

    /// Whether it must be known now if the store works: that decides whether this part is at fault.
    pub(super) fn asks(&self, place: Place, likes: usize, failure: Failure) -> bool {
        match (place, failure) {
            (Place::Lane, Failure::Passes) => self.failures >= ASK_AFTER,
            (Place::Lane, _) => true,
            (Place::Contended, _) if likes > 1 => self.failures >= ASK_AFTER_ASIDE,
            // Nothing follows from the answer, but that the worker pauses if the store fails as a whole.
            (Place::Contended, Failure::Passes) => self.failures.is_multiple_of(ASK_AFTER),
            (Place::Contended, _) => true,
        }
    }

    /// What follows a failure, `now`, when the store took another write since the attempt began, or did not.
    pub(super) fn follows(
        &mut self,
        place: Place,
        likes: usize,
        failure: Failure,
        store_works: bool,
        now: Instant,
    ) -> Follows {
        match (place, likes) {
            // Everything may fail as this does: it is kept whole, where it is.
            _ if !store_works => Follows::Again,
            (_, 1) if self.note_refusal(failure, now) => Follows::Quarantined,
            (Place::Lane, 2..) if self.failures >= ASK_AFTER_ASIDE => Follows::Divided,
            (Place::Lane, _) => Follows::Contended,
            (Place::Contended, 2..) => Follows::Divided,
            (Place::Contended, _) => Follows::Again,
        }
    }

    /// Notes a refusal of a part of one like, and answers whether it is refused for good.
    fn note_refusal(&mut self, failure: Failure, now: Instant) -> bool {
        if failure != Failure::Refused {
            return false;
        }
        self.lone_refusals.came(now);
        self.lone_refusals.is(LONE_REFUSALS, REFUSED_FOR)
    }

    /// The state of a part, of which nothing is known but what may have committed.
    pub(super) fn of_a_part(&self) -> Self {
        Self { resuming: self.resuming, contended: self.contended, ..Self::default() }
    }

    /// The state of what is left when likes that made trouble were parted from it.
    pub(super) fn of_the_rest(&self) -> Self {
        Self { resuming: self.resuming, ..Self::default() }
    }

    /// Whether it fails alone, again and again: it is not to take the place of what may succeed.
    pub(super) fn is_stuck(&self, likes: usize) -> bool {
        likes == 1 && !self.contended && self.failures >= ASK_AFTER
    }
}

impl Part {
    pub(super) fn new(sealed: Sealed<Receipt>) -> Self {
        Self { sealed, state: State::default(), under_way: None }
    }

    pub(super) fn likes(&self) -> usize {
        self.sealed.likes()
    }

    pub(super) fn next_attempt(&mut self, shard: u16) -> Attempt {
        self.state.attempts += 1;
        Attempt { number: self.state.attempts, resuming: self.state.resuming, shard }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(failures: u32) -> State {
        State { failures, ..State::default() }
    }

    #[test]
    fn while_the_store_fails_as_a_whole_every_piece_is_kept_as_it_is() {
        let now = Instant::now();
        for place in [Place::Lane, Place::Contended] {
            for failure in [Failure::Passes, Failure::Never, Failure::Refused] {
                for likes in [1, 2, 500] {
                    assert_eq!(state(9).follows(place, likes, failure, false, now), Follows::Again);
                }
            }
        }
    }

    #[test]
    fn a_lane_is_free_as_soon_as_it_is_known_that_the_store_works() {
        let now = Instant::now();
        for failures in 1..5 {
            for failure in [Failure::Passes, Failure::Never, Failure::Refused] {
                for likes in [1, 2, 500] {
                    let follows = state(failures).follows(Place::Lane, likes, failure, true, now);
                    assert!(matches!(follows, Follows::Contended | Follows::Divided), "{follows:?}");
                }
            }
        }
        assert!(!state(2).asks(Place::Lane, 500, Failure::Passes), "a race for a shard is nothing unusual");
        assert!(state(1).asks(Place::Lane, 500, Failure::Refused));
        let mut slow = state(0);
        slow.failed(Failure::Passes, LONG_FAILURE);
        assert!(slow.asks(Place::Lane, 500, Failure::Passes), "the next attempt would wait as long");
    }

    #[test]
    fn a_like_is_refused_for_good_after_half_a_minute_alone_and_not_before_five_refusals() {
        let (start, mut often, mut seldom) = (Instant::now(), state(1), state(1));
        let at = |state: &mut State, ms| {
            state.follows(Place::Contended, 1, Failure::Refused, true, start + Duration::from_millis(ms))
        };
        for ms in (0..30_000).step_by(100) {
            assert_eq!(at(&mut often, ms), Follows::Again, "{ms}");
        }
        assert_eq!(at(&mut often, 30_000), Follows::Quarantined);
        for ms in [0, 20_000, 40_000, 60_000] {
            assert_eq!(at(&mut seldom, ms), Follows::Again, "{ms}");
        }
        assert_eq!(at(&mut seldom, 80_000), Follows::Quarantined);
    }

    #[test]
    fn a_code_that_passes_never_quarantines_however_long_it_lasts() {
        let (start, mut locked) = (Instant::now(), state(1));
        for minute in 0..60 {
            let now = start + Duration::from_secs(60 * minute);
            for failure in [Failure::Passes, Failure::Never] {
                assert_eq!(locked.follows(Place::Contended, 1, failure, true, now), Follows::Again);
            }
        }
    }
}
