//! Load: streams of events whose outcome is known from a seed alone.
//!
//! A [`Plan`] derives everything from a counter through keyed hashes: what message number `i` is, which like it carries
//! and what that like says. Nothing is stored, so a plan of a billion events costs as much memory as its posts. A
//! [`Generator`] walks the plan and writes bytes; [`Plan::expect`] walks the same likes in another order, member by
//! member, and knows what every post must count at the end. Whoever sends the stream, in whatever order it arrives and
//! however often, can compare.
//!
//! Time here is the events' own. When each is to be sent is a [`Schedule`]; sending is in [`drive`], to a [`Target`].

mod config;
pub mod drive;
mod expect;
mod generator;
mod plan;
mod posts;
mod random;
mod schedule;
pub mod target;
mod write;

pub use config::{Config, ConfigError, Faults, MAX_EVENTS, MAX_OVERSIZED_BYTES, MAX_POSTS, MIN_OVERSIZED_BYTES, Shape};
pub use expect::{Expectation, Totals};
pub use generator::{Generator, Kind, Message};
pub use plan::Plan;
pub use schedule::Schedule;
pub use target::Target;
