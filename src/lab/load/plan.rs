//! A load as a function: what message number `i` is, and what like number `k` says.
//!
//! Likes are numbered in the order of their time. Users come round in turn: like `k` is of slot `k mod users`, in round
//! `k / users`. So the likes of one user are an arithmetic sequence, and what becomes of a user is known without a look
//! at any other.

use super::posts::Posts;
use super::random::{About, Permutation, Stream, bound};
use super::{Config, ConfigError, Expectation, Generator, Kind, Shape};

/// Microseconds in the day that all events are of.
const DAY_MICROS: u64 = 86_400_000_000;

/// How far a late like is moved at most, in likes. A power of two, because pairs differ in one bit.
const MAX_LATE: u64 = 1 << 16;

/// Likes in a block within which shuffled likes change places.
const BLOCK: u64 = 64;

/// A load of which everything is known.
#[derive(Clone, Debug)]
pub struct Plan {
    config: Config,
    posts: Posts,
    users: Permutation,
    /// Upper bounds of the kinds in the hash of a position, in the order of [`FAULTS`].
    kinds: [u64; FAULTS.len()],
    likes: u64,
    step_micros: u64,
    late_distance: u64,
    late: u64,
    shuffled: u64,
    unlikes: u64,
    streams: Streams,
}

/// The faults that are messages of their own, in the order in which their shares are laid end to end.
const FAULTS: [Kind; 5] = [Kind::Redelivered, Kind::Retried, Kind::DoubleClicked, Kind::Poison, Kind::Oversized];

#[derive(Clone, Copy, Debug)]
struct Streams {
    kind: Stream,
    post: Stream,
    liked: Stream,
    late: Stream,
    shuffled: Stream,
}

/// One like of a plan: what an event says, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedLike {
    pub(super) post: u32,
    pub(super) user: u64,
    pub(super) liked: bool,
    /// Its time in microseconds of the day, and its version.
    pub(super) micros: u64,
}

impl Plan {
    /// Lays out a load. This looks at every message once, about a nanosecond each, to know how many likes there are.
    ///
    /// # Errors
    /// When the load cannot be.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let stream = |about| Stream::new(config.seed, about);
        let faults = config.faults;
        let shares = [faults.redelivered, faults.retried, faults.double_clicked, faults.poison, faults.oversized];
        let mut sum = 0.0;
        let kinds = shares.map(|share| {
            sum += share;
            bound(sum)
        });
        let mut plan = Self {
            posts: Posts::new(&config),
            users: Permutation::new(stream(About::User), config.users),
            kinds,
            likes: 0,
            step_micros: DAY_MICROS,
            late_distance: 0,
            late: bound(faults.late),
            shuffled: bound(faults.shuffled),
            unlikes: if config.shape == Shape::Toggle { 0 } else { bound(config.unlikes) },
            streams: Streams {
                kind: stream(About::Kind),
                post: stream(About::Post),
                liked: stream(About::Liked),
                late: stream(About::Late),
                shuffled: stream(About::Shuffled),
            },
            config,
        };
        plan.likes = plan.totals_of_a_pass()[Kind::First as usize];
        plan.step_micros = DAY_MICROS / plan.likes.max(1);
        plan.late_distance = if plan.likes < 2 { 0 } else { MAX_LATE.min(1 << (plan.likes / 2).ilog2()) };
        Ok(plan)
    }

    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Different likes: events that are neither a repetition nor a double click.
    #[must_use]
    pub fn likes(&self) -> u64 {
        self.likes
    }

    /// Messages in all, every pass counted.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.config.messages * self.config.shape.passes()
    }

    /// The stream from its beginning.
    #[must_use]
    pub fn generate(&self) -> Generator<'_> {
        Generator::new(self)
    }

    /// What every post must count when all of it has arrived. Takes about 20 ns a like, and 12 bytes a post.
    #[must_use]
    pub fn expect(&self) -> Expectation {
        Expectation::of(self)
    }

    /// How many messages of a pass are of each kind.
    pub(super) fn totals_of_a_pass(&self) -> [u64; Kind::COUNT] {
        let mut totals = [0; Kind::COUNT];
        for position in 0..self.config.messages {
            let first = totals[Kind::First as usize] == 0;
            totals[self.kind(position, first) as usize] += 1;
        }
        totals
    }

    /// The kind of the message at `position` of a pass. Before the first like there is nothing to repeat.
    #[inline]
    pub(super) fn kind(&self, position: u64, nothing_to_repeat: bool) -> Kind {
        let bits = self.streams.kind.at(position);
        if bits >= self.kinds[FAULTS.len() - 1] {
            return Kind::First;
        }
        let fault =
            self.kinds.iter().zip(FAULTS).find(|(bound, _)| bits < **bound).map_or(Kind::First, |(_, kind)| kind);
        if nothing_to_repeat && fault.repeats() { Kind::First } else { fault }
    }

    /// Which like is sent as number `ordinal` of the likes. A permutation: pairs far apart change places, then pairs
    /// within a block.
    #[inline]
    pub(super) fn like_sent(&self, ordinal: u64) -> u64 {
        let mut like = ordinal;
        if self.late > 0 {
            like = self.swapped(like, like ^ self.late_distance, self.streams.late, self.late);
        }
        if self.shuffled > 0 {
            // The block's own mask: the same for both of a pair, never 0.
            let mask = 1 + (!self.streams.shuffled.at(like / BLOCK)) % (BLOCK - 1);
            like = self.swapped(like, like ^ mask, self.streams.shuffled, self.shuffled);
        }
        like
    }

    /// The other of a pair, if the pair exists and its hash says so. The hash is of the smaller one, so both agree.
    #[inline]
    fn swapped(&self, like: u64, other: u64, stream: Stream, bound: u64) -> u64 {
        if other < self.likes && like != other && stream.at(like.min(other)) < bound { other } else { like }
    }

    /// What like number `like` says.
    #[inline]
    pub(super) fn like(&self, like: u64) -> PlannedLike {
        let slot = like % self.config.users;
        let (post, liked) = self.wish(like, slot);
        PlannedLike { post, user: self.users.at(slot), liked, micros: like * self.step_micros }
    }

    /// The post and the state that like number `like`, of the user in `slot`, asks for.
    #[inline]
    pub(super) fn wish(&self, like: u64, slot: u64) -> (u32, bool) {
        let users = self.config.users;
        if self.config.shape == Shape::Toggle {
            return (self.posts.choose(self.streams.post.at(slot)), (like / users).is_multiple_of(2));
        }
        let liked = like < users || self.streams.liked.at(like) >= self.unlikes;
        let of = if liked { like } else { like - users };
        (self.posts.choose(self.streams.post.at(of)), liked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::load::Faults;

    #[test]
    fn late_and_shuffled_likes_are_each_sent_once_whatever_their_number() {
        for messages in [1, 2, 3, 5, 63, 64, 65, 1_000, 200_000] {
            let faults = Faults { late: 0.3, shuffled: 0.9, ..Faults::default() };
            let plan = Plan::new(Config { messages, faults, ..Config::default() }).expect("can be");
            let mut sent: Vec<_> = (0..plan.likes()).map(|ordinal| plan.like_sent(ordinal)).collect();
            let moved = sent.iter().zip(0..).filter(|(like, ordinal)| **like != *ordinal).count();
            assert!(messages < 63 || moved > sent.len() / 2, "{messages}: {moved}");
            sent.sort_unstable();
            assert!(sent.into_iter().eq(0..plan.likes()), "{messages}");
        }
    }

    #[test]
    fn a_fault_takes_its_share_of_the_messages() {
        let faults = Faults { redelivered: 0.2, retried: 0.1, double_clicked: 0.05, poison: 0.02, ..Faults::default() };
        let plan = Plan::new(Config { faults, ..Config::default() }).expect("can be");
        let totals = plan.totals_of_a_pass();
        for (kind, wanted) in [(Kind::First, 63_000), (Kind::Redelivered, 20_000), (Kind::Retried, 10_000)] {
            assert!(totals[kind as usize].abs_diff(wanted) < 700, "{kind:?}: {totals:?}");
        }
        assert!(totals[Kind::Poison as usize].abs_diff(2_000) < 300, "{totals:?}");
        assert_eq!((totals[Kind::Oversized as usize], totals.iter().sum::<u64>()), (0, 100_000));
    }
}
