//! A store whose quarantine has the poison already.

use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use crate::store::{
    Applied, Attempt, Audit, Counts, Depth, Limits, Listing, PageSize, QuarantinePage, Quarantined, Repair, Repaired,
    Settings, Store, StoreError, Tally,
};
use async_trait::async_trait;
use std::sync::Arc;

/// All that is quarantined through it is an entry that is being readmitted: it is kept already, under the id of the
/// source and message that it first came from.
pub(super) struct Kept(pub(super) Arc<dyn Store>);

#[async_trait]
impl Counts for Kept {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.0.tally(post, depth).await
    }

    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.0.posts(listing, after, limit).await
    }

    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.0.quarantined(after, size).await
    }
}

#[async_trait]
impl Repair for Kept {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.0.audit(post).await
    }

    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.0.repair(post, seen).await
    }
}

#[async_trait]
impl Store for Kept {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        self.0.apply(batch, attempt).await
    }

    async fn quarantine(&self, _: &[Quarantined]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        self.0.find_quarantined(id).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        self.0.discard(ids).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        self.0.membership(post, user).await
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        self.0.agree(settings).await
    }

    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        self.0.probe(key).await
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }
}
