//! Correcting the drift of a post, in its repair shard, while workers keep running.
//!
//! A repair is relative to one reading: repair shard := what it held + (members − shards), all read at one time, on
//! condition that it has not changed since. A refusal and a lost answer are treated alike: read again, and repair what
//! is still lacking. One correction is never sent twice.

use crate::store::retry_limit::RetryLimit;
use crate::store::{Audit, ErrorClass, Repair, Repaired, StoreError, Tally};
use rand::Rng;

/// Rounds after which a post is left with what it lacks. Two operators who race need two or three.
const MAX_ROUNDS: u32 = 10;

/// What became of one post.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What was read first.
    pub found: Tally,
    /// What was added to the repair shard.
    pub corrected: i64,
    /// How often somebody else had repaired first, so that the post was read again.
    pub refused: u32,
    /// What was read last.
    pub now: Tally,
}

/// Corrects `post` until its shards and its members are equal.
///
/// # Errors
/// When the store cannot be read or written. What was corrected before stays; calling this again goes on from there.
pub async fn correct(store: &dyn Repair, post: &str, rng: &mut impl Rng) -> Result<Outcome, StoreError> {
    let mut retry_limit = RetryLimit::new(rng);
    let mut seen = audit(store, post, &mut retry_limit).await?;
    let mut outcome = Outcome { found: seen.tally, now: seen.tally, ..Outcome::default() };
    for _ in 0..MAX_ROUNDS {
        let lacking = seen.tally.drift().unwrap_or_default().saturating_neg();
        if lacking == 0 {
            break;
        }
        let answer = match store.repair(post, &seen).await {
            Ok(repaired) => {
                retry_limit.worked();
                Some(repaired)
            }
            Err(error) => {
                retry_limit.wait(error).await?;
                None
            }
        };
        let again = audit(store, post, &mut retry_limit).await?;
        let unchanged = again.version == seen.version;
        match answer {
            Some(Repaired::Done) => outcome.corrected += lacking,
            Some(Repaired::Conflict) if unchanged => {
                let problem = format!("the store refuses to repair {post} although nobody else has done so");
                return Err(StoreError::new(ErrorClass::Fatal, problem));
            }
            // Not written so far. If it still arrives, it and the next attempt exclude each other.
            None if unchanged => {}
            // Its answer was lost, and what it wrote is there.
            None if again.repaired == seen.repaired.saturating_add(lacking) => outcome.corrected += lacking,
            Some(Repaired::Conflict) | None => outcome.refused += 1,
        }
        outcome.now = again.tally;
        seen = again;
    }
    Ok(outcome)
}

async fn audit(
    store: &dyn Repair,
    post: &str,
    retry_limit: &mut RetryLimit<'_, impl Rng>,
) -> Result<Audit, StoreError> {
    loop {
        match store.audit(post).await {
            Ok(seen) => return Ok(seen),
            Err(error) => retry_limit.wait(error).await?,
        }
    }
}

#[cfg(test)]
mod tests;
