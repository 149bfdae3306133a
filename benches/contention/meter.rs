//! The client of every strategy on the emulator: the real one, with what goes through it counted.

use async_trait::async_trait;
use gcloud_sdk::google::firestore::v1::{
    BatchGetDocumentsRequest, BatchGetDocumentsResponse, CommitRequest, CommitResponse, RunAggregationQueryRequest,
    RunAggregationQueryResponse, RunQueryRequest, RunQueryResponse,
};
use gcloud_sdk::tonic::{Code, Status};
use hotcount::lab::firestore_model::Usage;
use hotcount::store::firestore::Address;
use hotcount::store::firestore::rpc::{Grpc, Rpc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The RPCs, counted.
pub(crate) struct Metered {
    inner: Grpc,
    tried: AtomicU64,
    aborted: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
}

impl Metered {
    pub(crate) async fn connect(address: &Address) -> Arc<Self> {
        let inner = Grpc::connect(address).await.expect("the emulator is there");
        let zero = || AtomicU64::new(0);
        Arc::new(Self { inner, tried: zero(), aborted: zero(), writes: zero(), reads: zero() })
    }

    pub(crate) fn usage(&self) -> Usage {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Usage {
            tried: read(&self.tried),
            aborted: read(&self.aborted),
            writes: read(&self.writes),
            reads: read(&self.reads),
        }
    }

    /// A transaction that is aborted at its read has been tried too.
    fn failed(&self, status: &Status, at_the_read: bool) {
        if status.code() == Code::Aborted {
            self.aborted.fetch_add(1, Ordering::Relaxed);
            self.tried.fetch_add(u64::from(at_the_read), Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl Rpc for Metered {
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        let writes = request.writes.len() as u64;
        self.tried.fetch_add(1, Ordering::Relaxed);
        let answer = self.inner.commit(request).await;
        match &answer {
            Ok(_) => _ = self.writes.fetch_add(writes, Ordering::Relaxed),
            Err(status) => self.failed(status, false),
        }
        answer
    }

    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        let reads = request.documents.len() as u64;
        let answer = self.inner.batch_get(request).await;
        match &answer {
            Ok(_) => _ = self.reads.fetch_add(reads, Ordering::Relaxed),
            Err(status) => self.failed(status, true),
        }
        answer
    }

    async fn run_query(&self, request: RunQueryRequest) -> Result<Vec<RunQueryResponse>, Status> {
        self.inner.run_query(request).await
    }

    async fn run_aggregation_query(
        &self,
        request: RunAggregationQueryRequest,
    ) -> Result<Vec<RunAggregationQueryResponse>, Status> {
        self.inner.run_aggregation_query(request).await
    }
}
