//! The auditor knows the right outcome from the events alone, and looks into the books after every commit and at every
//! acknowledgement. It shares no code with the engine: it has its own words for what is newer than what.

use crate::broker::Message;
use crate::events::{Meaning, Member, Wish};
use crate::life::Life;
use crate::seen::Kind;
use crate::subscription::SOURCE;
use crate::world::{World, locked};
use bytes::Bytes;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::source::ack::Settlement;
use hotcount::store::quarantine_id;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a delivery costs in the budget beside its payload.
const DELIVERY_BYTES: u64 = 512;

/// How often a like must be refused alone, and for how long, before it is quarantined.
const REFUSALS: u32 = 5;
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// What is durable, read without asking the engine.
pub(crate) trait Books: Send + Sync {
    /// The sum of a post's shards.
    fn sum(&self, post: &str) -> i64;
    /// How many members like a post.
    fn liked(&self, post: &str) -> i64;
    /// What is stored for a member.
    fn member(&self, member: &Member) -> Option<Wish>;
    /// The payload that is kept in the quarantine under an id.
    fn poison(&self, id: &str) -> Option<Bytes>;
}

#[derive(Default)]
struct State {
    /// Every like that was ever published.
    published: BTreeMap<Member, BTreeSet<Wish>>,
    /// What was stored at the last look. It never gets older.
    stored: BTreeMap<Member, Wish>,
    /// Likes that are in quarantine.
    quarantined: BTreeSet<(Member, Wish)>,
    /// What a worker was told about a like that the store refused.
    refused: BTreeMap<(usize, u64, Member, Wish), Refused>,
    /// What each batch key stands for.
    batches: HashMap<BatchKey, Vec<(Member, Wish)>>,
}

struct Refused {
    /// How often it was refused alone, and since when. Another answer may lie between: of another delivery of it, which is
    /// under way beside this one.
    alone: u32,
    since: Duration,
    /// Whether its effect was durable at every refusal: then each look after one finds it, and there is nothing to
    /// quarantine. A lane that looked before may still be on its way into the quarantine.
    durable: bool,
}

/// The auditor of one run.
pub(crate) struct Auditor {
    world: Arc<World>,
    pub(crate) books: Arc<dyn Books>,
    state: Mutex<State>,
}

/// A like of the engine in the auditor's words.
pub(crate) fn in_own_words(like: &Like) -> (Member, Wish) {
    let member = Member { post: like.post().to_owned(), user: like.user().to_owned() };
    (member, Wish { order: like.order(), event: like.event_id().to_owned(), removal: !like.liked() })
}

impl Auditor {
    pub(crate) fn new(world: &Arc<World>, books: Arc<dyn Books>) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), books, state: Mutex::default() })
    }

    pub(crate) fn published(&self, meaning: &Meaning) {
        if let Meaning::Like(member, wish) = meaning {
            locked(&self.state).published.entry(member.clone()).or_default().insert(wish.clone());
        }
    }

    /// A worker has been handed deliveries: what it holds stays in its budget. Of bytes, each stream may overshoot it by
    /// one answer, of which nobody knew how large it would be.
    pub(crate) fn handed(&self, life: &Life) {
        let (numbers, config) = (life.numbers(), &life.config);
        let most = config.max_held_deliveries as u64;
        if numbers.held > most {
            self.world.violated(format_args!("{life} holds {} deliveries, and its budget is {most}", numbers.held));
        }
        let bytes = numbers.held_bytes + numbers.held * DELIVERY_BYTES;
        let streams = self.world.plan.streams as u64;
        let an_answer = most.div_ceil(2 * streams) * (DELIVERY_BYTES + numbers.largest);
        let most = config.max_held_bytes as u64 + streams * an_answer;
        if bytes > most {
            self.world.violated(format_args!("{life} holds {bytes} bytes, and its budget is {most}"));
        }
    }

    /// A worker applies a batch: it holds what a batch may hold, and its key has never stood for anything else.
    pub(crate) fn tried(&self, life: &Life, batch: &Batch) {
        let content: Vec<_> = batch.likes().iter().map(in_own_words).collect();
        let writes = content.len() + batch.by_post().count() + 1;
        if life.config.batch_writes.is_some_and(|most| writes > most) {
            self.world.violated(format_args!("{life} has {writes} documents in a batch"));
        }
        let mut state = locked(&self.state);
        let known = state.batches.entry(batch.key()).or_insert_with(|| content.clone());
        if *known != content {
            self.world.violated(format_args!("{life} uses the key {} for another content", batch.key()));
        }
    }

    /// The store answers that it can never apply this batch.
    pub(crate) fn refused(&self, life: &Life, batch: &Batch) {
        let mut state = locked(&self.state);
        for (member, wish) in batch.likes().iter().map(in_own_words) {
            let durable = self.books.member(&member).is_some_and(|stored| stored >= wish);
            let key = (life.slot, life.number, member, wish);
            let now = self.world.now();
            let refused = state.refused.entry(key).or_insert(Refused { alone: 0, since: now, durable });
            if batch.likes().len() == 1 {
                refused.since = if refused.alone == 0 { now } else { refused.since };
                refused.alone += 1;
            }
            refused.durable &= durable;
        }
    }

    /// Something was written: the books must agree with each other, and with the events.
    pub(crate) fn written(&self, posts: &BTreeSet<String>, members: &BTreeSet<Member>) {
        for post in posts {
            let (sum, liked) = (self.books.sum(post), self.books.liked(post));
            if sum != liked {
                self.world.violated(format_args!("{post} counts {sum} by its shards and {liked} by its members"));
            }
        }
        let mut state = locked(&self.state);
        for member in members {
            let name = format!("{}/{}", member.post, member.user);
            let Some(wish) = self.books.member(member) else {
                self.world.violated(format_args!("the membership of {name} is gone"));
                continue;
            };
            if !state.published.get(member).is_some_and(|wishes| wishes.contains(&wish)) {
                self.world.violated(format_args!("nobody published the {wish:?} of {name}"));
            }
            if let Some(before) = state.stored.insert(member.clone(), wish.clone())
                && before > wish
            {
                self.world.violated(format_args!("{name} went back from {before:?} to {wish:?}"));
            }
        }
    }

    /// A worker says that a delivery is finished: what it stands for must be durable at this instant.
    pub(crate) fn acknowledged(&self, life: &Life, message: &Message, how: &Settlement) {
        let number = message.number;
        match how {
            Settlement::Counted => locked(&life.numbers).counted += 1,
            Settlement::Quarantined(_) => locked(&life.numbers).quarantined += 1,
        }
        match (how, &message.event.meaning) {
            (Settlement::Counted, Meaning::Like(member, wish)) => {
                let stored = self.books.member(member);
                if stored.as_ref().is_none_or(|stored| stored < wish) {
                    self.world.violated(format_args!(
                        "{life} acknowledges m{number}, {}, and what is stored is {stored:?}",
                        message.event.meaning
                    ));
                }
            }
            (Settlement::Counted, Meaning::Poison) => {
                self.world.violated(format_args!("{life} has counted m{number}, which is poison"));
            }
            (Settlement::Quarantined(why), meaning) => {
                self.world.note(Kind::Quarantined);
                if self.kept(message).is_none() {
                    self.world
                        .violated(format_args!("{life} acknowledges m{number}, and the quarantine has no such entry"));
                }
                if let Meaning::Like(member, wish) = meaning {
                    let mut state = locked(&self.state);
                    let key = (life.slot, life.number, member.clone(), wish.clone());
                    let refused = state.refused.get(&key);
                    let for_good = |refused: &Refused| {
                        refused.alone >= REFUSALS && self.world.now() - refused.since >= REFUSED_FOR
                    };
                    let known = state.quarantined.contains(&(member.clone(), wish.clone()));
                    let at_fault = meaning.is_refused() && (known || refused.is_some_and(for_good));
                    let unreadable = self.world.is_unreadable(member);
                    if !(at_fault || unreadable) {
                        self.world.violated(format_args!("{life} quarantines the healthy m{number}, {meaning}: {why}"));
                    }
                    if !unreadable && refused.is_some_and(|r| r.durable) {
                        self.world.violated(format_args!("{life} quarantines m{number}, {meaning}, which is counted"));
                    }
                    state.quarantined.insert((member.clone(), wish.clone()));
                }
            }
        }
    }

    fn kept(&self, message: &Message) -> Option<Bytes> {
        let id = quarantine_id(SOURCE, message.id.as_deref(), &message.payload);
        self.books.poison(&id).filter(|data| *data == message.payload)
    }

    /// How many members must like each post in the end, when all is settled. A like that the store refused may have been
    /// stored under another of its messages; whatever else was published is at most as new as what is stored.
    pub(crate) fn settled(&self, messages: &[Message]) -> BTreeMap<String, i64> {
        let state = locked(&self.state);
        let mut counts = BTreeMap::new();
        for (member, wishes) in &state.published {
            let name = format!("{}/{}", member.post, member.user);
            let excused = |wish: &Wish| state.quarantined.contains(&(member.clone(), wish.clone()));
            let newest = wishes.iter().rev().find(|wish| !excused(wish));
            let stored = self.books.member(member);
            let right = match (&stored, newest) {
                (Some(stored), Some(newest)) => stored == newest || (stored > newest && excused(stored)),
                (Some(stored), None) => excused(stored),
                (None, newest) => newest.is_none(),
            };
            if !right {
                self.world.violated(format_args!("{name} must be {newest:?} in the end, and is {stored:?}"));
            }
            *counts.entry(member.post.clone()).or_default() += i64::from(stored.is_some_and(|wish| !wish.removal));
        }
        for message in messages.iter().filter(|message| message.event.meaning == Meaning::Poison) {
            if self.kept(message).is_none() {
                self.world.violated(format_args!("m{} is poison, and the quarantine has lost it", message.number));
            }
        }
        counts
    }
}
