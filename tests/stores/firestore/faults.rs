//! A layer over the RPCs that fails one before or after it took effect, or lets something happen just before it.

use async_trait::async_trait;
use futures::future::BoxFuture;
use gcloud_sdk::google::firestore::v1::{
    BatchGetDocumentsRequest, BatchGetDocumentsResponse, CommitRequest, CommitResponse, RunAggregationQueryRequest,
    RunAggregationQueryResponse, RunQueryRequest, RunQueryResponse,
};
use gcloud_sdk::tonic::{Code, Status};
use hotcount::store::firestore::rpc::Rpc;
use std::sync::{Arc, Mutex};
use tokio::sync::Barrier;

/// On which side of its effect a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Nothing is written.
    Before,
    /// All is written, and the answer is lost.
    After,
}

type Hook = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

#[derive(Default)]
struct Armed {
    commit: Option<(Code, When)>,
    read: Option<Code>,
    barrier: Option<Arc<Barrier>>,
    hook: Option<Arc<Hook>>,
}

/// The layer. What is armed happens once, but for the hook.
pub(crate) struct Faults {
    inner: Arc<dyn Rpc>,
    armed: Mutex<Armed>,
}

impl Faults {
    pub(crate) fn over(inner: Arc<dyn Rpc>) -> Self {
        Self { inner, armed: Mutex::default() }
    }

    pub(crate) fn fail_next_commit(&self, code: Code, when: When) {
        self.armed.lock().unwrap().commit = Some((code, when));
    }

    pub(crate) fn fail_next_read(&self, code: Code) {
        self.armed.lock().unwrap().read = Some(code);
    }

    pub(crate) fn meet_before_next_commit(&self, barrier: Arc<Barrier>) {
        self.armed.lock().unwrap().barrier = Some(barrier);
    }

    pub(crate) fn before_every_commit(&self, hook: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) {
        self.armed.lock().unwrap().hook = Some(Arc::new(hook));
    }

    pub(crate) fn leave_commits_alone(&self) {
        self.armed.lock().unwrap().hook = None;
    }
}

#[async_trait]
impl Rpc for Faults {
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        let (fault, barrier, hook) = {
            let mut armed = self.armed.lock().unwrap();
            (armed.commit.take(), armed.barrier.take(), armed.hook.clone())
        };
        if let Some(barrier) = barrier {
            barrier.wait().await;
        }
        if let Some(hook) = hook {
            hook().await;
        }
        match fault {
            None => self.inner.commit(request).await,
            Some((code, When::Before)) => Err(Status::new(code, "failed by the test before it was applied")),
            Some((code, When::After)) => {
                self.inner.commit(request).await?;
                Err(Status::new(code, "failed by the test after it was applied"))
            }
        }
    }

    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        let fault = self.armed.lock().unwrap().read.take();
        match fault {
            Some(code) => Err(Status::new(code, "failed by the test")),
            None => self.inner.batch_get(request).await,
        }
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
