//! The seam of the Firestore adapter: its RPCs, over the documents of a run.

use crate::auditor::Auditor;
use crate::calls;
use crate::documents::{Documents, ROOT, Touched, text};
use crate::life::Life;
use crate::mutants::Mutant;
use crate::seen::Kind;
use async_trait::async_trait;
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Got;
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::google::firestore::v1::structured_query::filter::FilterType;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{
    AggregationResult, BatchGetDocumentsRequest, BatchGetDocumentsResponse, CommitRequest, CommitResponse, Document,
    RunAggregationQueryRequest, RunAggregationQueryResponse, RunQueryRequest, RunQueryResponse, StructuredQuery, Value,
    Write, run_aggregation_query_request, run_query_request, structured_aggregation_query,
};
use gcloud_sdk::tonic::{Code, Status};
use hotcount::store::firestore::rpc::Rpc;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// One worker's connection.
pub(crate) struct Connection {
    pub(crate) life: Arc<Life>,
    pub(crate) documents: Arc<Documents>,
    pub(crate) auditor: Arc<Auditor>,
}

fn name_of(write: &Write) -> &str {
    match &write.operation {
        Some(Operation::Update(document)) => &document.name,
        _ => "",
    }
}

/// Commits at the store, and lets the auditor look at once.
fn apply(life: &Arc<Life>, documents: &Documents, auditor: &Auditor, writes: &[Write]) -> Result<Touched, Status> {
    let applied = documents.commit(writes);
    match &applied {
        Ok(touched) => {
            life.world.note(Kind::Commit);
            life.world.say(format_args!("a commit of {life} with {} documents is applied", writes.len()));
            auditor.written(&touched.posts, &touched.members);
        }
        Err(status) => {
            life.world.say(format_args!("a commit of {life} with {} documents is refused: {status:?}", writes.len()));
        }
    }
    applied
}

impl Connection {
    fn double(&self) -> Option<Mutant> {
        self.life.world.plan.double
    }

    /// What a double makes of a commit.
    fn spoil(&self, mut writes: Vec<Write>) -> Vec<Write> {
        for write in &mut writes {
            let by_version = write.current_document.as_ref().and_then(|condition| condition.condition_type.as_ref());
            let by_version = matches!(by_version, Some(ConditionType::UpdateTime(_)));
            match self.double() {
                Some(Mutant::BlindWrites) => write.current_document = None,
                Some(Mutant::NoVersions) if by_version => write.current_document = None,
                _ => {}
            }
        }
        if self.double() == Some(Mutant::QuarantineOfAir) {
            writes.retain(|write| !name_of(write).contains("/hotcountQuarantine/"));
        }
        writes
    }

    fn documents_of(
        &self,
        parent: &str,
        query: &StructuredQuery,
        at: Option<&gcloud_sdk::prost_types::Timestamp>,
    ) -> Vec<Document> {
        let [from] = &query.from[..] else { panic!("the simulation knows one collection a query: {query:?}") };
        let supported = !from.all_descendants && query.limit.is_none() && query.start_at.is_none();
        assert!(supported, "the simulation knows no such query: {query:?}");
        let mut found = self.documents.list(&format!("{parent}/{}/", from.collection_id), at);
        match query.r#where.as_ref().and_then(|filter| filter.filter_type.as_ref()) {
            None => {}
            Some(FilterType::FieldFilter(filter)) => {
                let field = filter.field.as_ref().map(|field| field.field_path.as_str()).unwrap_or_default();
                let Some(ValueType::ArrayValue(among)) = filter.value.as_ref().and_then(|v| v.value_type.as_ref())
                else {
                    panic!("the simulation knows no such filter: {filter:?}");
                };
                let is_among = |document: &Document| {
                    let same = |value: &Value| matches!(&value.value_type, Some(ValueType::StringValue(text_of)) if text_of == text(document, field));
                    among.values.iter().any(same)
                };
                found.retain(is_among);
            }
            other => panic!("the simulation knows no such filter: {other:?}"),
        }
        found
    }
}

fn status(code: Code) -> Status {
    Status::new(code, "a fault of the simulation")
}

#[async_trait]
impl Rpc for Connection {
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        let writes = self.spoil(request.writes);
        let (life, documents, auditor) = (self.life.clone(), self.documents.clone(), self.auditor.clone());
        if self.double() == Some(Mutant::AnswersTooEarly) {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = apply(&life, &documents, &auditor, &writes);
            });
            return Ok(CommitResponse::default());
        }
        let increments: Vec<Write> =
            writes.iter().filter(|write| name_of(write).contains("/hotcountShards/")).cloned().collect();
        let sent = calls::commit(&self.life, move || apply(&life, &documents, &auditor, &writes)).await;
        match sent {
            Ok(Ok(_)) => Ok(CommitResponse::default()),
            Ok(Err(refused)) => Err(refused),
            Err(code) => {
                if self.double() == Some(Mutant::ResendsIncrements) && calls::is_unknown(code) && !increments.is_empty()
                {
                    let _ = apply(&self.life, &self.documents, &self.auditor, &increments);
                }
                Err(status(code))
            }
        }
    }

    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        let reading = || {
            let answer = |name: &String| {
                let (document, time) = self.documents.get(name);
                let document = document.filter(|_| self.double() != Some(Mutant::BlindWrites));
                let result = document.map_or_else(|| Got::Missing(name.clone()), Got::Found);
                BatchGetDocumentsResponse { result: Some(result), read_time: Some(time), ..Default::default() }
            };
            request.documents.iter().map(answer).collect::<Vec<_>>()
        };
        let mut answers = calls::read(&self.life, reading).await.map_err(status)?;
        // A stream may be cut short without an error.
        if self.life.world.strikes(Kind::ShortAnswer) {
            answers.pop();
        }
        Ok(answers)
    }

    async fn run_query(&self, request: RunQueryRequest) -> Result<Vec<RunQueryResponse>, Status> {
        let Some(run_query_request::QueryType::StructuredQuery(query)) = &request.query_type else {
            panic!("a query has a structure");
        };
        let at = match &request.consistency_selector {
            Some(run_query_request::ConsistencySelector::ReadTime(time)) => Some(time),
            _ => None,
        };
        let found = calls::read(&self.life, || self.documents_of(&request.parent, query, at)).await.map_err(status)?;
        let answer = |document| RunQueryResponse { document: Some(document), ..Default::default() };
        Ok(found.into_iter().map(answer).collect())
    }

    async fn run_aggregation_query(
        &self,
        request: RunAggregationQueryRequest,
    ) -> Result<Vec<RunAggregationQueryResponse>, Status> {
        let Some(run_aggregation_query_request::QueryType::StructuredAggregationQuery(aggregation)) =
            &request.query_type
        else {
            panic!("a query has a structure");
        };
        let Some(structured_aggregation_query::QueryType::StructuredQuery(query)) = &aggregation.query_type else {
            panic!("an aggregation has a query");
        };
        let at = match &request.consistency_selector {
            Some(run_aggregation_query_request::ConsistencySelector::ReadTime(time)) => Some(time),
            _ => None,
        };
        assert_eq!(request.parent, ROOT, "members are in a collection at the root");
        let found = calls::read(&self.life, || self.documents_of(&request.parent, query, at)).await.map_err(status)?;
        let number = Value { value_type: Some(ValueType::IntegerValue(found.len() as i64)) };
        let fields = HashMap::from([(aggregation.aggregations[0].alias.clone(), number)]);
        let result = Some(AggregationResult { aggregate_fields: fields });
        Ok(vec![RunAggregationQueryResponse { result, ..Default::default() }])
    }
}
