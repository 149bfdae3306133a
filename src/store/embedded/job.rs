//! What tasks ask of the writer, made ready by the task that asks, and how each is answered.

use super::engine::Engine;
use super::layout::{push_member_record, push_post, record};
use crate::batch::{Batch, BatchKey};
use crate::event::Like;
use crate::store::{Applied, Attempt, ErrorClass, Repaired, StoreError};
use tokio::sync::oneshot;

/// What a task asks of the writer.
pub(super) enum Job {
    /// Applies a batch.
    Apply(Box<Prepared>, oneshot::Sender<Result<Applied, StoreError>>),
    /// Keeps rows of the quarantine.
    Quarantine(Vec<(Vec<u8>, Vec<u8>)>, oneshot::Sender<Result<(), StoreError>>),
    /// Removes rows of the quarantine.
    Discard(Vec<Vec<u8>>, oneshot::Sender<Result<(), StoreError>>),
    /// Corrects the count of a post.
    Repair(Correction, oneshot::Sender<Result<Repaired, StoreError>>),
}

/// What the repair shard of a post lacks, and the version of it that this holds for.
pub(super) struct Correction {
    pub(super) post: String,
    pub(super) version: Option<String>,
    pub(super) delta: i64,
}

/// What became of one job of a group.
pub(super) enum Outcome {
    Applied(Applied),
    Quarantine,
    Repaired(Repaired),
}

/// A batch made ready by the task that brings it, so that the one writer has less to do.
pub(super) struct Prepared {
    pub(super) key: BatchKey,
    pub(super) shard: u16,
    pub(super) likes: Vec<Like>,
    /// A membership record for each like.
    pub(super) records: Vec<u8>,
    /// For each like the hash of its key and where its record begins.
    pub(super) places: Vec<(u32, u32)>,
}

impl Prepared {
    /// Writes each like as the record that it becomes if it is written.
    pub(super) fn new(engine: &Engine, batch: &Batch, attempt: Attempt) -> Self {
        let likes = batch.likes().to_vec();
        let text: usize = likes.iter().map(Like::text_bytes).sum();
        let mut records = Vec::with_capacity(text + likes.len() * 16);
        let mut places = Vec::with_capacity(likes.len());
        let mut prefix = Vec::new();
        for likes in batch.by_post() {
            prefix.clear();
            push_post(&mut prefix, likes[0].post());
            for like in likes {
                let at = push_member_record(&mut records, &prefix, like);
                let hash = record(&records[at..]).map_or(0, |record| engine.hasher.hash(record.key));
                // A batch is far below 4 GiB: a store's limits see to it.
                places.push((hash, at as u32));
            }
        }
        Self { key: batch.key(), shard: attempt.shard, likes, records, places }
    }

    fn bytes(&self) -> usize {
        self.records.len()
    }
}

impl Job {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Job::Apply(batch, _) => batch.bytes(),
            Job::Quarantine(rows, _) => rows.iter().map(|(_, row)| row.len()).sum(),
            Job::Discard(keys, _) => keys.iter().map(Vec::len).sum(),
            Job::Repair(correction, _) => correction.post.len(),
        }
    }

    /// Answers a job of a group that is durable. Nobody waits when the caller has gone; it reads again.
    pub(super) fn answer(self, outcome: Outcome) {
        match (self, outcome) {
            (Job::Apply(_, reply), Outcome::Applied(applied)) => drop(reply.send(Ok(applied))),
            (Job::Quarantine(_, reply) | Job::Discard(_, reply), Outcome::Quarantine) => drop(reply.send(Ok(()))),
            (Job::Repair(_, reply), Outcome::Repaired(repaired)) => drop(reply.send(Ok(repaired))),
            // `write` answers each job with its own kind.
            (job, _) => job.refuse("the store's writer mixed up its answers; this is a bug"),
        }
    }

    /// Answers a job of a group that failed.
    pub(super) fn refuse(self, message: &str) {
        let error = StoreError::new(ErrorClass::CannotWork, message);
        // Nobody waits when the caller has gone; its batch comes back under the same key or another.
        match self {
            Job::Apply(_, reply) => drop(reply.send(Err(error))),
            Job::Quarantine(_, reply) | Job::Discard(_, reply) => drop(reply.send(Err(error))),
            Job::Repair(_, reply) => drop(reply.send(Err(error))),
        }
    }
}
