//! The seam of the Firestore adapter over documents in memory, behind the locks and the delays of the model: a commit waits
//! for every document that it writes, and is refused when one of them is not what it was decided from.

use async_trait::async_trait;
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Got;
use gcloud_sdk::google::firestore::v1::document_transform::field_transform::TransformType;
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{
    BatchGetDocumentsRequest, BatchGetDocumentsResponse, CommitRequest, CommitResponse, Document,
    RunAggregationQueryRequest, RunAggregationQueryResponse, RunQueryRequest, RunQueryResponse, Value, Write,
};
use gcloud_sdk::prost_types::Timestamp;
use gcloud_sdk::tonic::{Code, Status};
use hotcount::lab::firestore_model::{Assumptions, Contention};
use hotcount::store::firestore::rpc::Rpc;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    documents: HashMap<String, Document>,
    /// Commits so far: the time of the last one, in nanoseconds.
    commits: i32,
    sum: i64,
    liked: i64,
}

/// What a database holds, and what it has refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// The sum of all shards.
    pub(crate) shards: i64,
    /// Memberships that are liked.
    pub(crate) members: i64,
    /// Commits of which a precondition did not hold.
    pub(crate) refused: u64,
}

/// One database, shared by all workers.
pub(crate) struct Documents {
    state: Mutex<State>,
    contention: Arc<Contention>,
    refused: AtomicU64,
}

fn updated(write: &Write) -> &Document {
    match &write.operation {
        Some(Operation::Update(document)) => document,
        other => panic!("no such write is known here: {other:?}"),
    }
}

fn is_liked(document: &Document) -> bool {
    let liked = document.fields.get("liked").and_then(|value| value.value_type.as_ref());
    matches!(liked, Some(ValueType::BooleanValue(true)))
}

fn int(document: &Document, field: &str) -> i64 {
    match document.fields.get(field).and_then(|value| value.value_type.as_ref()) {
        Some(ValueType::IntegerValue(number)) => *number,
        _ => 0,
    }
}

impl State {
    fn refusal(&self, write: &Write) -> Option<Status> {
        let name = &updated(write).name;
        let stored = self.documents.get(name);
        let code = match write.current_document.as_ref()?.condition_type.as_ref()? {
            ConditionType::Exists(false) => stored.map(|_| Code::AlreadyExists),
            ConditionType::Exists(true) => stored.is_none().then_some(Code::NotFound),
            ConditionType::UpdateTime(time) => (stored.and_then(|document| document.update_time.as_ref())
                != Some(time))
            .then_some(Code::FailedPrecondition),
        };
        code.map(|code| Status::new(code, format!("a precondition does not hold: {name}")))
    }

    fn write(&mut self, write: &Write, time: Timestamp) {
        let mut document = updated(write).clone();
        let name = document.name.clone();
        let before = self.documents.get(&name);
        if let Some(mask) = &write.update_mask {
            let written = std::mem::take(&mut document.fields);
            document.fields = before.map(|before| before.fields.clone()).unwrap_or_default();
            document.fields.retain(|field, _| !mask.field_paths.contains(field));
            document.fields.extend(written.into_iter().filter(|(field, _)| mask.field_paths.contains(field)));
        }
        if name.contains("/hotcountLikes/") {
            self.liked += i64::from(is_liked(&document)) - i64::from(before.is_some_and(is_liked));
        }
        document.update_time = Some(time);
        for transform in &write.update_transforms {
            if let Some(TransformType::Increment(Value { value_type: Some(ValueType::IntegerValue(by)) })) =
                &transform.transform_type
            {
                self.sum += by;
                let sum = Some(ValueType::IntegerValue(int(&document, &transform.field_path) + by));
                document.fields.insert(transform.field_path.clone(), Value { value_type: sum });
            }
        }
        self.documents.insert(name, document);
    }
}

impl Documents {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let contention = Contention::new(Assumptions::default(), seed);
        Arc::new(Self { state: Mutex::default(), contention, refused: AtomicU64::new(0) })
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.state.lock().unwrap();
        Counts { shards: state.sum, members: state.liked, refused: self.refused.load(Ordering::Relaxed) }
    }

    /// The order and the state of a membership.
    pub(crate) fn member(&self, name: &str) -> Option<(i64, bool)> {
        let state = self.state.lock().unwrap();
        state.documents.get(name).map(|document| (int(document, "order"), is_liked(document)))
    }
}

/// A worker's connection.
pub(crate) struct Connection(pub(crate) Arc<Documents>);

#[async_trait]
impl Rpc for Connection {
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        let (documents, writes) = (&self.0, request.writes);
        let names = writes.iter().map(|write| updated(write).name.as_str());
        let locked = documents.contention.lock(names).await;
        let _locked = locked.map_err(|aborted| Status::aborted(aborted.to_string()))?;
        let refused = {
            let state = documents.state.lock().unwrap();
            writes.iter().find_map(|write| state.refusal(write))
        };
        if let Some(status) = refused {
            documents.refused.fetch_add(1, Ordering::Relaxed);
            documents.contention.read(1).await;
            return Err(status);
        }
        documents.contention.commit(writes.len() as u64).await;
        let mut state = documents.state.lock().unwrap();
        state.commits += 1;
        let time = Timestamp { seconds: 1, nanos: state.commits };
        writes.iter().for_each(|write| state.write(write, time));
        Ok(CommitResponse::default())
    }

    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        self.0.contention.read(request.documents.len() as u64).await;
        let state = self.0.state.lock().unwrap();
        let answer = |name: String| {
            let found = state.documents.get(&name).cloned();
            let result = Some(found.map_or(Got::Missing(name), Got::Found));
            BatchGetDocumentsResponse { result, ..Default::default() }
        };
        Ok(request.documents.into_iter().map(answer).collect())
    }

    async fn run_query(&self, _: RunQueryRequest) -> Result<Vec<RunQueryResponse>, Status> {
        Err(Status::unimplemented("nobody queries here"))
    }

    async fn run_aggregation_query(
        &self,
        _: RunAggregationQueryRequest,
    ) -> Result<Vec<RunAggregationQueryResponse>, Status> {
        Err(Status::unimplemented("nobody counts here"))
    }
}
