//! Memberships, and the one decision that every store makes with them.
//!
//! A membership document says whether a user likes a post, and which like said so last. It alone survives a crash and
//! a regrouped batch, so it alone decides whether a like still has an effect.

use crate::like::event::Like;
use std::cmp::Ordering;

/// The stored truth for one (post, user): the newest like that was seen, borrowed from wherever a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    /// Whether the user likes the post. A removal is kept as a tombstone with `false`.
    pub liked: bool,
    /// The position of the like that wrote this, in the order of the consumer's policy.
    pub order: i64,
    /// The event that wrote this; it breaks ties of `order`.
    pub event_id: &'a str,
}

impl Membership<'_> {
    /// The total order of the likes of one (post, user): by `order`, then by the bytes of the event id, then a
    /// removal after an addition.
    #[must_use]
    pub fn cmp_newness(&self, other: &Membership<'_>) -> Ordering {
        self.order
            .cmp(&other.order)
            .then_with(|| self.event_id.as_bytes().cmp(other.event_id.as_bytes()))
            .then_with(|| other.liked.cmp(&self.liked))
    }
}

impl Like {
    /// The membership that this like leaves behind when it is written.
    #[must_use]
    pub fn membership(&self) -> Membership<'_> {
        Membership { liked: self.liked(), order: self.order(), event_id: self.event_id() }
    }
}

/// What a like does to the membership that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not newer than what is stored, and of the same state: nothing to write.
    Duplicate,
    /// Not newer than what is stored, and of the other state: nothing to write.
    Stale,
    /// Newer than what is stored: the membership must be written, and the post's count changes by `delta`.
    ///
    /// A newer like of the same state is written with a delta of 0. Without that, an older removal that arrives later
    /// would win against it.
    Write {
        /// Liked now minus liked before: −1, 0 or +1.
        delta: i8,
    },
}

/// Decides what `like` does to `current`, the membership stored for the same (post, user).
///
/// For any multiset of likes, in any order and any split into batches, applying the decisions one after the other
/// leaves the same membership and the same sum of deltas; the property tests below hold this.
#[must_use]
pub fn decide(current: Option<Membership<'_>>, like: &Like) -> Decision {
    let wish = like.membership();
    let Some(current) = current else {
        return Decision::Write { delta: i8::from(wish.liked) };
    };
    match wish.cmp_newness(&current) {
        Ordering::Greater => Decision::Write { delta: i8::from(wish.liked) - i8::from(current.liked) },
        _ if wish.liked == current.liked => Decision::Duplicate,
        _ => Decision::Stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn like(order: i64, event_id: &str, liked: bool) -> Like {
        Like::new("post", "user", event_id, liked, order)
    }

    /// Applies likes one by one; the final membership and the sum of deltas.
    fn apply_all(likes: &[Like]) -> (Option<(bool, i64, String)>, i64) {
        let mut stored: Option<Like> = None;
        let mut count = 0;
        for like in likes {
            if let Decision::Write { delta } = decide(stored.as_ref().map(Like::membership), like) {
                count += i64::from(delta);
                stored = Some(like.clone());
            }
        }
        (stored.map(|l| (l.liked(), l.order(), l.event_id().to_owned())), count)
    }

    #[test]
    fn the_first_removal_leaves_a_tombstone_and_counts_nothing() {
        assert_eq!(decide(None, &like(1, "e", false)), Decision::Write { delta: 0 });
    }

    #[test]
    fn a_like_seen_again_is_a_duplicate() {
        let stored = like(1, "e", true);
        assert_eq!(decide(Some(stored.membership()), &stored), Decision::Duplicate);
    }

    #[test]
    fn an_older_removal_is_stale() {
        let stored = like(2, "e", true);
        assert_eq!(decide(Some(stored.membership()), &like(1, "f", false)), Decision::Stale);
    }

    #[test]
    fn a_newer_like_of_the_same_state_is_written_so_that_an_older_removal_loses() {
        let first = like(1, "a", true);
        let third = like(3, "c", true);
        assert_eq!(decide(Some(first.membership()), &third), Decision::Write { delta: 0 });
        assert_eq!(decide(Some(third.membership()), &like(2, "b", false)), Decision::Stale);
    }

    #[test]
    fn a_removal_wins_a_tie_against_an_addition_of_the_same_event() {
        let added = like(1, "e", true);
        let removed = like(1, "e", false);
        assert_eq!(decide(Some(added.membership()), &removed), Decision::Write { delta: -1 });
        assert_eq!(decide(Some(removed.membership()), &added), Decision::Stale);
    }

    #[test]
    fn event_ids_compare_as_bytes() {
        let capital = like(1, "Z", true);
        assert_eq!(decide(Some(capital.membership()), &like(1, "a", false)), Decision::Write { delta: -1 });
    }

    fn any_like() -> impl Strategy<Value = Like> {
        (0..4_i64, "[ab]{1,2}", any::<bool>()).prop_map(|(order, id, liked)| like(order, &id, liked))
    }

    proptest! {
        #[test]
        fn order_duplication_and_batching_never_change_the_outcome(
            likes in prop::collection::vec(any_like(), 1..12),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            seed in any::<u64>(),
        ) {
            let expected = apply_all(&likes);
            let mut shuffled = likes.clone();
            shuffled.extend(again.iter().map(|i| i.get(&likes).clone()));
            let mut state = seed | 1;
            for i in (1..shuffled.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let j = usize::try_from(state >> 33).expect("33 bits fit") % (i + 1);
                shuffled.swap(i, j);
            }
            prop_assert_eq!(apply_all(&shuffled), expected.clone());
            // Any split into batches: inside one, the newest like stays and the others are folded into it.
            let width = 1 + usize::try_from(seed % 5).expect("small");
            let batched: Vec<Like> = shuffled
                .chunks(width)
                .map(|batch| {
                    batch.iter().max_by(|a, b| a.membership().cmp_newness(&b.membership())).expect("not empty").clone()
                })
                .collect();
            prop_assert_eq!(apply_all(&batched), expected.clone());
            prop_assert_eq!(expected.1, i64::from(expected.0.is_some_and(|m| m.0)));
        }
    }
}
