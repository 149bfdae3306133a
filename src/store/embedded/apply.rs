//! What the jobs of a group decide: which rows they write. Each sees what the ones before it in the group write.

use super::BATCH_KEY_LIFETIME;
use super::error::{StorageError, stored_fault};
use super::frame::Tree;
use super::job::{Correction, Prepared};
use super::layout::{self, Fault, ROW_VERSION, kind};
use super::read::{counter_name, member_name};
use super::writer::{Writer, now_s};
use crate::like::batch::BatchKey;
use crate::like::event::Like;
use crate::like::membership::{Decision, decide};
use crate::store::{Applied, REPAIR_SHARD, Repaired, Settings, StoreError, Undecidable};
use lsm_tree::Slice;

impl Writer<'_> {
    pub(super) fn apply(&mut self, batch: &Prepared) -> Result<Applied, JobError> {
        if let Some(outcome) = self.get(Tree::Rows, &layout::batch_key(&self.engine.config.consumer, batch.key.as_bytes()))?
            // What cannot be read is no witness; the memberships are.
            && let Ok(([applied, duplicates, stale], _)) = layout::read_numbers(&outcome, "a batch key")
        {
            let [applied, duplicates, stale] = [applied, duplicates, stale].map(|number| number as u64);
            return Ok(Applied { applied, duplicates, stale, replayed: true });
        }
        let mut applied = Applied::default();
        let mut undecidable = Vec::new();
        let mut place = 0;
        for likes in batch.likes.chunk_by(|a, b| a.post() == b.post()) {
            let (mut sum, first) = (0, place);
            for (like, key) in likes.iter().zip(&batch.keys[first..]) {
                match self.like(like, key, &mut applied)? {
                    Ok(delta) => sum += delta,
                    Err(fault) => undecidable.push(undecidable_like(place, like, &fault)),
                }
                place += 1;
            }
            if sum != 0
                && let Err(fault) = self.add(likes[0].post(), batch.shard, sum)?
            {
                let document = counter_name(likes[0].post(), batch.shard);
                let of_post = |at| Undecidable { place: at, document: document.clone(), fault: stored_fault(&fault) };
                undecidable.extend((first..place).map(of_post));
            }
        }
        if !undecidable.is_empty() {
            undecidable.sort_by_key(|like| like.place);
            undecidable.dedup_by_key(|like| like.place);
            return Err(JobError::Undecidable(undecidable));
        }
        if applied.applied > 0 {
            self.put_batch_key(batch.key, &applied);
        }
        Ok(applied)
    }

    /// Decides one like, and answers what it adds to its post.
    fn like(&mut self, like: &Like, key: &Slice, applied: &mut Applied) -> Result<Result<i64, Fault>, StorageError> {
        let stored = self.get(Tree::Rows, key)?;
        let (current, added) = match stored.as_deref().map(layout::read_membership).transpose() {
            Ok(stored) => stored.map_or((None, &[][..]), |(membership, added)| (Some(membership), added)),
            Err(fault) => return Ok(Err(fault)),
        };
        match decide(current, like) {
            Decision::Duplicate => applied.duplicates += 1,
            Decision::Stale => applied.stale += 1,
            Decision::Write { delta } => {
                applied.applied += 1;
                let value = layout::write_membership(like.membership(), added);
                self.put(Tree::Rows, key.clone(), value.into());
                return Ok(Ok(i64::from(delta)));
            }
        }
        Ok(Ok(0))
    }

    /// Adds to a counter.
    fn add(&mut self, post: &str, shard: u16, delta: i64) -> Result<Result<(), Fault>, StorageError> {
        let key = layout::counter_key(post, shard);
        let stored = self.get(Tree::Rows, &key)?;
        let (count, added) = match stored.as_deref().map(|value| layout::read_numbers(value, "a counter")).transpose() {
            Ok(stored) => stored.map_or((0, &[][..]), |([count], added)| (count, added)),
            Err(fault) => return Ok(Err(fault)),
        };
        let value = layout::write_numbers(&[count.wrapping_add(delta)], added);
        self.put(Tree::Rows, key.into(), value.into());
        Ok(Ok(()))
    }

    pub(super) fn put_batch_key(&mut self, key: BatchKey, applied: &Applied) {
        let key = layout::batch_key(&self.engine.config.consumer, key.as_bytes());
        let outcome = [applied.applied, applied.duplicates, applied.stale].map(|number| number as i64);
        let expires_s = now_s() + BATCH_KEY_LIFETIME.as_secs();
        self.put(Tree::Rows, layout::expiry_key(expires_s, &key).into(), [ROW_VERSION].into());
        self.put(Tree::Rows, key.into(), layout::write_numbers(&outcome, &[]).into());
    }

    /// Only this thread writes versions, so what it reads here is what it replaces. The version and the repair shard change
    /// in one frame.
    pub(super) fn repair(&mut self, correction: &Correction) -> Result<Repaired, JobError> {
        let key = layout::prefix(kind::REPAIRS, &correction.post);
        let name = || format!("the version of the repair shard of post {:?}", correction.post);
        let stored = self.get(Tree::Rows, &key)?;
        let read = stored.as_deref().map(|value| layout::read_numbers::<1>(value, "a version")).transpose();
        let (repairs, added) =
            read.map_err(StorageError::row(name))?.map_or((None, &[][..]), |([repairs], added)| (Some(repairs), added));
        if repairs.map(|repairs| repairs.to_string()) != correction.version {
            return Ok(Repaired::Conflict);
        }
        let shard = || counter_name(&correction.post, REPAIR_SHARD);
        self.add(&correction.post, REPAIR_SHARD, correction.delta)?.map_err(StorageError::row(shard))?;
        let value = layout::write_numbers(&[repairs.unwrap_or_default() + 1], added);
        self.put(Tree::Rows, key.into(), value.into());
        Ok(Repaired::Done)
    }

    /// Keeps the first settings that are given, and answers those that are kept.
    pub(super) fn agree(&mut self, settings: &Settings) -> Result<Settings, JobError> {
        let key = layout::prefix(kind::SETTINGS, &self.engine.config.consumer);
        if let Some(value) = self.get(Tree::Rows, &key)? {
            let name = || format!("the settings of consumer {:?}", self.engine.config.consumer);
            return Ok(layout::read_settings(&value).map_err(StorageError::row(name))?);
        }
        self.put(Tree::Rows, key.into(), layout::write_settings(settings).into());
        Ok(settings.clone())
    }
}

/// Why a job alone did not work.
pub(super) enum JobError {
    Storage(StorageError),
    Undecidable(Vec<Undecidable>),
    /// It has its sentence already.
    Told(StoreError),
}

impl<E: Into<StorageError>> From<E> for JobError {
    fn from(error: E) -> Self {
        Self::Storage(error.into())
    }
}

fn undecidable_like(place: usize, like: &Like, fault: &Fault) -> Undecidable {
    Undecidable { place, document: member_name(like.post(), like.user()), fault: stored_fault(fault) }
}
