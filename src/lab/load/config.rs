//! What a load is made of, and which wishes cannot be.

use std::fmt;
use std::str::FromStr;

/// Messages of one plan at most: at 8 µs between two likes they still fit in the one day that events are of.
pub const MAX_EVENTS: u64 = 10_000_000_000;

/// Posts of one plan at most. A post costs 8 bytes to choose (Zipf alone) and 12 to expect: 200 MB in all.
pub const MAX_POSTS: u64 = 10_000_000;

/// Users of one plan at most: they are counted with 32 bits, and one value means nobody.
const MAX_USERS: u64 = u32::MAX as u64 - 1;

/// The smallest oversized payload: an id of more than 1,500 bytes and the rest of the event.
pub const MIN_OVERSIZED_BYTES: usize = 2_000;

/// The largest: under the 10 MB that Pub/Sub takes in one message, with room for what travels beside it.
pub const MAX_OVERSIZED_BYTES: usize = 9 << 20;

/// The longest prefix of post ids, in bytes; ids have 1,500 in all, and long ones only slow a load down.
const MAX_PREFIX_BYTES: usize = 200;

/// Which posts are liked, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Post 0 takes `share` of the likes, the others share the rest evenly.
    Viral {
        /// From 0 to 1.
        share: f64,
    },
    /// Post number `n`, counted from 1, is liked in proportion to `1 / n^exponent`.
    Zipf {
        /// 0 is uniform; 1 is what popularity on the web looks like; above 3 nearly all likes are of one post.
        exponent: f64,
    },
    /// Every post alike.
    Uniform,
    /// As viral, sent at a rate that ramps from nothing to full within seconds: a post that a push message shows to
    /// everybody. What is sent is the same; when, is the schedule's.
    Flash {
        /// From 0 to 1.
        share: f64,
    },
    /// Users like and unlike one post each, again and again: every like of a user is the opposite of the one before.
    Toggle,
    /// As viral, and when the day is over, the same day once more, byte by byte: a seek to an old snapshot.
    Replay {
        /// From 0 to 1.
        share: f64,
    },
}

impl Shape {
    /// The names that [`FromStr`] reads, for messages.
    pub const NAMES: &str = "viral, zipf, uniform, flash, toggle, replay";

    /// The name alone.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Viral { .. } => "viral",
            Self::Zipf { .. } => "zipf",
            Self::Uniform => "uniform",
            Self::Flash { .. } => "flash",
            Self::Toggle => "toggle",
            Self::Replay { .. } => "replay",
        }
    }

    /// How often the stream is sent as a whole.
    #[must_use]
    pub fn passes(&self) -> u64 {
        if matches!(self, Self::Replay { .. }) { 2 } else { 1 }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Viral { share } | Self::Flash { share } | Self::Replay { share } => {
                write!(f, "{}:{share}", self.name())
            }
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
            Self::Uniform | Self::Toggle => f.write_str(self.name()),
        }
    }
}

/// Reads a name with its number after a colon, such as `viral:0.8` or `zipf:1.2`. Without one, the share is a half and
/// the exponent 1.
impl FromStr for Shape {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let unknown = || ConfigError::UnknownShape(text.to_owned());
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let number = number.map(|n| n.parse::<f64>().map_err(|_| unknown())).transpose()?;
        let share = number.unwrap_or(0.5);
        match (name, number) {
            ("viral", _) => Ok(Self::Viral { share }),
            ("flash", _) => Ok(Self::Flash { share }),
            ("replay", _) => Ok(Self::Replay { share }),
            ("zipf", _) => Ok(Self::Zipf { exponent: number.unwrap_or(1.0) }),
            ("uniform", None) => Ok(Self::Uniform),
            ("toggle", None) => Ok(Self::Toggle),
            _ => Err(unknown()),
        }
    }
}

/// What goes wrong in the stream. Every share is of all messages, from 0 to 1, but for `late` and `shuffled`, which are
/// of the likes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The same message again, as a broker delivers it whose acknowledgement was lost.
    pub redelivered: f64,
    /// The same event in a message with a new id, as a publisher sends it whose answer was lost.
    pub retried: f64,
    /// A new event of the same user and post, a microsecond later: a double click.
    pub double_clicked: f64,
    /// Likes that change places with one far away, up to 65,536 likes later.
    pub late: f64,
    /// Likes that change places with one nearby, at most 63 likes away.
    pub shuffled: f64,
    /// Messages that are no event.
    pub poison: f64,
    /// Messages with an id that is too long, of [`Config::oversized_bytes`]. Poison too.
    pub oversized: f64,
}

impl Faults {
    fn shares(&self) -> [(&'static str, f64); 7] {
        [
            ("redelivered", self.redelivered),
            ("retried", self.retried),
            ("double_clicked", self.double_clicked),
            ("poison", self.poison),
            ("oversized", self.oversized),
            ("late", self.late),
            ("shuffled", self.shuffled),
        ]
    }
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which posts are liked, and how.
    pub shape: Shape,
    /// What goes wrong.
    pub faults: Faults,
    /// Messages of one pass, faults included.
    pub messages: u64,
    /// Posts to choose from.
    pub posts: u64,
    /// Users, who come round in turn. With as many users as likes, each likes once.
    pub users: u64,
    /// The share of likes that take back what the same user liked in the round before. In the first round there is
    /// nothing to take back, and `Toggle` alternates by itself.
    pub unlikes: f64,
    /// Bytes of an oversized payload.
    pub oversized_bytes: usize,
    /// What post ids begin with. Two loads into one store need two prefixes, or they count each other's likes.
    pub post_prefix: String,
    /// Everything random grows from it.
    pub seed: u64,
}

impl Default for Config {
    /// A hundred thousand messages without a fault, half of them on one of a thousand posts.
    fn default() -> Self {
        Self {
            shape: Shape::Viral { share: 0.5 },
            faults: Faults::default(),
            messages: 100_000,
            posts: 1_000,
            users: 1_000_000,
            unlikes: 0.0,
            oversized_bytes: 64 << 10,
            post_prefix: "post-".to_owned(),
            seed: 1,
        }
    }
}

/// A load that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No shape has the name, or its number is none.
    #[error("there is no shape '{0}': use one of {names}, with a number after a colon as in viral:0.8 or zipf:1.2", names = Shape::NAMES)]
    UnknownShape(String),
    /// A share is no number from 0 to 1.
    #[error("the share '{name}' is {share}: a share is a number from 0 to 1")]
    Share {
        /// Which.
        name: &'static str,
        /// As given.
        share: f64,
    },
    /// Together the faults are more than everything.
    #[error("the shares redelivered, retried, double_clicked, poison and oversized are {0} together: at most 1 can be")]
    TooManyFaults(f64),
    /// Zipf with an exponent that makes no sense.
    #[error("the exponent of zipf is {0}: use a number from 0 to 10")]
    Exponent(f64),
    /// A number is 0 or beyond its limit.
    #[error("{value} {name} cannot be: use 1 to {most}")]
    Number {
        /// Of what.
        name: &'static str,
        /// As given.
        value: u64,
        /// The limit.
        most: u64,
    },
    /// An oversized payload would be no such thing, or too large for any target.
    #[error("an oversized payload of {0} bytes cannot be: use {MIN_OVERSIZED_BYTES} to {MAX_OVERSIZED_BYTES}")]
    OversizedBytes(usize),
    /// The prefix would make ids that are no document ids.
    #[error("the post prefix '{0}' cannot be: use at most 200 letters, digits, '-', '_' and '.', not '__' in front")]
    Prefix(String),
}

impl Config {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The first wish that cannot be met.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (name, value, most) in [
            ("messages", self.messages, MAX_EVENTS),
            ("posts", self.posts, MAX_POSTS),
            ("users", self.users, MAX_USERS),
        ] {
            if value == 0 || value > most {
                return Err(ConfigError::Number { name, value, most });
            }
        }
        let share_of_shape = match self.shape {
            Shape::Viral { share } | Shape::Flash { share } | Shape::Replay { share } => share,
            Shape::Zipf { exponent } if !(0.0..=10.0).contains(&exponent) => {
                return Err(ConfigError::Exponent(exponent));
            }
            Shape::Zipf { .. } | Shape::Uniform | Shape::Toggle => 0.0,
        };
        let shares = self.faults.shares();
        for (name, share) in shares.into_iter().chain([("of the shape", share_of_shape), ("unlikes", self.unlikes)]) {
            if !(0.0..=1.0).contains(&share) {
                return Err(ConfigError::Share { name, share });
            }
        }
        let of_messages: f64 = shares[..5].iter().map(|(_, share)| share).sum();
        // Ten tenths may add up to a little more than one.
        if of_messages > 1.0 + 1e-9 {
            return Err(ConfigError::TooManyFaults(of_messages));
        }
        if !(MIN_OVERSIZED_BYTES..=MAX_OVERSIZED_BYTES).contains(&self.oversized_bytes) {
            return Err(ConfigError::OversizedBytes(self.oversized_bytes));
        }
        let prefix = &self.post_prefix;
        let legal = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !legal || prefix.len() > MAX_PREFIX_BYTES || prefix.starts_with("__") {
            return Err(ConfigError::Prefix(prefix.clone()));
        }
        Ok(())
    }
}
