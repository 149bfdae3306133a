//! What must agree in the whole fleet is compared before anything is pulled.

use super::{ConfigError, EngineError, Setting};
use crate::common::backoff::Backoff;
use crate::engine::flush::{ANSWERED_WITHIN, Health};
use crate::engine::progress::Progress;
use crate::like::event::OrderPolicy;
use crate::store::{ErrorClass, LAYOUT, Settings, Store, StoreError};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio_util::sync::CancellationToken;

/// What tells one event from another: that they are of one member.
const IDENTITY: &str = "member";

/// The finding's name.
const ASKING: &str = "settings";

/// What this worker has.
pub(super) fn settings(order: OrderPolicy) -> Settings {
    let order = match order {
        OrderPolicy::OccurredAt => "occurred-at",
        OrderPolicy::Version => "version",
        OrderPolicy::None => "none",
    };
    Settings { order: order.to_owned(), identity: IDENTITY.to_owned(), layout: LAYOUT }
}

/// Compares `ours` with what the store was begun with, or begins it. A failure that passes is waited for; answers whether
/// the store has answered before the shutdown.
///
/// # Errors
/// The store was begun with other settings, or cannot answer.
pub(super) async fn agree(
    store: &dyn Store,
    (health, progress): (&Health, &Progress),
    ours: &Settings,
    (backoff, seed): (Backoff, u64),
    shutdown: &CancellationToken,
) -> Result<bool, EngineError> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut failures = 0;
    loop {
        let answer = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(false),
            answer = tokio::time::timeout(ANSWERED_WITHIN, store.agree(ours)) => answer,
        };
        let answer = answer.unwrap_or_else(|_| {
            let message = format!("it was not answered in {ANSWERED_WITHIN:?}");
            Err(StoreError::new(ErrorClass::Unknown, message))
        });
        let error = match answer {
            Ok(kept) => {
                progress.set_finding(ASKING, None);
                return compare(&kept, ours).map(|()| true);
            }
            Err(error) => health.judged(error),
        };
        if error.class == ErrorClass::Rejected {
            let message = format!("the store refuses to keep what its workers agree on; is its address right? {error}");
            return Err(EngineError::Store(StoreError { class: ErrorClass::Fatal, message, source: None }));
        }
        if !matches!(error.class, ErrorClass::DidNotCommit | ErrorClass::Unknown | ErrorClass::Unauthenticated) {
            return Err(EngineError::Store(error));
        }
        progress.set_finding(ASKING, Some(format!("the store does not say what its workers agreed on: {error}")));
        failures += 1;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(false),
            () = tokio::time::sleep(backoff.wait(failures, &mut rng)) => {}
        }
    }
}

fn compare(kept: &Settings, ours: &Settings) -> Result<(), EngineError> {
    let elsewhere = "or give it a store of its own: another prefix, database or path";
    let told = if kept.layout != ours.layout {
        format!(
            "the store was begun with layout {}, and this hotcount writes layout {}; start the version that the other \
             workers have, {elsewhere}",
            kept.layout, ours.layout
        )
    } else if kept.order != ours.order {
        let told = "the store was begun with {}, and this worker has {}, so likes of the two could not be compared; start it \
                    with {}, ";
        let [kept, ours] = [kept, ours].map(|settings| Setting::Order(settings.order.clone()));
        return Err(EngineError::Settings(ConfigError::new(told.to_owned() + elsewhere, [kept.clone(), ours, kept])));
    } else if kept.identity != ours.identity {
        format!(
            "the store was begun with events told apart by {0}, and this worker tells them apart by {1}; start it with {0}, \
             {elsewhere}",
            kept.identity, ours.identity
        )
    } else {
        return Ok(());
    };
    Err(EngineError::Settings(ConfigError::new(told, [])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_both_values_are_named() {
        let ours = settings(OrderPolicy::OccurredAt);
        assert!(compare(&ours, &ours).is_ok());
        let others = [
            (Settings { order: "version".to_owned(), ..ours.clone() }, "version", "occurred-at"),
            (Settings { identity: "event".to_owned(), ..ours.clone() }, "event", "member"),
            (Settings { layout: 2, ..ours.clone() }, "layout 2", "layout 1"),
        ];
        for (kept, theirs, own) in others {
            let told = compare(&kept, &ours).expect_err("they differ").to_string();
            assert!(told.contains(theirs) && told.contains(own), "{told}");
        }
    }
}
