//! What one guarded document would have made of the same load: a transaction an event, in the model of Firestore's
//! contention. Nothing is sent anywhere; the model's clock is paused, so its seconds take no time.

use hotcount::lab::firestore_model::guarded::{Load, run};
use hotcount::lab::firestore_model::{Assumptions, Contention};
use std::num::NonZeroU16;
use std::time::Duration;

/// Transactions at once: what one stream of the Pub/Sub client keeps outstanding.
const WRITERS: u32 = 1_000;

/// Messages of `events_per_s` that one document takes in `lasts`.
pub(super) fn handled(events_per_s: f64, lasts: Duration, seed: u64) -> anyhow::Result<u64> {
    let load = Load { writers: WRITERS, shards: NonZeroU16::MIN, events_per_s: Some(events_per_s), lasts };
    // The demo's own runtime waits meanwhile; nothing else runs on it. The model's ends in here too, for it may not be
    // dropped where tasks await.
    let outcome = tokio::task::block_in_place(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        anyhow::Ok(runtime.block_on(async { run(&Contention::new(Assumptions::default(), seed), load, seed).await }))
    })?;
    Ok(outcome.counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn one_document_takes_a_slow_post_whole_and_next_to_nothing_of_a_viral_one() {
        let lasts = Duration::from_secs(60);
        assert!((295..=300).contains(&handled(5.0, lasts, 1).expect("it runs")));
        let viral = handled(16_000.0, lasts, 1).expect("it runs");
        assert!((500..2_000).contains(&viral), "{viral} of 960,000");
    }
}
