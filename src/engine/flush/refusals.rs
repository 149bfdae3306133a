//! What is known of likes that the store refuses alone, beyond the delivery that brought them: a like that is left to redelivery
//! before it was refused for long enough comes again, and so does one that was quarantined, when its sender did not hear of it.

use crate::common::backoff::Lasting;
use crate::common::sync::Locked;
use crate::like::event::Like;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Likes that are remembered at most.
const MAX_LIKES: usize = 1_000;

/// How long one is remembered: whoever delivers such a like again does it within minutes.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// A like, whole.
type Whole = (String, String, String, bool, i64);

fn whole(like: &Like) -> Whole {
    (like.post().to_owned(), like.user().to_owned(), like.event_id().to_owned(), like.liked(), like.order())
}

/// Rows of refusals of likes that are not being tried now.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Whole, (Lasting, Instant)>>);

impl Refusals {
    fn known(&self) -> MutexGuard<'_, HashMap<Whole, (Lasting, Instant)>> {
        // Each change under the lock is whole.
        self.0.locked()
    }

    /// The like is no longer tried here, and was refused so often.
    pub(super) fn remember(&self, like: &Like, row: Lasting, now: Instant) {
        let mut known = self.known();
        if known.len() >= MAX_LIKES {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() >= MAX_LIKES {
            known.clear();
        }
        known.insert(whole(like), (row, now + REMEMBERED_FOR));
    }

    /// The row of refusals that goes on, now that the like was refused again.
    pub(super) fn of(&self, like: &Like, now: Instant) -> Lasting {
        let known = self.known();
        if known.is_empty() {
            return Lasting::default();
        }
        known.get(&whole(like)).filter(|(_, until)| *until > now).map_or_else(Lasting::default, |(row, _)| *row)
    }

    /// Another answer came for the like: its row is over.
    pub(super) fn forget(&self, like: &Like) {
        let mut known = self.known();
        if !known.is_empty() {
            known.remove(&whole(like));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_goes_on_for_ten_minutes_unless_another_answer_comes() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let [like, other] = ["u", "v"].map(|user| Like::new("p", user, "e", true, 1));
        let mut row = Lasting::default();
        row.came(start);
        refusals.remember(&like, row, start);
        assert_eq!(refusals.of(&like, start + Duration::from_secs(599)), row);
        assert_eq!(refusals.of(&like, start + Duration::from_secs(600)), Lasting::default());
        assert_eq!(refusals.of(&other, start), Lasting::default());
        refusals.forget(&like);
        assert_eq!(refusals.of(&like, start), Lasting::default());
    }

    #[test]
    fn however_many_likes_are_refused_a_thousand_are_remembered() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for user in 0..3_500 {
            refusals.remember(&Like::new("p", &user.to_string(), "e", true, 1), Lasting::default(), now);
        }
        assert!(refusals.known().len() <= MAX_LIKES);
    }
}
