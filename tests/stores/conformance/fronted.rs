//! A store that is written directly, and read and repaired through the HTTP face, over a real socket.

use async_trait::async_trait;
use hotcount::engine::pipeline::Config;
use hotcount::http_api;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{
    Applied, Attempt, Audit, Counts, Depth, Limits, Listing, Options, PageSize, QuarantinePage, Quarantined, Repair,
    Repaired, Settings, Store, StoreError, Tally,
};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Writes to `store`; reads and repairs through a worker's face that serves it.
pub(crate) struct Fronted {
    store: Arc<dyn Store>,
    counts: Arc<dyn Repair>,
    server: JoinHandle<()>,
}

impl Fronted {
    /// Serves `store` on a free port of this machine until it is dropped.
    pub(crate) async fn new(store: Arc<dyn Store>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let routes = http_api::routes(store.clone(), &Config::default().held());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.expect("serves") });
        let counts = hotcount::connect::repair(&format!("http://{address}"), &Options::default()).await;
        Self { store, counts: counts.expect("a worker's address"), server }
    }
}

impl Drop for Fronted {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[async_trait]
impl Counts for Fronted {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.counts.tally(post, depth).await
    }

    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.counts.posts(listing, after, limit).await
    }

    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.counts.quarantined(after, size).await
    }
}

#[async_trait]
impl Repair for Fronted {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.counts.audit(post).await
    }

    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.counts.repair(post, seen).await
    }
}

#[async_trait]
impl Store for Fronted {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        self.store.apply(batch, attempt).await
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        self.store.quarantine(poison).await
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        self.store.find_quarantined(id).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        self.store.discard(ids).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        self.store.membership(post, user).await
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        self.store.agree(settings).await
    }

    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        self.store.probe(key).await
    }

    fn limits(&self) -> Limits {
        self.store.limits()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
