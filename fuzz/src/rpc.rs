//! Firestore's side of its adapter: one that answers anything, and one that keeps what it is given.

use super::dice::Dice;
use async_trait::async_trait;
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Got;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{
    AggregationResult, ArrayValue, BatchGetDocumentsRequest, BatchGetDocumentsResponse, CommitRequest, CommitResponse,
    Document, MapValue, RunAggregationQueryRequest, RunAggregationQueryResponse, RunQueryRequest, RunQueryResponse,
    Value,
};
use gcloud_sdk::prost_types::Timestamp;
use gcloud_sdk::tonic::{Code, Status};
use hotcount::store::firestore::rpc::Rpc;
use prost::Message;
use std::collections::HashMap;
use std::sync::Mutex;

/// The post and the user that everything is about.
pub const POST: &str = "post-1";
pub const USER: &str = "user-1";

/// The largest document, and the largest commit that the emulator takes.
const MAX_DOCUMENT_BYTES: usize = 1_048_487;
const MAX_COMMIT_BYTES: usize = 4 << 20;

/// Answers made of bytes. When these are used up, nothing is there and every commit succeeds, so every call ends.
pub struct Answers(Mutex<Vec<u8>>);

impl Answers {
    pub fn made_of(bytes: &[u8]) -> Self {
        Self(Mutex::new(bytes.to_vec()))
    }

    fn with<T>(&self, make: impl FnOnce(&mut Dice<'_>) -> T) -> T {
        let mut bytes = self.0.lock().unwrap();
        let mut dice = Dice(&bytes);
        let made = make(&mut dice);
        let left = dice.0.len();
        let used = bytes.len() - left;
        bytes.drain(..used);
        made
    }
}

#[async_trait]
impl Rpc for Answers {
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        let name = request.writes.last().and_then(|write| match write.operation.as_ref()? {
            Operation::Update(document) => Some(document.name.clone()),
            _ => None,
        });
        let code = self.with(|dice| match dice.below(8) {
            1 | 2 => Code::AlreadyExists,
            3 => Code::FailedPrecondition,
            4 => Code::NotFound,
            5 => Code::from_i32(dice.below(17) as i32),
            _ => Code::Ok,
        });
        if code == Code::Ok {
            return Ok(CommitResponse::default());
        }
        Err(Status::new(code, format!("refused: {}", name.unwrap_or_default())))
    }

    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        self.with(|dice| {
            let answer = |(dice, name): (&mut Dice<'_>, String)| BatchGetDocumentsResponse {
                result: match dice.below(8) {
                    0 => Some(Got::Missing(name)),
                    1 => None,
                    // A batch that had committed has no other outcome, so mostly it had not.
                    3..=6 if name.contains("/hotcountBatches/") => Some(Got::Missing(name)),
                    2 => Some(Got::Found(document(
                        dice,
                        "projects/demo/databases/(default)/documents/other/1".to_owned(),
                    ))),
                    _ => Some(Got::Found(document(dice, name))),
                },
                read_time: (dice.byte() & 3 != 3).then(|| timestamp(dice)),
                ..Default::default()
            };
            let answers = request.documents.into_iter().map(|name| answer((&mut *dice, name))).collect();
            status(dice).map_or(Ok(answers), Err)
        })
    }

    async fn run_query(&self, request: RunQueryRequest) -> Result<Vec<RunQueryResponse>, Status> {
        self.with(|dice| {
            let answers = (0..dice.below(4)).map(|_| {
                let name = match dice.below(6) {
                    0 => format!("{}/hotcountShards/0", request.parent),
                    1 => format!("{}/hotcountShards/repair", request.parent),
                    2 => format!("{}/posts/{}/hotcountShards/1", request.parent, dice.text()),
                    3 => format!("{}/hotcountQuarantine/consumer:{}", request.parent, dice.text()),
                    4 => format!("{}/{}", request.parent, dice.text()),
                    _ => dice.text(),
                };
                let document = (dice.below(8) != 7).then(|| document(dice, name));
                RunQueryResponse { document, read_time: Some(timestamp(dice)), ..Default::default() }
            });
            let answers = answers.collect();
            status(dice).map_or(Ok(answers), Err)
        })
    }

    async fn run_aggregation_query(
        &self,
        _: RunAggregationQueryRequest,
    ) -> Result<Vec<RunAggregationQueryResponse>, Status> {
        self.with(|dice| {
            let alias = if dice.below(8) == 7 { dice.text() } else { "members".to_owned() };
            let number = if dice.below(8) == 7 { anything(dice, 0) } else { kind(ValueType::IntegerValue(dice.int())) };
            let result = AggregationResult { aggregate_fields: HashMap::from([(alias, number)]) };
            let answer = RunAggregationQueryResponse { result: Some(result), ..Default::default() };
            status(dice).map_or(Ok(vec![answer]), Err)
        })
    }
}

fn status(dice: &mut Dice<'_>) -> Option<Status> {
    (dice.byte() > 250).then(|| Status::new(Code::from_i32(1 + dice.below(16) as i32), "not now"))
}

/// A document with the fields of every kind of document, each mostly as hotcount writes it.
fn document(dice: &mut Dice<'_>, name: String) -> Document {
    let int = |dice: &mut Dice<'_>| ValueType::IntegerValue(dice.int());
    let text = |text: &str| ValueType::StringValue(text.to_owned());
    let fields = [
        ("post", text(POST)),
        ("user", text(USER)),
        ("eventId", text("event")),
        ("cell", ValueType::StringValue(format!("{:x}:{POST}", dice.below(16)))),
        ("liked", ValueType::BooleanValue(dice.byte() & 1 == 0)),
        ("order", int(dice)),
        ("count", int(dice)),
        ("applied", int(dice)),
        ("duplicates", int(dice)),
        ("stale", int(dice)),
        ("size", int(dice)),
        ("data", ValueType::BytesValue(dice.some().to_vec())),
        ("attributes", ValueType::ArrayValue(ArrayValue { values: vec![anything(dice, 0)] })),
        ("source", text("source")),
        ("reason", text("reason")),
        ("messageId", text("message")),
        ("publishTime", ValueType::TimestampValue(timestamp(dice))),
        ("receivedAt", ValueType::TimestampValue(timestamp(dice))),
        ("deliveryAttempt", int(dice)),
        ("v", ValueType::IntegerValue(1 + i64::from(dice.byte() > 0xF0))),
        ("identity", text("member")),
        ("layout", ValueType::IntegerValue(1)),
    ];
    let fields = fields.into_iter().filter_map(|(field, right)| {
        let value = match dice.byte() {
            0xF0..0xF8 => return None,
            0xF8.. => anything(dice, 0),
            _ => kind(right),
        };
        Some((field.to_owned(), value))
    });
    let fields = fields.collect();
    let update_time = (dice.byte() & 7 != 7).then(|| timestamp(dice));
    Document { name, fields, create_time: None, update_time }
}

fn anything(dice: &mut Dice<'_>, depth: usize) -> Value {
    kind(match dice.below(if depth < 3 { 11 } else { 9 }) {
        0 => return Value { value_type: None },
        1 => ValueType::NullValue(0),
        2 => ValueType::BooleanValue(true),
        3 => ValueType::IntegerValue(dice.int()),
        4 => ValueType::DoubleValue(f64::NAN),
        5 => ValueType::TimestampValue(timestamp(dice)),
        6 => ValueType::StringValue(if dice.byte() == 0xFF { "x".repeat(2_000) } else { dice.text() }),
        7 => ValueType::BytesValue(dice.some().to_vec()),
        8 => ValueType::ReferenceValue(dice.text()),
        9 => ValueType::ArrayValue(ArrayValue {
            values: (0..dice.below(3)).map(|_| anything(dice, depth + 1)).collect(),
        }),
        _ => {
            let names = ["key", "value", "other"].into_iter().take(1 + dice.below(3));
            let fields = names.map(|name| (name.to_owned(), anything(dice, depth + 1)));
            ValueType::MapValue(MapValue { fields: fields.collect() })
        }
    })
}

fn kind(value_type: ValueType) -> Value {
    Value { value_type: Some(value_type) }
}

fn timestamp(dice: &mut Dice<'_>) -> Timestamp {
    Timestamp { seconds: dice.int(), nanos: dice.int() as i32 }
}

/// Keeps the documents of every commit, as large as Firestore lets them be.
#[derive(Default)]
pub struct Kept(Mutex<HashMap<String, Document>>);

#[async_trait]
impl Rpc for Kept {
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        assert!(request.encoded_len() <= MAX_COMMIT_BYTES, "a commit of {} bytes", request.encoded_len());
        for write in request.writes {
            let Some(Operation::Update(document)) = write.operation else { panic!("poison is written whole") };
            assert!(document.encoded_len() <= MAX_DOCUMENT_BYTES, "a document of {} bytes", document.encoded_len());
            self.0.lock().unwrap().insert(document.name.clone(), document);
        }
        Ok(CommitResponse::default())
    }

    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        let kept = self.0.lock().unwrap();
        let got = |name: String| kept.get(&name).map_or(Got::Missing(name), |document| Got::Found(document.clone()));
        let answer = |name| BatchGetDocumentsResponse { result: Some(got(name)), ..Default::default() };
        Ok(request.documents.into_iter().map(answer).collect())
    }

    async fn run_query(&self, _: RunQueryRequest) -> Result<Vec<RunQueryResponse>, Status> {
        Ok(Vec::new())
    }

    async fn run_aggregation_query(
        &self,
        _: RunAggregationQueryRequest,
    ) -> Result<Vec<RunAggregationQueryResponse>, Status> {
        Ok(Vec::new())
    }
}
