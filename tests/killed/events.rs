//! The events of a round, and what they must lead to, computed from the events alone.

use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

/// Few users and many likes, so that most members change their mind, and every batch meets a membership of an earlier one.
const USERS: u32 = 80;

/// The posts beside the hot one.
const OTHER_POSTS: u32 = 8;

/// Events in a chunk, of which every worker of a round gets one. Some ten commits of ten likes.
const CHUNK: usize = 150;

/// A time of a like is one of so many seconds: two of one member may have the same.
const SECONDS: u32 = 600;

/// Who must be liked: the newest wish of each member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes(BTreeMap<(String, u32), Wish>);

/// In the order of the newest: by time, by event id as bytes, a removal after an addition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    second: u32,
    event_id: String,
    removes: bool,
}

impl Wishes {
    /// What every post must count, those that count 0 included.
    pub(crate) fn counts(&self) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for ((post, _), wish) in &self.0 {
            *counts.entry(post.clone()).or_default() += i64::from(!wish.removes);
        }
        counts
    }

    fn add(&mut self, post: &str, user: u32, wish: Wish) {
        let newest = self.0.entry((post.to_owned(), user)).or_insert_with(|| wish.clone());
        if *newest < wish {
            *newest = wish;
        }
    }
}

/// Everything that is sent so far, and what it must lead to.
pub(crate) struct Events {
    dice: SmallRng,
    sent: Vec<String>,
    pub(crate) wishes: Wishes,
    /// Payloads that are no event.
    pub(crate) poison: Vec<String>,
}

impl Events {
    pub(crate) fn new(dice: SmallRng) -> Self {
        Self { dice, sent: Vec::new(), wishes: Wishes::default(), poison: Vec::new() }
    }

    /// The next chunk: likes and unlikes in any order, events of this chunk and of earlier ones once more, some poison.
    pub(crate) fn chunk(&mut self) -> Vec<String> {
        (0..CHUNK).map(|_| self.one()).collect()
    }

    pub(crate) fn one(&mut self) -> String {
        let payload = match self.dice.random_range(0..100) {
            0..3 => {
                let payload = format!("rubbish {:x}", self.dice.random::<u64>());
                self.poison.push(payload.clone());
                payload
            }
            3..20 if !self.sent.is_empty() => self.sent[self.dice.random_range(0..self.sent.len())].clone(),
            _ => self.like(),
        };
        self.sent.push(payload.clone());
        payload
    }

    fn like(&mut self) -> String {
        let dice = &mut self.dice;
        let post = match dice.random_bool(0.6) {
            true => "hot".to_owned(),
            false => format!("post-{}", dice.random_range(0..OTHER_POSTS)),
        };
        let (user, second) = (dice.random_range(0..USERS), dice.random_range(0..SECONDS));
        let (event_id, removes) = (format!("{:016x}", dice.random::<u64>()), dice.random_bool(0.3));
        let kind = if removes { "removed" } else { "added" };
        let payload = format!(
            r#"{{"eventId":"{event_id}","type":"like.{kind}","postId":"{post}","userId":"u{user}","occurredAt":"2026-01-01T00:{:02}:{:02}Z"}}"#,
            second / 60,
            second % 60
        );
        self.wishes.add(&post, user, Wish { second, event_id, removes });
        payload
    }
}
