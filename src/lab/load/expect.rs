//! What must be true once a load has arrived, recomputed from the seed.

use super::{Kind, Plan};
use std::io::{self, Write};

/// How many messages are of each kind, of all passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All of them.
    pub messages: u64,
    /// Events sent for the first time in their pass.
    pub first: u64,
    /// Messages that were sent before, again.
    pub redelivered: u64,
    /// Events that were sent before, in a new message.
    pub retried: u64,
    /// New events that ask for what an earlier one asked for.
    pub double_clicked: u64,
    /// Messages that are no event.
    pub poison: u64,
    /// Messages that are no event, and large.
    pub oversized: u64,
}

impl Totals {
    /// Deliveries that are quarantined.
    #[must_use]
    pub fn quarantined(&self) -> u64 {
        self.poison + self.oversized
    }
}

/// The outcome of a whole plan, under the order `occurred-at` or `version`. Under `none` it holds where nothing is
/// unliked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    prefix: String,
    counts: Vec<u32>,
    /// Whether the post is in any event at all.
    seen: Vec<bool>,
    members: u64,
    totals: Totals,
}

impl Expectation {
    pub(super) fn of(plan: &Plan) -> Self {
        let config = plan.config();
        let posts = config.posts as usize;
        let mut counts = vec![0_u32; posts];
        // Which slot met the post last, plus one. A user's likes are walked from the newest, so the first that meets a
        // post is the one that stays.
        let mut met_by = vec![0_u32; posts];
        let mut members = 0;
        for slot in 0..config.users.min(plan.likes()) {
            let stamp = slot as u32 + 1;
            let rounds = (plan.likes() - 1 - slot) / config.users + 1;
            for round in (0..rounds).rev() {
                let (post, liked) = plan.wish(round * config.users + slot, slot);
                let met = &mut met_by[post as usize];
                if *met != stamp {
                    *met = stamp;
                    members += 1;
                    counts[post as usize] += u32::from(liked);
                }
            }
        }
        let of_a_pass = plan.totals_of_a_pass();
        let passes = config.shape.passes();
        let total = |kind: Kind| of_a_pass[kind as usize] * passes;
        let totals = Totals {
            messages: plan.messages(),
            first: total(Kind::First),
            redelivered: total(Kind::Redelivered),
            retried: total(Kind::Retried),
            double_clicked: total(Kind::DoubleClicked),
            poison: total(Kind::Poison),
            oversized: total(Kind::Oversized),
        };
        let seen = met_by.iter().map(|stamp| *stamp != 0).collect();
        Self { prefix: config.post_prefix.clone(), counts, seen, members, totals }
    }

    /// Every post that is in any event, and its count. A post whose likes were all taken back counts 0.
    pub fn posts(&self) -> impl Iterator<Item = (String, u64)> {
        let numbered = self.seen.iter().zip(&self.counts).enumerate();
        numbered
            .filter(|(_, (seen, _))| **seen)
            .map(|(post, (_, count))| (format!("{}{post}", self.prefix), u64::from(*count)))
    }

    /// The count of post number `post`; 0 for one that the plan does not have.
    #[must_use]
    pub fn count(&self, post: u32) -> u64 {
        self.counts.get(post as usize).copied().map_or(0, u64::from)
    }

    /// Pairs of post and user that are in any event: membership documents, tombstones included.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.members
    }

    /// Members that like their post: the sum of all counts.
    #[must_use]
    pub fn liked(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    /// How many messages are of each kind.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Writes the counts, one `{"post":"ID","count":N}` a line.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_jsonl(&self, out: &mut impl Write) -> io::Result<()> {
        for (post, count) in self.posts() {
            // A prefix has nothing that JSON would escape.
            writeln!(out, "{{\"post\":\"{post}\",\"count\":{count}}}")?;
        }
        Ok(())
    }
}
