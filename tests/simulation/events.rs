//! The events of a run, and what each of them means. The meaning is what the generator meant; nothing here decodes.

use crate::seen::Kind;
use crate::world::World;
use hotcount::like::event::OrderPolicy;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When the simulated time begins: 2026-01-01.
const EPOCH_SECONDS: u64 = 1_767_225_600;

/// A (post, user).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member {
    pub(crate) post: String,
    pub(crate) user: String,
}

/// What an event asks for, sorted as DESIGN's words are: by order, then by the bytes of the event id, then a removal
/// after an addition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Wish {
    pub(crate) order: i64,
    pub(crate) event: String,
    pub(crate) removal: bool,
}

/// What a message means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Like(Member, Wish),
    Poison,
}

impl Meaning {
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Like(_, wish) if is_refused(&wish.event))
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Like(Member { post, user }, Wish { order, event, removal }) => {
                write!(f, "{}{post}/{user}@{order} {event}", if *removal { '-' } else { '+' })
            }
            Self::Poison => f.write_str("poison"),
        }
    }
}

/// Whether the store refuses to write a like of this event, for good.
pub(crate) fn is_refused(event: &str) -> bool {
    event.ends_with('!')
}

/// An event on the wire.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) payload: Vec<u8>,
    pub(crate) meaning: Meaning,
}

/// The time of the run as one of the calendar.
pub(crate) fn wall_clock(since_began: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS) + since_began
}

/// Event number `n`, made by the dice.
pub(crate) fn draw(world: &World, n: usize) -> Event {
    let policy = world.plan.order;
    if world.strikes(Kind::Undecodable) {
        return Event { payload: rubbish(world, n), meaning: Meaning::Poison };
    }
    // A few posts, most of it on the first.
    let post = world.below(world.plan.posts as usize) * world.below(2);
    let user = world.between(0..=world.plan.users - 1);
    let refused = if world.strikes(Kind::RefusedLike) { "!" } else { "" };
    let removal = world.flip(0.35);
    like(world, &format!("p{post}"), user, format!("e{n}{refused}"), removal && policy != OrderPolicy::None)
}

/// A careless publisher: the same event says the opposite.
pub(crate) fn opposite(world: &World, event: &Event) -> Option<Event> {
    let Meaning::Like(member, wish) = &event.meaning else { return None };
    if world.plan.order == OrderPolicy::None || !world.strikes(Kind::SameIdOtherWish) {
        return None;
    }
    let (this, other) = if wish.removal { ("removed", "added") } else { ("added", "removed") };
    let text = String::from_utf8_lossy(&event.payload).replace(&format!("like.{this}"), &format!("like.{other}"));
    let wish = Wish { removal: !wish.removal, ..wish.clone() };
    Some(Event { payload: text.into_bytes(), meaning: Meaning::Like(member.clone(), wish) })
}

fn like(world: &World, post: &str, user: u64, event: String, removal: bool) -> Event {
    let kind = if removal { "like.removed" } else { "like.added" };
    // A number and its text are the same user.
    let user_json = if world.flip(0.5) { user.to_string() } else { format!("\"{user}\"") };
    // Few values, so that ties are there.
    let (seconds, millis) = (world.between(0..=29), world.one_of(&[0, 500]));
    let version = world.between(0..=29) as i64 - 3;
    let (hour, zone) = world.one_of(&[(0, "Z"), (0, "+00:00"), (2, "+02:00")]);
    let mut fields = vec![
        format!(r#""eventId":"{event}""#),
        format!(r#""type":"{kind}""#),
        format!(r#""postId":"{post}""#),
        format!(r#""userId":{user_json}"#),
    ];
    let occurred = format!(r#""occurredAt":"2026-01-01T{hour:02}:00:{seconds:02}.{millis:03}{zone}""#);
    let version_field = format!(r#""version":{version}"#);
    let order = match world.plan.order {
        OrderPolicy::OccurredAt => {
            fields.push(occurred);
            (EPOCH_SECONDS + seconds) as i64 * 1_000_000_000 + millis * 1_000_000
        }
        OrderPolicy::Version => {
            // Another policy's field may be there too; it must not matter.
            fields.extend([occurred, version_field]);
            version
        }
        OrderPolicy::None => 0,
    };
    let payload = format!("{{{}}}", fields.join(",")).into_bytes();
    let member = Member { post: post.to_owned(), user: user.to_string() };
    Event { payload, meaning: Meaning::Like(member, Wish { order, event, removal }) }
}

/// What nobody can count, of every kind.
fn rubbish(world: &World, n: usize) -> Vec<u8> {
    let with = |fields: &str| format!(r#"{{"eventId":"bad{n}","type":"like.added",{fields}}}"#).into_bytes();
    match world.below(6) {
        0 => vec![0xff, 0xfe, n as u8],
        1 => format!("rubbish {n}").into_bytes(),
        2 => with(r#""postId":"a/b","userId":1,"version":1,"occurredAt":"2026-01-01T00:00:00Z""#),
        3 => with(r#""postId":"p0","version":1,"occurredAt":"2026-01-01T00:00:00Z""#),
        4 => with(r#""postId":"p0","userId":"","version":1,"occurredAt":"2026-01-01T00:00:00Z""#),
        _ => match world.plan.order {
            OrderPolicy::OccurredAt => {
                with(r#""postId":"p0","userId":1,"version":1,"occurredAt":"2099-01-01T00:00:00Z""#)
            }
            OrderPolicy::Version => with(r#""postId":"p0","userId":1,"version":1.5"#),
            OrderPolicy::None => {
                format!(r#"{{"eventId":"bad{n}","type":"like.removed","postId":"p0","userId":1}}"#).into_bytes()
            }
        },
    }
}
