//! The store of one worker: the Firestore adapter over its connection, or the memory store behind calls that fail, and
//! around either one a look at what the engine asks for and is told.

use crate::auditor::{Auditor, Books, in_own_words};
use crate::calls;
use crate::documents::{Documents, URL};
use crate::events::{Member, Wish, is_refused};
use crate::life::Life;
use crate::plan::StoreKind;
use crate::rpc::Connection;
use crate::seen::Kind;
use crate::trouble;
use crate::world::{World, locked};
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use gcloud_sdk::tonic::Code;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::firestore::{Address, Firestore};
use hotcount::store::memory::Memory;
use hotcount::store::{
    Applied, Attempt, Audit, Counts, Depth, ErrorClass, Limits, Listing, PageSize, QuarantinePage, Quarantined, Repair,
    Repaired, Settings, Store, StoreError, Tally,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What outlives every worker.
pub(crate) enum Backend {
    Memory(Arc<Memory>),
    Firestore(Arc<Documents>),
}

impl Backend {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        match world.plan.store {
            StoreKind::Memory => Self::Memory(Arc::default()),
            StoreKind::Firestore => Self::Firestore(Documents::new(world)),
        }
    }

    pub(crate) fn books(&self) -> Arc<dyn Books> {
        match self {
            Self::Memory(memory) => Arc::new(MemoryBooks(Arc::clone(memory))),
            Self::Firestore(documents) => documents.clone(),
        }
    }

    /// The store as a worker sees it.
    pub(crate) fn store(&self, life: &Arc<Life>, auditor: &Arc<Auditor>) -> Arc<dyn Store> {
        let (life, auditor) = (Arc::clone(life), Arc::clone(auditor));
        let inner: Arc<dyn Store> = match self {
            Self::Memory(memory) => {
                Arc::new(Distant { life: life.clone(), auditor: auditor.clone(), memory: Arc::clone(memory) })
            }
            Self::Firestore(documents) => {
                let documents = Arc::clone(documents);
                let rpc = Arc::new(Connection { life: life.clone(), documents, auditor: auditor.clone() });
                let address = Address::parse(URL, "like-counter", None).expect("the URL is right");
                Arc::new(Firestore::over(rpc, address))
            }
        };
        Arc::new(Observed { inner, life, auditor })
    }

    /// All batch keys disappear, where the store keeps any outside itself.
    pub(crate) fn expire_keys(&self, world: &World) {
        if let Self::Firestore(documents) = self
            && world.strikes(Kind::KeysExpired)
        {
            documents.expire_keys();
        }
    }
}

/// The memory store's books, read through its port: its calls never wait.
struct MemoryBooks(Arc<Memory>);

impl MemoryBooks {
    fn tally(&self, post: &str) -> Tally {
        let tally = self.0.tally(post, Depth::ShardsAndMembers).now_or_never();
        tally.expect("it never waits").expect("it never fails")
    }
}

impl Books for MemoryBooks {
    fn sum(&self, post: &str) -> i64 {
        self.tally(post).count
    }

    fn liked(&self, post: &str) -> i64 {
        self.tally(post).members.map_or(-1, |members| members as i64)
    }

    fn member(&self, member: &Member) -> Option<Wish> {
        let stored = self.0.membership(&member.post, &member.user).now_or_never();
        stored.expect("it never waits").expect("it never fails").map(|like| in_own_words(&like).1)
    }

    fn poison(&self, id: &str) -> Option<Bytes> {
        let found = self.0.find_quarantined(id).now_or_never().expect("it never waits");
        found.expect("it never fails").map(|entry| entry.data)
    }
}

/// The memory store behind calls, with the classes that the codes of a real one have.
struct Distant {
    life: Arc<Life>,
    auditor: Arc<Auditor>,
    memory: Arc<Memory>,
}

/// What DESIGN says about each code.
fn class_of(code: Code) -> ErrorClass {
    match code {
        Code::Aborted | Code::ResourceExhausted => ErrorClass::DidNotCommit,
        code if calls::is_unknown(code) => ErrorClass::Unknown,
        Code::Unauthenticated => ErrorClass::Unauthenticated,
        Code::InvalidArgument | Code::OutOfRange => ErrorClass::Rejected,
        _ => ErrorClass::Fatal,
    }
}

fn error(code: Code) -> StoreError {
    StoreError::new(class_of(code), format!("a fault of the simulation: {code:?}"))
}

impl Distant {
    /// Applies at the store, and lets the auditor look at once.
    fn apply_now(
        (life, auditor, memory): (&Life, &Auditor, &Memory),
        batch: &Batch,
        attempt: Attempt,
    ) -> Result<Applied, StoreError> {
        let (world, wishes) = (&life.world, batch.likes().iter().map(in_own_words).collect::<Vec<_>>());
        let would_write = |(member, wish): &&(Member, Wish)| auditor.books.member(member).is_none_or(|s| s < *wish);
        let writes = wishes.iter().filter(would_write);
        if writes.clone().any(|(_, wish)| is_refused(&wish.event)) {
            return Err(StoreError::new(ErrorClass::Rejected, "the store does not take this like"));
        }
        if let Some((most, code)) = world.plan.largest_commit
            && writes.count() + 2 > most
        {
            world.note(Kind::TooLarge);
            return Err(error(code));
        }
        let applied = memory.apply(batch, attempt).now_or_never().expect("it never waits")?;
        world.note(Kind::Commit);
        world.say(format_args!("a commit of {life} with {} likes is applied: {applied:?}", wishes.len()));
        let (members, posts): (BTreeSet<_>, _) =
            wishes.into_iter().map(|(member, _)| (member.clone(), member.post)).unzip();
        auditor.written(&posts, &members);
        Ok(applied)
    }
}

#[async_trait]
impl Counts for Distant {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.memory.tally(post, depth).await
    }
    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.memory.posts(listing, after, limit).await
    }
    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.memory.quarantined(after, size).await
    }
}

/// No worker repairs, and none discards.
#[async_trait]
impl Repair for Distant {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.memory.audit(post).await
    }
    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.memory.repair(post, seen).await
    }
}

#[async_trait]
impl Store for Distant {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        if self.life.world.strikes(Kind::Contended) {
            self.life.pass().await;
            let certain = self.life.world.below(batch.likes().len());
            let one_of_them = |place: &usize| *place == certain || self.life.world.flip(0.3);
            let places = (0..batch.likes().len()).filter(one_of_them).collect();
            return Err(StoreError::new(ErrorClass::Contended(places), "others keep writing"));
        }
        let (life, auditor, memory) = (self.life.clone(), self.auditor.clone(), self.memory.clone());
        let batch = batch.clone();
        let effect = move || Self::apply_now((&life, &auditor, &memory), &batch, attempt);
        calls::commit(&self.life, effect).await.map_err(error)?
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        let (memory, poison) = (self.memory.clone(), poison.to_vec());
        let effect = move || memory.quarantine(&poison).now_or_never().expect("it never waits");
        calls::commit(&self.life, effect).await.map_err(error)?
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        self.memory.find_quarantined(id).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        self.memory.discard(ids).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        let reading = || self.memory.membership(post, user).now_or_never().expect("it never waits");
        calls::read(&self.life, reading).await.map_err(error)?
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        let (memory, settings) = (self.memory.clone(), settings.clone());
        let effect = move || memory.agree(&settings).now_or_never().expect("it never waits");
        calls::commit(&self.life, effect).await.map_err(error)?
    }

    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        let memory = self.memory.clone();
        let effect = move || memory.probe(key).now_or_never().expect("it never waits");
        calls::commit(&self.life, effect).await.map_err(error)?
    }

    fn limits(&self) -> Limits {
        self.memory.limits()
    }
}

/// Looks at what the engine asks for and is told.
struct Observed {
    inner: Arc<dyn Store>,
    life: Arc<Life>,
    auditor: Arc<Auditor>,
}

#[async_trait]
impl Counts for Observed {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.inner.tally(post, depth).await
    }
    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.posts(listing, after, limit).await
    }
    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.inner.quarantined(after, size).await
    }
}

/// No worker repairs, and none discards.
/// The like of a batch of one: it is there because something is the matter with it.
fn named(batch: &Batch) -> String {
    match batch.likes() {
        [like] => format!(": {}/{} {}", like.post(), like.user(), like.event_id()),
        _ => String::new(),
    }
}

#[async_trait]
impl Repair for Observed {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.inner.audit(post).await
    }
    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.inner.repair(post, seen).await
    }
}

#[async_trait]
impl Store for Observed {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        self.auditor.tried(&self.life, batch);
        let world = &self.life.world;
        let (many, what) = (batch.likes().len(), named(batch));
        world.say(format_args!("{} applies {many} likes on {}{what}", self.life, attempt.shard));
        let answer = match trouble::met(&self.life, batch).await {
            Some(error) => Err(error),
            None => self.inner.apply(batch, attempt).await,
        };
        match &answer {
            Ok(applied) => {
                let all = applied.applied + applied.duplicates + applied.stale;
                if all != batch.likes().len() as u64 {
                    world.violated(format_args!("{} likes are answered with {applied:?}", batch.likes().len()));
                }
                if applied.applied > 0 && !applied.replayed {
                    locked(&self.life.numbers).commits += 1;
                }
            }
            Err(error) if error.class == ErrorClass::Rejected => self.auditor.refused(&self.life, batch),
            Err(_) => {}
        }
        world.say(format_args!("{} is told {:?}{what}", self.life, answer.as_ref().map_err(|error| &error.class)));
        answer
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        match trouble::met_by_a_call(&self.life).await {
            Some(error) => Err(error),
            None => self.inner.quarantine(poison).await,
        }
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        self.inner.find_quarantined(id).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        self.inner.discard(ids).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        match trouble::met_by_a_look(&self.life, post, user) {
            Some(error) => Err(error),
            None => self.inner.membership(post, user).await,
        }
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        self.inner.agree(settings).await
    }

    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        let answer = match trouble::met_by_a_call(&self.life).await {
            Some(error) => Err(error),
            None => self.inner.probe(key).await,
        };
        self.life.world.say(format_args!("{} probes: {:?}", self.life, answer.as_ref().map_err(|error| &error.class)));
        if answer.is_ok() {
            self.life.world.note(Kind::Probe);
            locked(&self.life.numbers).commits += 1;
        }
        answer
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}
