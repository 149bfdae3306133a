//! The event on the wire, and the like that it means.
//!
//! [`decode`] is pure and total: any bytes at all become a [`Like`] or a [`Poison`] whose reason names the field. Poison
//! is quarantined and then acknowledged; it never blocks another delivery.

mod wire;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use wire::{Scalar, Wire};

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
    /// `occurredAt`, in microseconds since 1970.
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

    /// Whether the event says that it happened later than is possible: a clock is wrong, the sender's or this machine's.
    #[must_use]
    pub fn is_from_the_future(&self) -> bool {
        self.problem == FROM_THE_FUTURE
    }

    /// A like that the store refuses for good, alone in its batch.
    #[must_use]
    pub fn refused_by_store(problem: impl Into<String>) -> Self {
        Self::new("store", problem)
    }
}

/// Reads one event. `seen_at` is when the message was published, or received where that is not known; it bounds how
/// far in the future `occurredAt` may lie, and is never the order itself (a publisher's retry would overtake an unlike).
///
/// # Errors
/// The reason why the payload can never be counted.
pub fn decode(payload: &[u8], policy: OrderPolicy, seen_at: SystemTime) -> Result<Like, Poison> {
    // Checked as a whole: cheaper than text by text, as the parser would.
    let text = std::str::from_utf8(payload).map_err(|e| Poison::new("payload", format!("not UTF-8 ({e})")))?;
    let wire: Wire<'_> =
        serde_json::from_str(text).map_err(|e| Poison::new("payload", format!("not an event in JSON ({e})")))?;
    let event_id = match &wire.event_id {
        Scalar::Text(id) => checked_id("eventId", id)?,
        other => return Err(Poison::new("eventId", other.expected("a string"))),
    };
    let liked = match &wire.kind {
        Scalar::Text(t) if t == "like.added" => true,
        Scalar::Text(t) if t == "like.removed" => false,
        Scalar::Text(_) => return Err(Poison::new("type", "neither like.added nor like.removed")),
        other => return Err(Poison::new("type", other.expected("a string"))),
    };
    let (mut post_digits, mut user_digits) = (String::new(), String::new());
    let post = text_or_integer("postId", &wire.post_id, &mut post_digits)?;
    if post.bytes().any(|byte| byte == b'/')
        || post == "."
        || post == ".."
        || (post.len() >= 4 && post.starts_with("__") && post.ends_with("__"))
    {
        return Err(Poison::new("postId", "not a legal document id (no '/', not '.', '..' or '__…__')"));
    }
    let user = text_or_integer("userId", &wire.user_id, &mut user_digits)?;
    let order = order_of(&wire, policy, liked, seen_at)?;
    Ok(Like::new(post, user, event_id, liked, order))
}

fn order_of(wire: &Wire<'_>, policy: OrderPolicy, liked: bool, seen_at: SystemTime) -> Result<i64, Poison> {
    let occurred_at = match &wire.occurred_at {
        Scalar::Absent => None,
        Scalar::Text(text) => Some(
            OffsetDateTime::parse(text, &Rfc3339)
                .map(|t| t.unix_timestamp() * 1_000_000 + i64::from(t.microsecond()))
                .map_err(|_| Poison::new("occurredAt", "not an RFC 3339 time"))?,
        ),
        other => return Err(Poison::new("occurredAt", other.expected("a string"))),
    };
    let version = match &wire.version {
        Scalar::Absent => None,
        Scalar::Integer(v) => Some(*v),
        other => return Err(Poison::new("version", other.expected("a 64-bit integer"))),
    };
    match policy {
        OrderPolicy::OccurredAt => {
            let order = occurred_at.ok_or_else(|| Poison::new("occurredAt", "missing, and it is the order"))?;
            if order > micros(seen_at).saturating_add(MAX_FUTURE.as_micros() as i64) {
                return Err(Poison::new("occurredAt", FROM_THE_FUTURE));
            }
            Ok(order)
        }
        OrderPolicy::Version => version.ok_or_else(|| Poison::new("version", "missing, and it is the order")),
        OrderPolicy::None if liked => Ok(0),
        OrderPolicy::None => Err(Poison::new("type", "like.removed needs an order, and the policy is none")),
    }
}

/// Microseconds since 1970, saturating.
fn micros(at: SystemTime) -> i64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |m| -m),
    }
}

fn text_or_integer<'a>(field: &'static str, value: &'a Scalar<'_>, digits: &'a mut String) -> Result<&'a str, Poison> {
    match value {
        Scalar::Text(text) => checked_id(field, text),
        Scalar::Integer(number) => {
            *digits = number.to_string();
            Ok(digits)
        }
        Scalar::BigInteger(number) => {
            *digits = number.to_string();
            Ok(digits)
        }
        other => Err(Poison::new(field, other.expected("a string or an integer"))),
    }
}

fn checked_id<'a>(field: &'static str, id: &'a str) -> Result<&'a str, Poison> {
    match id.len() {
        0 => Err(Poison::new(field, "empty")),
        1..=MAX_ID_BYTES => Ok(id),
        _ => Err(Poison::new(field, "longer than 1,500 bytes")),
    }
}

#[cfg(test)]
mod tests;
