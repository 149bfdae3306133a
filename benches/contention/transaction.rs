//! The guarded transaction on the emulator: read a marker and the counter, create the marker, increment the counter.

use crate::meter::Metered;
use gcloud_sdk::google::firestore::v1::batch_get_documents_request::ConsistencySelector;
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Got;
use gcloud_sdk::google::firestore::v1::document_transform::FieldTransform;
use gcloud_sdk::google::firestore::v1::document_transform::field_transform::TransformType;
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::google::firestore::v1::transaction_options::{Mode, ReadWrite};
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{
    BatchGetDocumentsRequest, CommitRequest, Document, DocumentMask, Precondition, TransactionOptions, Value, Write,
};
use gcloud_sdk::tonic::Status;
use hotcount::lab::firestore_model::guarded::{ATTEMPTS, wait};
use hotcount::store::firestore::Address;
use hotcount::store::firestore::rpc::Rpc;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Writers of one post.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub(crate) rpc: Arc<Metered>,
    pub(crate) address: Address,
    pub(crate) shards: u16,
    pub(crate) next: Arc<AtomicU64>,
}

impl Guarded {
    fn counter(&self, shard: u16) -> String {
        format!("{}/guardedPosts/hot-{shard}", self.address.root())
    }

    /// The counters, at 0: the transaction counts nothing for a post that is not there.
    pub(crate) async fn create(&self) {
        for shards in (0..self.shards).collect::<Vec<_>>().chunks(500) {
            let writes = shards.iter().map(|shard| update(self.counter(*shard), None, vec![])).collect();
            let request = CommitRequest { database: self.address.database_path(), writes, ..Default::default() };
            self.rpc.commit(request).await.expect("the emulator takes it");
        }
    }

    /// What the counters say together.
    pub(crate) async fn sum(&self) -> u64 {
        let documents = (0..self.shards).map(|shard| self.counter(shard)).collect();
        let request =
            BatchGetDocumentsRequest { database: self.address.database_path(), documents, ..Default::default() };
        let found = self.rpc.batch_get(request).await.expect("the emulator answers");
        let counts = found.into_iter().filter_map(|answer| match answer.result {
            Some(Got::Found(document)) => match document.fields.get("likeCount")?.value_type.as_ref()? {
                ValueType::IntegerValue(count) => u64::try_from(*count).ok(),
                _ => None,
            },
            _ => None,
        });
        counts.sum()
    }

    /// So many writers for so long; the latency of every event that was counted, sorted.
    pub(crate) async fn run(&self, writers: usize, lasts: Duration, seed: u64) -> Vec<Duration> {
        let (mut tasks, ends) = (JoinSet::new(), Instant::now() + lasts);
        for number in 0..writers as u64 {
            let (guarded, mut rng) = (self.clone(), SmallRng::seed_from_u64(seed ^ number << 32));
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                let _ = tokio::time::timeout_at(ends.into(), async {
                    loop {
                        let event = guarded.next.fetch_add(1, Ordering::Relaxed);
                        let arrived = Instant::now();
                        while !guarded.count(event, &mut rng).await {}
                        latencies.push(arrived.elapsed());
                    }
                })
                .await;
                latencies
            });
        }
        let mut all: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        all.sort_unstable();
        all
    }

    /// All attempts of one transaction, as the Node client makes them; whether one committed.
    async fn count(&self, event: u64, rng: &mut SmallRng) -> bool {
        for failures in 1..=ATTEMPTS {
            let shard = rng.random_range(0..self.shards);
            match self.transaction(event, shard).await {
                Ok(()) => return true,
                Err(_) if failures == ATTEMPTS => {}
                Err(_) => tokio::time::sleep(wait(failures, rng)).await,
            }
        }
        false
    }

    async fn transaction(&self, event: u64, shard: u16) -> Result<(), Status> {
        let marker = format!("{}/guardedEvents/event-{event}", self.address.root());
        let counter = self.counter(shard);
        let mode = Some(Mode::ReadWrite(ReadWrite::default()));
        let request = BatchGetDocumentsRequest {
            database: self.address.database_path(),
            documents: vec![marker.clone(), counter.clone()],
            consistency_selector: Some(ConsistencySelector::NewTransaction(TransactionOptions { mode })),
            ..Default::default()
        };
        let answers = self.rpc.batch_get(request).await?;
        let transaction = answers.iter().map(|answer| &answer.transaction).find(|id| !id.is_empty());
        let transaction = transaction.cloned().ok_or_else(|| Status::internal("no transaction was opened"))?;
        let increment = FieldTransform {
            field_path: "likeCount".to_owned(),
            transform_type: Some(TransformType::Increment(Value { value_type: Some(ValueType::IntegerValue(1)) })),
        };
        let writes =
            vec![update(marker, Some(ConditionType::Exists(false)), vec![]), update(counter, None, vec![increment])];
        let request =
            CommitRequest { database: self.address.database_path(), writes, transaction, ..Default::default() };
        self.rpc.commit(request).await.map(drop)
    }
}

fn update(name: String, condition: Option<ConditionType>, update_transforms: Vec<FieldTransform>) -> Write {
    let document = Document { name, fields: HashMap::new(), create_time: None, update_time: None };
    Write {
        update_mask: Some(DocumentMask::default()),
        update_transforms,
        current_document: condition.map(|condition| Precondition { condition_type: Some(condition) }),
        operation: Some(Operation::Update(document)),
    }
}
