//! Poison, kept whole: a document each, continued in `parts` when it is larger than a document may be.

use super::poison::{self, PARTS};
use super::read::{ascending, by_name, collection, odd, reference};
use super::{Firestore, MAX_COMMIT_BYTES, MAX_WRITES, failure};
use crate::store::{PageSize, QuarantinePage, Quarantined, StoreError};
use gcloud_sdk::google::firestore::v1::structured_query::Projection;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{Cursor, Document, StructuredQuery, Write};

/// Entries whose documents are asked for at once, at most.
const DOCUMENTS_A_LISTING: usize = 16;

/// The largest document, in bytes: so many of them are asked for as there is room for at this size.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// What is tried, in errors.
const KEEP: &str = "keep poison";

impl Firestore {
    /// Keeps the entries in their order. Parts come before the entry that needs them, so whoever sees an entry finds all
    /// of it; a crash in between leaves parts that the redelivery writes again.
    pub(super) async fn keep_poison(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        let mut bytes = 0;
        for entry in poison {
            for (write, size) in poison::writes(self.layout, &self.address.poison(&entry.id), entry) {
                if !writes.is_empty() && (bytes + size > MAX_COMMIT_BYTES || writes.len() == MAX_WRITES) {
                    self.commit_poison(std::mem::take(&mut writes), KEEP).await?;
                    bytes = 0;
                }
                bytes += size;
                writes.push(write);
            }
        }
        if writes.is_empty() { Ok(()) } else { self.commit_poison(writes, KEEP).await }
    }

    async fn commit_poison(&self, writes: Vec<Write>, tried: &'static str) -> Result<(), StoreError> {
        self.commit(writes).await.map_err(|status| failure((status, tried)))
    }

    /// Entries of this consumer, in the order of their ids. Their documents come a few at a time, no more than what may be
    /// left of the page holds when each is as large as it can be; the parts of an entry come one at a time.
    pub(super) async fn list_poison(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        let mut page = QuarantinePage::default();
        let (mut listed, mut bytes, mut after) = (0, 0, after.map(str::to_owned));
        while listed < size.entries && (bytes < size.bytes || listed == 0) {
            let room = size.bytes.saturating_sub(bytes) / MAX_DOCUMENT_BYTES;
            let wanted = room.clamp(1, DOCUMENTS_A_LISTING).min(size.entries - listed);
            let documents = self.poison_documents(after.as_deref(), wanted, None).await?;
            let last = documents.len() < wanted;
            for document in documents {
                if bytes >= size.bytes && listed > 0 {
                    page.next = after;
                    return Ok(page);
                }
                let id = self.poison_id(&document)?;
                match self.read_poison(id.clone(), &document).await? {
                    Ok(entry) => {
                        bytes += entry.bytes();
                        page.entries.push(entry);
                    }
                    Err(fault) => page.unreadable.push((id.clone(), fault)),
                }
                listed += 1;
                after = Some(id);
            }
            if last {
                return Ok(page);
            }
        }
        let names_alone = Projection { fields: vec![by_name()] };
        if !self.poison_documents(after.as_deref(), 1, Some(names_alone)).await?.is_empty() {
            page.next = after;
        }
        Ok(page)
    }

    /// The id of an entry's document.
    fn poison_id(&self, document: &Document) -> Result<String, StoreError> {
        let id = document.name.strip_prefix(&self.address.poison_prefix());
        id.map(str::to_owned).ok_or_else(|| odd("a listing of poison has a document that it did not ask for"))
    }

    /// Up to `limit` documents of entries, without their parts.
    async fn poison_documents(
        &self,
        after: Option<&str>,
        limit: usize,
        select: Option<Projection>,
    ) -> Result<Vec<Document>, StoreError> {
        let query = StructuredQuery {
            select,
            from: collection(self.address.quarantine(), false),
            order_by: vec![ascending(by_name())],
            start_at: Some(Cursor {
                // The bare prefix is a legal name that no entry has.
                values: vec![reference(self.address.poison(after.unwrap_or_default()))],
                before: false,
            }),
            end_at: Some(Cursor { values: vec![reference(self.address.poison_end())], before: true }),
            limit: Some(i32::try_from(limit).unwrap_or(i32::MAX)),
            ..Default::default()
        };
        self.query(self.address.root(), query, None, "list poison").await
    }

    /// One entry of this consumer.
    pub(super) async fn find_poison(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        if !is_entry(id) {
            return Ok(None);
        }
        let name = self.address.poison(id);
        let mut found = self.get(vec![name.clone()], None).await.map_err(failure)?;
        match found.remove(&name) {
            Some(document) => Ok(Some(self.read_only_poison(id, &document).await?)),
            None => Ok(None),
        }
    }

    /// Deletes entries. An entry and its parts go in one commit: without its parts it could not be read, and without it
    /// nobody would find the parts.
    pub(super) async fn discard_poison(&self, ids: &[String]) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        for id in ids.iter().filter(|id| is_entry(id)) {
            let name = self.address.poison(id);
            let query = StructuredQuery {
                select: Some(Projection { fields: vec![by_name()] }),
                from: collection(PARTS.to_owned(), false),
                ..Default::default()
            };
            // All there are: a payload that was replaced by a shorter one has left more than its size says.
            let parts = self.query(name.clone(), query, None, "list the parts of poison").await?;
            let names = parts.into_iter().map(|part| part.name).chain([name]);
            let deletes: Vec<Write> = names.map(delete).collect();
            if !writes.is_empty() && writes.len() + deletes.len() > MAX_WRITES {
                self.commit_poison(std::mem::take(&mut writes), "delete poison").await?;
            }
            writes.extend(deletes);
        }
        if writes.is_empty() { Ok(()) } else { self.commit_poison(writes, "delete poison").await }
    }
}

/// Whether an entry may have this id; one with a slash would name a document below another entry.
fn is_entry(id: &str) -> bool {
    !id.is_empty() && !id.contains('/')
}

fn delete(name: String) -> Write {
    Write { operation: Some(Operation::Delete(name)), ..Default::default() }
}
