//! Walks a plan and writes its messages, one after the other.

use super::Plan;
use super::random::{About, Stream, below};
use super::write::Writer;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// An event for the first time in its pass.
    First,
    /// A message that was sent before, again.
    Redelivered,
    /// An event that was sent before, in a new message.
    Retried,
    /// A new event that asks for what an earlier one asked for.
    DoubleClicked,
    /// No event.
    Poison,
    /// No event, and large.
    Oversized,
}

impl Kind {
    pub(super) const COUNT: usize = 6;

    /// Whether it is about a like that was sent before.
    pub(super) fn repeats(self) -> bool {
        matches!(self, Self::Redelivered | Self::Retried | Self::DoubleClicked)
    }

    /// Whether it can never be counted.
    #[must_use]
    pub fn is_poison(self) -> bool {
        matches!(self, Self::Poison | Self::Oversized)
    }
}

/// What is known about a message beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Which message: what stands for the broker's id. A redelivery has the number of the message that it repeats.
    pub number: u64,
    /// The number of the post that it is about; poison is about none.
    pub post: Option<u32>,
}

/// The messages of a plan in the order of sending. Holds a few numbers, whatever the plan's size.
#[derive(Clone, Debug)]
pub struct Generator<'a> {
    plan: &'a Plan,
    writer: Writer<'a>,
    back: Stream,
    pass: u64,
    position: u64,
    ordinal: u64,
}

impl<'a> Generator<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let back = Stream::new(plan.config().seed, About::Back);
        Self { plan, writer: Writer::new(plan.config()), back, pass: 0, position: 0, ordinal: 0 }
    }

    /// Messages written so far, of all passes.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.pass * self.plan.config().messages + self.position
    }

    /// Appends the next message to `out`, without a newline; its bytes have none either. `None` after the last.
    #[inline]
    pub fn write_next(&mut self, out: &mut Vec<u8>) -> Option<Message> {
        let config = self.plan.config();
        if self.position == config.messages {
            if self.pass + 1 >= config.shape.passes() {
                return None;
            }
            (self.pass, self.position, self.ordinal) = (self.pass + 1, 0, 0);
        }
        let position = self.position;
        self.position += 1;
        let kind = self.plan.kind(position, self.ordinal == 0);
        // Numbers of likes come first, then those of positions: no two different messages share one.
        let own_number = self.plan.likes() + position;
        let (number, post) = match kind {
            Kind::First => {
                let ordinal = self.ordinal;
                self.ordinal += 1;
                (ordinal, Some(self.write_like(ordinal, out)))
            }
            Kind::Redelivered => {
                let ordinal = self.earlier(position);
                (ordinal, Some(self.write_like(ordinal, out)))
            }
            Kind::Retried => (own_number, Some(self.write_like(self.earlier(position), out))),
            Kind::DoubleClicked => {
                let like = self.plan.like(self.plan.like_sent(self.earlier(position)));
                self.writer.double_click(&like, position, out);
                (own_number, Some(like.post))
            }
            Kind::Poison => {
                self.writer.poison(position, out);
                (own_number, None)
            }
            Kind::Oversized => {
                self.writer.oversized(position, out);
                (own_number, None)
            }
        };
        Some(Message { kind, number, post })
    }

    /// Writes the like that is sent as number `ordinal`; its post.
    #[inline]
    fn write_like(&self, ordinal: u64, out: &mut Vec<u8>) -> u32 {
        let number = self.plan.like_sent(ordinal);
        let like = self.plan.like(number);
        self.writer.like(&like, number, out);
        like.post
    }

    /// The ordinal of a like that was sent before. Most repetitions follow soon: four of five are of the last hundred
    /// likes. The others may be of any.
    fn earlier(&self, position: u64) -> u64 {
        let bits = self.back.at(position);
        let soon = !bits.is_multiple_of(5);
        let back = below(bits, if soon { self.ordinal.min(100) } else { self.ordinal });
        self.ordinal - 1 - back
    }
}
