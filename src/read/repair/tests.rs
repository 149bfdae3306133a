//! Repairs that race, that are answered late, and whose answers are lost.

use super::*;
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use crate::store::memory::Memory;
use crate::store::retry_limit::MAX_FAILURES;
use crate::store::{Attempt, Counts, Depth, Listing, PageSize, QuarantinePage, Store};
use async_trait::async_trait;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::VecDeque;
use std::sync::Mutex;

/// What happens to one repair.
enum Fault {
    /// It fails, and was not written.
    Before(ErrorClass),
    /// It is written, and fails.
    After(ErrorClass),
    /// It fails, and is written after the next one.
    Late,
    /// Another operator repairs first.
    SomebodyElseFirst,
    /// Another operator repairs first, and then it fails.
    SomebodyElseThen(ErrorClass),
}

/// A store whose repairs go as told, one after the other; then they go as they should.
struct Faulty {
    inner: Memory,
    faults: Mutex<VecDeque<Fault>>,
    late: Mutex<Option<Audit>>,
}

const POST: &str = "post";

impl Faulty {
    /// Five members like the post, and the shards say `count`.
    async fn new(count: i64, faults: impl IntoIterator<Item = Fault>) -> Self {
        let inner = Memory::default();
        let likes = (0..5).map(|n| Like::new(POST, &n.to_string(), "e", true, 1)).collect();
        inner.apply(&Batch::new(BatchKey::from_random(1), likes), Attempt::first(0)).await.expect("applied");
        let tally = Tally { count: 5, shards: 1, members: Some(count.unsigned_abs()) };
        // A repair that believes a wrong reading makes a drift.
        inner.repair(POST, &Audit { tally, ..Audit::default() }).await.expect("repaired");
        Self { inner, faults: Mutex::new(faults.into_iter().collect()), late: Mutex::default() }
    }

    async fn correct(&self) -> Result<Outcome, StoreError> {
        correct(self, POST, &mut SmallRng::seed_from_u64(1)).await
    }

    async fn count_and_drift(&self) -> (i64, Option<i64>) {
        let tally = self.inner.tally(POST, Depth::ShardsAndMembers).await.expect("a tally");
        (tally.count, tally.drift())
    }
}

#[async_trait]
impl Counts for Faulty {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.inner.tally(post, depth).await
    }
    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.posts(listing, after, limit).await
    }
    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.inner.quarantined(after, size).await
    }
}

#[async_trait]
impl Repair for Faulty {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.inner.audit(post).await
    }

    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        let fault = self.faults.lock().unwrap().pop_front();
        let failed = |class| Err(StoreError::new(class, "a fault of the test"));
        let answer = match fault {
            None => self.inner.repair(post, seen).await,
            Some(Fault::Before(class)) => failed(class),
            Some(Fault::After(class)) => {
                self.inner.repair(post, seen).await?;
                failed(class)
            }
            Some(Fault::Late) => {
                *self.late.lock().unwrap() = Some(seen.clone());
                return failed(ErrorClass::Unknown);
            }
            Some(Fault::SomebodyElseFirst) => {
                self.inner.repair(post, seen).await?;
                self.inner.repair(post, seen).await
            }
            Some(Fault::SomebodyElseThen(class)) => {
                let half = Tally { count: 5, shards: 2, members: Some(6) };
                self.inner.repair(post, &Audit { tally: half, ..seen.clone() }).await?;
                failed(class)
            }
        };
        let late = self.late.lock().unwrap().take();
        if let Some(late) = late {
            assert_eq!(
                self.inner.repair(post, &late).await?,
                Repaired::Conflict,
                "the first try came after the second"
            );
        }
        answer
    }
}

#[tokio::test(start_paused = true)]
async fn a_drift_is_corrected_and_a_healthy_post_is_left_alone() {
    for (count, corrected) in [(2, 3), (5, 0), (9, -4)] {
        let store = Faulty::new(count, []).await;
        let outcome = store.correct().await.expect("corrected");
        assert_eq!((outcome.found.count, outcome.corrected, outcome.refused), (count, corrected, 0));
        assert_eq!((outcome.now.count, outcome.now.drift()), (5, Some(0)));
        assert_eq!(store.count_and_drift().await, (5, Some(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_repair_whose_answer_was_lost_is_not_doubled() {
    for class in [ErrorClass::Unknown, ErrorClass::DidNotCommit, ErrorClass::Unauthenticated] {
        let faults = [Fault::Before(class.clone()), Fault::After(class.clone())];
        let store = Faulty::new(2, faults).await;
        let outcome = store.correct().await.expect("corrected");
        assert_eq!((outcome.corrected, outcome.refused), (3, 0), "{class:?}");
        assert_eq!(store.count_and_drift().await, (5, Some(0)), "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_try_that_arrives_after_the_second_is_refused() {
    let store = Faulty::new(2, [Fault::Late]).await;
    let outcome = store.correct().await.expect("corrected");
    assert_eq!((outcome.corrected, outcome.refused), (3, 0));
    assert_eq!(store.count_and_drift().await, (5, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_reads_again_and_corrects_no_more_than_is_lacking() {
    let store = Faulty::new(2, [Fault::SomebodyElseFirst]).await;
    let outcome = store.correct().await.expect("corrected");
    assert_eq!((outcome.corrected, outcome.refused, outcome.now.drift()), (0, 1, Some(0)));
    assert_eq!(store.count_and_drift().await, (5, Some(0)));

    // The other one repairs a part of it, and the own attempt fails without a word.
    let store = Faulty::new(2, [Fault::SomebodyElseThen(ErrorClass::Unknown)]).await;
    let outcome = store.correct().await.expect("corrected");
    assert_eq!((outcome.corrected, outcome.refused, outcome.now.drift()), (2, 1, Some(0)));
    assert_eq!(store.count_and_drift().await, (5, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_given_up_with_its_own_error() {
    let faults = (0..MAX_FAILURES).map(|_| Fault::Before(ErrorClass::Unknown));
    let store = Faulty::new(2, faults).await;
    assert_eq!(store.correct().await.expect_err("given up").class, ErrorClass::Unknown);
    let store = Faulty::new(2, [Fault::Before(ErrorClass::Fatal)]).await;
    assert_eq!(store.correct().await.expect_err("given up at once").class, ErrorClass::Fatal);
    assert_eq!(store.count_and_drift().await, (2, Some(-3)), "nothing was written");
}
