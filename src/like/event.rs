//! The event on the wire, and the like that it means.
//!
//! [`decode`] is pure and total: any bytes at all become a [`Like`] or a [`Poison`] whose reason names the field. Poison
//! is quarantined and then acknowledged; it never blocks another delivery.

mod decode;
mod envelope;
mod wire;

pub use decode::{check_post, decode, decode_with};
pub use envelope::{Outside, attributes_of_headers, outside};

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest id in bytes: Firestore's limit for a document id and for an indexed string.
pub const MAX_ID_BYTES: usize = 1_500;

/// The longest that a reason gets, in bytes. JSON's parser quotes a text that it did not expect, however long, and a store
/// that keeps the reason beside the payload has a limit of its own.
const MAX_PROBLEM_BYTES: usize = 500;

/// How far `occurredAt` may lie after the message was published or received. A clock in 2099 would freeze the
/// membership that it touches, so such an event is poison.
pub const MAX_FUTURE: Duration = Duration::from_secs(10 * 60);

thread_local! {
    static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Where the order of likes comes from; one policy per consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderPolicy {
    /// `occurredAt`, in nanoseconds since 1970: the years 1677 to 2262.
    #[default]
    OccurredAt,
    /// The integer `version` that the publisher counts up.
    Version,
    /// Every order is 0. Removals are poison, for nothing would tell which of two events is the newer.
    None,
}

/// One wish: that a user does, or does not, like a post, at a position in an order.
///
/// The three ids share one allocation, so a clone is one reference count.
#[derive(Clone, PartialEq, Eq)]
pub struct Like {
    text: Arc<str>,
    post_bytes: u16,
    user_bytes: u16,
    liked: bool,
    order: i64,
}

impl Like {
    /// A like of `post` by `user`; `liked` is the state that the event asks for.
    ///
    /// # Panics
    /// When an id is longer than [`MAX_ID_BYTES`]; [`decode`] has refused it before.
    #[must_use]
    pub fn new(post: &str, user: &str, event_id: &str, liked: bool, order: i64) -> Self {
        assert!(post.len() <= MAX_ID_BYTES && user.len() <= MAX_ID_BYTES, "ids have a limit");
        // Joined in a scratch that keeps its memory, so that a like costs one allocation instead of two.
        let text = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            [post, user, event_id].into_iter().for_each(|id| scratch.push_str(id));
            Arc::from(scratch.as_str())
        });
        // Both lengths are at most MAX_ID_BYTES, checked above.
        Self { text, post_bytes: post.len() as u16, user_bytes: user.len() as u16, liked, order }
    }

    /// The post's id.
    #[must_use]
    pub fn post(&self) -> &str {
        &self.text[..usize::from(self.post_bytes)]
    }

    /// The user's id.
    #[must_use]
    pub fn user(&self) -> &str {
        let start = usize::from(self.post_bytes);
        &self.text[start..start + usize::from(self.user_bytes)]
    }

    /// (post, user), which tells one membership from another and sorts a batch.
    #[must_use]
    pub fn member(&self) -> (&str, &str) {
        (self.post(), self.user())
    }

    /// The id that the publisher gave the event, once and before any retry.
    #[must_use]
    pub fn event_id(&self) -> &str {
        &self.text[usize::from(self.post_bytes) + usize::from(self.user_bytes)..]
    }

    /// The state that the event asks for.
    #[must_use]
    pub fn liked(&self) -> bool {
        self.liked
    }

    /// The position in the consumer's order.
    #[must_use]
    pub fn order(&self) -> i64 {
        self.order
    }

    /// The bytes of its ids: what it costs to hold, beside its fixed size.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

impl fmt::Debug for Like {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.liked { '+' } else { '-' };
        write!(f, "{sign} {} {} @{} {}", self.post(), self.user(), self.order, self.event_id())
    }
}

/// Said of an event whose time lies too far ahead.
const FROM_THE_FUTURE: &str = "more than ten minutes after the message was published";

/// Why a delivery can never succeed. The text names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Poison {
    /// The field at fault, `payload` for the whole, `store` when the store refuses the like itself.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl Poison {
    fn new(field: &'static str, problem: impl Into<String>) -> Self {
        let mut problem = problem.into();
        if problem.len() > MAX_PROBLEM_BYTES {
            problem.truncate(problem.floor_char_boundary(MAX_PROBLEM_BYTES));
            problem.push('…');
        }
        Self { field, problem }
    }

    /// The same, of what stands inside something else: its place is told.
    fn within(mut self, place: &str) -> Self {
        self.problem = format!("{} (in {place})", self.problem);
        self
    }

    /// Whether the event says that it happened later than is possible: a clock is wrong, the sender's or this machine's.
    #[must_use]
    pub fn is_from_the_future(&self) -> bool {
        self.problem.starts_with(FROM_THE_FUTURE)
    }

    /// A like that the store refuses for good, alone in its batch.
    #[must_use]
    pub fn refused_by_store(problem: impl Into<String>) -> Self {
        Self::new("store", problem)
    }
}

#[cfg(test)]
mod tests;
