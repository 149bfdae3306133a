//! What tasks ask of the writer, made ready by the task that asks, and how each is answered.

use super::layout::{kind, push_text};
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use crate::store::{Applied, Attempt, ErrorClass, Repaired, Settings, StoreError};
use lsm_tree::Slice;
use tokio::sync::oneshot;

/// Where an answer goes.
type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What a task asks of the writer.
pub(super) enum Job {
    /// Applies a batch.
    Apply(Box<Prepared>, Reply<Applied>),
    /// Keeps rows of the quarantine.
    Quarantine(Vec<(Vec<u8>, Vec<u8>)>, Reply<()>),
    /// Removes rows of the quarantine.
    Discard(Vec<Vec<u8>>, Reply<()>),
    /// Corrects the count of a post.
    Repair(Correction, Reply<Repaired>),
    /// Keeps settings, unless there are some.
    Agree(Settings, Reply<Settings>),
    /// Commits a batch key alone.
    Probe(BatchKey, Reply<()>),
    /// Brings to disk what is in memory, and begins a new segment of the log.
    Seal(Reply<()>),
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
    Repaired(Repaired),
    Settings(Settings),
    Done,
}

/// A batch made ready by the task that brings it, so that the one writer has less to do.
pub(super) struct Prepared {
    pub(super) key: BatchKey,
    pub(super) shard: u16,
    pub(super) likes: Vec<Like>,
    /// The key of each like's membership.
    pub(super) keys: Vec<Slice>,
}

impl Prepared {
    /// Makes the keys of all likes.
    pub(super) fn new(batch: &Batch, attempt: Attempt) -> Self {
        let likes = batch.likes().to_vec();
        let mut keys = Vec::with_capacity(likes.len());
        let mut key = Vec::new();
        for likes in batch.by_post() {
            key.clear();
            key.push(kind::MEMBER);
            push_text(&mut key, likes[0].post());
            let prefix = key.len();
            for like in likes {
                key.truncate(prefix);
                key.extend_from_slice(like.user().as_bytes());
                keys.push(Slice::from(key.as_slice()));
            }
        }
        Self { key: batch.key(), shard: attempt.shard, likes, keys }
    }

    fn bytes(&self) -> usize {
        self.likes.iter().map(Like::text_bytes).sum()
    }
}

impl Job {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Job::Apply(batch, _) => batch.bytes(),
            Job::Quarantine(rows, _) => rows.iter().map(|(_, row)| row.len()).sum(),
            Job::Discard(keys, _) => keys.iter().map(Vec::len).sum(),
            Job::Repair(correction, _) => correction.post.len(),
            Job::Agree(settings, _) => settings.order.len() + settings.identity.len(),
            Job::Probe(..) | Job::Seal(_) => 0,
        }
    }

    /// Answers a job. Nobody waits when the caller has gone; it reads again.
    pub(super) fn answer(self, outcome: Result<Outcome, StoreError>) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.refuse(&error),
        };
        match (self, outcome) {
            (Job::Apply(_, reply), Outcome::Applied(applied)) => drop(reply.send(Ok(applied))),
            (Job::Repair(_, reply), Outcome::Repaired(repaired)) => drop(reply.send(Ok(repaired))),
            (Job::Agree(_, reply), Outcome::Settings(settings)) => drop(reply.send(Ok(settings))),
            (
                Job::Quarantine(_, reply) | Job::Discard(_, reply) | Job::Probe(_, reply) | Job::Seal(reply),
                Outcome::Done,
            ) => {
                drop(reply.send(Ok(())));
            }
            // The writer answers each job with its own kind.
            (job, _) => {
                let bug = "the store's writer mixed up its answers; this is a bug";
                job.refuse(&StoreError::new(ErrorClass::Fatal, bug));
            }
        }
    }

    /// Answers a job that failed, or whose group did.
    pub(super) fn refuse(self, error: &StoreError) {
        let error = StoreError::new(error.class.clone(), error.message.clone());
        // Nobody waits when the caller has gone; its batch comes back under the same key or another.
        match self {
            Job::Apply(_, reply) => drop(reply.send(Err(error))),
            Job::Repair(_, reply) => drop(reply.send(Err(error))),
            Job::Agree(_, reply) => drop(reply.send(Err(error))),
            Job::Quarantine(_, reply) | Job::Discard(_, reply) | Job::Probe(_, reply) | Job::Seal(reply) => {
                drop(reply.send(Err(error)));
            }
        }
    }
}
