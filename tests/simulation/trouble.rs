//! Trouble that is not everybody's: a document that cannot be read, one that a newer hotcount has written, one that somebody
//! has locked; and a store that says "never" for some seconds.

use crate::auditor::in_own_words;
use crate::events::Member;
use crate::life::Life;
use crate::seen::Kind;
use crate::world::{World, locked};
use hotcount::like::batch::Batch;
use hotcount::store::{ErrorClass, StoreError, StoredFault, Undecidable};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Shorter than the half minute after which a worker believes it.
const LONGEST_NEVER_MS: u64 = 20_000;

/// Between two times of saying never, so that they do not look like a long one.
const NEVER_APART: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Trouble {
    unreadable: BTreeSet<Member>,
    newer: BTreeSet<Member>,
    locked: BTreeMap<Member, Instant>,
    never: Option<Never>,
}

#[derive(Clone)]
struct Never {
    until: Instant,
    share: f64,
    class: ErrorClass,
}

fn failed(class: ErrorClass) -> StoreError {
    StoreError::new(class, "trouble of the simulation")
}

impl World {
    /// What never can be read stays so; everything else is over.
    pub(crate) fn end_trouble(&self) {
        let mut trouble = locked(&self.trouble);
        *trouble = Trouble { unreadable: std::mem::take(&mut trouble.unreadable), ..Trouble::default() };
    }

    pub(crate) fn is_unreadable(&self, member: &Member) -> bool {
        locked(&self.trouble).unreadable.contains(member)
    }

    /// The store says "never" for a while, to all or to some.
    pub(crate) fn begin_never(&self) {
        let now = Instant::now();
        let mut trouble = locked(&self.trouble);
        if trouble.never.as_ref().is_some_and(|never| now < never.until + NEVER_APART) {
            return;
        }
        let (length, share) = (self.millis(1..=LONGEST_NEVER_MS), self.one_of(&[0.3, 1.0]));
        let class = if self.flip(0.5) { ErrorClass::Rejected } else { ErrorClass::Fatal };
        self.say(format_args!("for {length:?} the store says {class:?} to {share} of the calls"));
        trouble.never = Some(Never { until: now + length, share, class });
    }

    fn says_never(&self) -> Option<StoreError> {
        let never = locked(&self.trouble).never.clone().filter(|never| Instant::now() < never.until)?;
        self.flip(never.share).then(|| failed(never.class))
    }

    /// Something new may happen to a member of this batch.
    fn make_trouble(&self, members: &[Member]) {
        let any = |world: &Self| members[world.below(members.len())].clone();
        if self.strikes(Kind::Unreadable) {
            let member = any(self);
            self.say(format_args!("the document of {}/{} is spoiled", member.post, member.user));
            locked(&self.trouble).unreadable.insert(member);
        }
        if self.strikes(Kind::Newer) {
            let member = any(self);
            self.say(format_args!("a newer hotcount writes {}/{}", member.post, member.user));
            locked(&self.trouble).newer.insert(member);
        }
        if self.strikes(Kind::Locked) {
            let (member, length) = (any(self), self.one_of(&[2_000, 60_000, 600_000]));
            self.say(format_args!("somebody locks {}/{} for {length} ms", member.post, member.user));
            locked(&self.trouble).locked.insert(member, Instant::now() + Duration::from_millis(length));
        }
    }

    fn undecidable(&self, members: &[Member]) -> Vec<Undecidable> {
        let trouble = locked(&self.trouble);
        let fault = |member: &Member| {
            let unreadable = || StoredFault::Unreadable("user: missing".to_owned());
            let newer = || trouble.newer.contains(member).then_some(StoredFault::Newer(2));
            trouble.unreadable.contains(member).then(unreadable).or_else(newer)
        };
        let of_place = |(place, member): (usize, &Member)| {
            let document = format!("likes/{}:{}", member.post, member.user);
            Some(Undecidable { place, document, fault: fault(member)? })
        };
        members.iter().enumerate().filter_map(of_place).collect()
    }

    fn is_locked(&self, members: &[Member]) -> bool {
        let trouble = locked(&self.trouble);
        members.iter().any(|member| trouble.locked.get(member).is_some_and(|until| Instant::now() < *until))
    }
}

/// What keeps a batch from reaching the store, if anything does.
pub(crate) async fn met(life: &Life, batch: &Batch) -> Option<StoreError> {
    let world = &life.world;
    let members: Vec<Member> = batch.likes().iter().map(|like| in_own_words(like).0).collect();
    world.make_trouble(&members);
    let (error, takes) = if let Some(never) = world.says_never() {
        (never, Duration::ZERO)
    } else if world.is_locked(&members) {
        let class = if world.flip(0.5) { ErrorClass::DidNotCommit } else { ErrorClass::Unknown };
        (failed(class), Duration::from_millis(world.one_of(&[1, 20_000])))
    } else {
        let stored = world.undecidable(&members);
        if stored.is_empty() {
            return None;
        }
        (failed(ErrorClass::Undecidable(stored)), Duration::from_millis(1))
    };
    life.pass().await;
    tokio::time::sleep(takes).await;
    life.pass().await;
    Some(error)
}

/// The same for a call that is about no like.
pub(crate) async fn met_by_a_call(life: &Life) -> Option<StoreError> {
    let never = life.world.says_never()?;
    life.pass().await;
    Some(never)
}

/// The same for reading what is stored for one member.
pub(crate) fn met_by_a_look(life: &Life, post: &str, user: &str) -> Option<StoreError> {
    let stored = life.world.undecidable(&[Member { post: post.to_owned(), user: user.to_owned() }]);
    (!stored.is_empty()).then(|| failed(ErrorClass::Undecidable(stored)))
}
