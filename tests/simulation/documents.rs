//! Firestore as far as the adapter uses it, in memory: documents with all their versions, preconditions, transforms,
//! atomic commits and reads at a time. What it does not know it refuses loudly.

use crate::auditor::Books;
use crate::events::{Member, Wish, is_refused};
use crate::mutants::Mutant;
use crate::seen::Kind;
use crate::world::{World, locked};
use bytes::Bytes;
use gcloud_sdk::google::firestore::v1::document_transform::field_transform::TransformType;
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{Document, Value, Write};
use gcloud_sdk::prost_types::Timestamp;
use gcloud_sdk::tonic::{Code, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The database that every worker of a run names.
pub(crate) const URL: &str = "firestore://simulation?members_by=cell";
pub(crate) const ROOT: &str = "projects/simulation/databases/(default)/documents";

/// A document at one time; `None` where it was deleted.
type Version = (u64, Option<Arc<Document>>);

#[derive(Default)]
struct State {
    documents: BTreeMap<String, Vec<Version>>,
    /// The time of the last commit, in microseconds.
    last: u64,
}

/// The database of one run.
pub(crate) struct Documents {
    world: Arc<World>,
    state: Mutex<State>,
}

/// What a commit has touched.
#[derive(Default)]
pub(crate) struct Touched {
    pub(crate) posts: BTreeSet<String>,
    pub(crate) members: BTreeSet<Member>,
}

pub(crate) fn timestamp(micros: u64) -> Timestamp {
    Timestamp { seconds: (micros / 1_000_000) as i64, nanos: (micros % 1_000_000) as i32 * 1_000 }
}

pub(crate) fn micros(time: &Timestamp) -> u64 {
    time.seconds as u64 * 1_000_000 + time.nanos as u64 / 1_000
}

pub(crate) fn text<'a>(document: &'a Document, field: &str) -> &'a str {
    match document.fields.get(field).and_then(|value| value.value_type.as_ref()) {
        Some(ValueType::StringValue(text)) => text,
        _ => "",
    }
}

fn int(document: &Document, field: &str) -> i64 {
    match document.fields.get(field).and_then(|value| value.value_type.as_ref()) {
        Some(ValueType::IntegerValue(number)) => *number,
        _ => 0,
    }
}

fn is_true(document: &Document, field: &str) -> bool {
    let value = document.fields.get(field).and_then(|value| value.value_type.as_ref());
    matches!(value, Some(ValueType::BooleanValue(true)))
}

fn updated(write: &Write) -> &Document {
    match &write.operation {
        Some(Operation::Update(document)) => document,
        other => panic!("the simulation knows no such write: {other:?}"),
    }
}

impl State {
    fn now(&self, name: &str) -> Option<&Arc<Document>> {
        self.documents.get(name)?.last()?.1.as_ref()
    }

    fn at(versions: &[Version], time: u64) -> Option<&Arc<Document>> {
        versions.iter().rev().find(|(since, _)| *since <= time)?.1.as_ref()
    }

    /// Documents directly in a collection, in the order of their names.
    fn collection<'a>(&'a self, prefix: &'a str, time: u64) -> impl Iterator<Item = &'a Arc<Document>> {
        let inside = self.documents.range(prefix.to_owned()..).take_while(move |(name, _)| name.starts_with(prefix));
        let direct = inside.filter(move |(name, _)| !name[prefix.len()..].contains('/'));
        direct.filter_map(move |(_, versions)| Self::at(versions, time))
    }

    /// What keeps a write from being made, as a code; `None` when nothing does.
    fn refusal(&self, write: &Write) -> Option<Code> {
        let stored = self.now(&updated(write).name);
        match write.current_document.as_ref()?.condition_type.as_ref()? {
            ConditionType::Exists(false) => stored.map(|_| Code::AlreadyExists),
            ConditionType::Exists(true) => stored.is_none().then_some(Code::NotFound),
            ConditionType::UpdateTime(time) => match stored {
                Some(document) => (document.update_time.as_ref() != Some(time)).then_some(Code::FailedPrecondition),
                None => Some(Code::FailedPrecondition),
            },
        }
    }

    fn write(&mut self, write: &Write, time: u64) {
        let wanted = updated(write);
        let before = self.now(&wanted.name).cloned();
        let mut document = match (&write.update_mask, &before) {
            (Some(mask), Some(before)) => {
                let mut document = Document::clone(before);
                for field in &mask.field_paths {
                    match wanted.fields.get(field) {
                        Some(value) => document.fields.insert(field.clone(), value.clone()),
                        None => document.fields.remove(field),
                    };
                }
                document
            }
            _ => wanted.clone(),
        };
        document.create_time = before.map_or(Some(timestamp(time)), |before| before.create_time);
        document.update_time = Some(timestamp(time));
        for transform in &write.update_transforms {
            let value = match &transform.transform_type {
                Some(TransformType::SetToServerValue(_)) => ValueType::TimestampValue(timestamp(time)),
                Some(TransformType::Increment(Value { value_type: Some(ValueType::IntegerValue(by)) })) => {
                    ValueType::IntegerValue(int(&document, &transform.field_path) + by)
                }
                Some(TransformType::Maximum(Value { value_type: Some(ValueType::IntegerValue(least)) })) => {
                    ValueType::IntegerValue(int(&document, &transform.field_path).max(*least))
                }
                other => panic!("the simulation knows no such transform: {other:?}"),
            };
            document.fields.insert(transform.field_path.clone(), Value { value_type: Some(value) });
        }
        let versions = self.documents.entry(wanted.name.clone()).or_default();
        versions.push((time, Some(Arc::new(document))));
    }

    fn next_time(&mut self, world: &World) -> u64 {
        self.last = (self.last + 1).max(world.now().as_micros() as u64);
        self.last
    }
}

impl Documents {
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), state: Mutex::default() })
    }

    /// All writes or none.
    pub(crate) fn commit(&self, writes: &[Write]) -> Result<Touched, Status> {
        // Twice the same poison in one commit is one entry; anything else would be a bug.
        let once = |name: &&str| !name.contains("/hotcountQuarantine/");
        let names: Vec<&str> = writes.iter().map(|write| updated(write).name.as_str()).filter(once).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a commit writes each document once");
        if writes.iter().any(|write| is_refused(text(updated(write), "eventId"))) {
            return Err(Status::invalid_argument("the store does not take this like"));
        }
        if let Some((most, code)) = self.world.plan.largest_commit
            && writes.len() > most
        {
            self.world.note(Kind::TooLarge);
            return Err(Status::new(code, "the request is too large"));
        }
        let mut state = locked(&self.state);
        let failing: Vec<_> = writes.iter().filter_map(|write| Some((write, state.refusal(write)?))).collect();
        let partial = self.world.plan.double == Some(Mutant::HalfACommit);
        if !failing.is_empty() && !partial {
            let (write, code) = &failing[self.world.below(failing.len())];
            self.world.note(Kind::Refused);
            let named = if self.world.strikes(Kind::NamelessRefusal) { "a document" } else { &updated(write).name };
            return Err(Status::new(*code, format!("a precondition does not hold: {named}")));
        }
        let skipped: BTreeSet<String> = failing.iter().map(|(write, _)| updated(write).name.clone()).collect();
        let time = state.next_time(&self.world);
        let mut touched = Touched::default();
        for write in writes.iter().filter(|write| !skipped.contains(&updated(write).name)) {
            state.write(write, time);
            let document = updated(write);
            if document.name.contains("/hotcountLikes/") {
                let (post, user) = (text(document, "post").to_owned(), text(document, "user").to_owned());
                touched.posts.insert(post.clone());
                touched.members.insert(Member { post, user });
                if self.world.plan.double == Some(Mutant::ForgetsRemovals) && !is_true(document, "liked") {
                    let versions = state.documents.entry(document.name.clone()).or_default();
                    versions.push((time, None));
                }
            } else if let Some(post) = document.name.strip_prefix(&format!("{ROOT}/posts/")) {
                touched.posts.extend(post.split('/').next().map(str::to_owned));
            }
        }
        Ok(touched)
    }

    /// One document now, and the time.
    pub(crate) fn get(&self, name: &str) -> (Option<Document>, Timestamp) {
        let mut state = locked(&self.state);
        let time = state.next_time(&self.world);
        (state.now(name).map(|document| Document::clone(document)), timestamp(time))
    }

    /// The documents of a collection, given with its slash, at a time or now.
    pub(crate) fn list(&self, collection: &str, at: Option<&Timestamp>) -> Vec<Document> {
        let state = locked(&self.state);
        let at = at.filter(|_| self.world.plan.double != Some(Mutant::ReadsAtTwoTimes));
        state.collection(collection, at.map_or(u64::MAX, micros)).map(|document| Document::clone(document)).collect()
    }

    /// Deletes every batch key, as if all had expired.
    pub(crate) fn expire_keys(&self) {
        self.world.say(format_args!("all batch keys are deleted"));
        let mut state = locked(&self.state);
        let time = state.next_time(&self.world);
        let keys = state.documents.iter_mut().filter(|(name, _)| name.contains("/hotcountBatches/"));
        keys.for_each(|(_, versions)| versions.push((time, None)));
    }
}

impl Books for Documents {
    fn sum(&self, post: &str) -> i64 {
        let shards = format!("{ROOT}/posts/{post}/hotcountShards/");
        locked(&self.state).collection(&shards, u64::MAX).map(|document| int(document, "count")).sum()
    }

    fn liked(&self, post: &str) -> i64 {
        let state = locked(&self.state);
        let members = format!("{ROOT}/hotcountLikes/");
        let of_post = state.collection(&members, u64::MAX).filter(|document| text(document, "post") == post);
        of_post.filter(|document| is_true(document, "liked")).count() as i64
    }

    fn member(&self, member: &Member) -> Option<Wish> {
        let state = locked(&self.state);
        let members = format!("{ROOT}/hotcountLikes/");
        let is_it =
            |document: &&Arc<Document>| text(document, "user") == member.user && text(document, "post") == member.post;
        let mut found = state.collection(&members, u64::MAX).filter(is_it);
        let document = found.next()?;
        assert!(found.next().is_none(), "two documents for one member");
        Some(Wish {
            order: int(document, "order"),
            event: text(document, "eventId").to_owned(),
            removal: !is_true(document, "liked"),
        })
    }

    fn poison(&self, id: &str) -> Option<Bytes> {
        let name = format!("{ROOT}/hotcountQuarantine/like-counter:{id}");
        let state = locked(&self.state);
        match state.now(&name)?.fields.get("data")?.value_type.as_ref()? {
            ValueType::BytesValue(data) => Some(Bytes::from(data.clone())),
            _ => None,
        }
    }
}
