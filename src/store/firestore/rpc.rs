//! The few RPCs that the adapter uses, behind a trait: the real one is a tonic client, and a test may stand in between
//! to fail any of them before or after it took effect.

use super::address::Address;
use super::connect::connect;
use async_trait::async_trait;
use firestore::errors::FirestoreError;
use futures::TryStreamExt;
use gcloud_sdk::google::firestore::v1::firestore_client::FirestoreClient;
use gcloud_sdk::google::firestore::v1::{
    BatchGetDocumentsRequest, BatchGetDocumentsResponse, CommitRequest, CommitResponse, RunAggregationQueryRequest,
    RunAggregationQueryResponse, RunQueryRequest, RunQueryResponse,
};
use gcloud_sdk::tonic::metadata::MetadataValue;
use gcloud_sdk::tonic::{Request, Status};
use gcloud_sdk::{GoogleAuthMiddleware, RequestTimeouts};
use std::time::Duration;

/// The longest that one RPC may take, its streamed answer included.
///
/// The service gives up after 60 s by itself; this only ends a call whose connection died in silence. A commit that
/// runs into it may have been applied, and is classified so.
pub const DEADLINE: Duration = Duration::from_secs(65);

/// The largest answer that is read, in bytes. A page of documents of up to 1 MiB stays well below.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The RPCs. Every call is one attempt: nobody below this trait tries again, because only the caller knows whether an
/// unknown outcome may be repeated.
#[async_trait]
pub trait Rpc: Send + Sync {
    /// All writes or none.
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status>;
    /// Documents by name; one answer for each, in any order.
    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status>;
    /// Documents by query; the last answer has the latest read time.
    async fn run_query(&self, request: RunQueryRequest) -> Result<Vec<RunQueryResponse>, Status>;
    /// A count by query.
    async fn run_aggregation_query(
        &self,
        request: RunAggregationQueryRequest,
    ) -> Result<Vec<RunAggregationQueryResponse>, Status>;
}

/// The service itself, or its emulator.
pub struct Grpc {
    client: FirestoreClient<GoogleAuthMiddleware>,
    emulated: bool,
}

impl Grpc {
    /// Opens the connection. An emulator is asked without credentials, the service with those of the environment
    /// (Application Default Credentials).
    ///
    /// # Errors
    /// When the host is not reached or there are no credentials.
    pub async fn connect(address: &Address) -> Result<Self, FirestoreError> {
        let client = connect(address).await?.max_decoding_message_size(MAX_ANSWER_BYTES);
        Ok(Self { client, emulated: address.emulator().is_some() })
    }

    /// The emulator takes whoever shows no token for a browser, and evaluates its security rules for every document. As
    /// `owner` one is what a service account is in the service: above the rules.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.extensions_mut().insert(RequestTimeouts::new().with_total(DEADLINE));
        if self.emulated {
            request.metadata_mut().insert("authorization", MetadataValue::from_static("Bearer owner"));
        }
        request
    }

    fn client(&self) -> FirestoreClient<GoogleAuthMiddleware> {
        self.client.clone()
    }
}

#[async_trait]
impl Rpc for Grpc {
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        Ok(self.client().commit(self.request(request)).await?.into_inner())
    }

    async fn batch_get(&self, request: BatchGetDocumentsRequest) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        self.client().batch_get_documents(self.request(request)).await?.into_inner().try_collect().await
    }

    async fn run_query(&self, request: RunQueryRequest) -> Result<Vec<RunQueryResponse>, Status> {
        self.client().run_query(self.request(request)).await?.into_inner().try_collect().await
    }

    async fn run_aggregation_query(
        &self,
        request: RunAggregationQueryRequest,
    ) -> Result<Vec<RunAggregationQueryResponse>, Status> {
        self.client().run_aggregation_query(self.request(request)).await?.into_inner().try_collect().await
    }
}
