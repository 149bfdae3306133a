//! The store port's one conformance suite, run for every adapter. An adapter is one line at the foot of this file.
//!
//! The cases are in `conformance/`: `writing.rs` for batches, `reading.rs` for counts, listings and the
//! quarantine, `repairing.rs` for drift, `agreeing.rs` for settings and probes, `model.rs` for any likes in any order. Each case gets a store of its own from a factory, and posts of its
//! own from a namespace, so that adapters may share one server.

mod agreeing;
mod fixture;
#[cfg(feature = "http")]
mod fronted;
mod model;
mod reading;
mod repairing;
mod writing;

use fixture::Fixture;
use hotcount::lab::firestore_model::{Assumptions, Contended, Contention, ShardChoice};
use hotcount::store::memory::Memory;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Makes a fresh fixture, or `None` with a printed reason where the adapter cannot run here.
type Factory = fn() -> Pin<Box<dyn Future<Output = Option<Fixture>>>>;

/// One test a case, for one adapter.
macro_rules! cases {
    ($factory:ident: $($module:ident { $($case:ident),* $(,)? })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let factory: super::Factory = || Box::pin(super::$factory());
                let Some(fixture) = factory().await else { return };
                super::$module::$case(&fixture).await;
                fixture.store.close().await.expect("the store closes");
            }
        )*)*
    };
}

/// The whole suite for one adapter: a module of its name, whose cases use the factory of the same name.
macro_rules! conformance {
    ($adapter:ident) => {
        mod $adapter {
            cases! { $adapter:
                writing {
                    a_batch_applied_twice_under_one_key_counts_once_and_answers_replayed,
                    a_batch_resumed_after_a_lost_answer_counts_once,
                    a_batch_that_never_committed_is_applied_when_it_is_resumed,
                    a_like_in_two_batches_counts_once,
                    a_batch_that_changes_nothing_answers_and_changes_nothing,
                    a_removal_before_its_addition_wins_when_it_is_newer,
                    an_addition_newer_than_the_removal_before_it_wins,
                    a_tie_is_decided_by_the_bytes_of_the_event_id,
                    a_removal_wins_a_tie_of_the_same_event,
                    a_tombstone_keeps_an_older_addition_out,
                    a_newer_like_of_the_same_state_is_kept_so_that_an_older_removal_loses,
                    users_that_differ_by_case_or_accent_are_different,
                    ids_may_be_as_long_as_the_contract_allows,
                    ids_may_hold_odd_characters,
                    posts_that_begin_alike_never_mix,
                    one_batch_may_hold_many_posts,
                    a_batch_counts_applied_duplicates_and_stale_likes,
                    orders_reach_both_ends_of_64_bits,
                    concurrent_batches_on_the_same_members_leave_shards_equal_to_members,
                }
                reading {
                    an_unknown_post_counts_zero,
                    two_shards_sum,
                    one_shard_may_be_negative,
                    a_membership_reads_back_as_the_like_that_wrote_it,
                    posts_page_in_both_listings,
                    no_tally_drifts_while_batches_are_applied,
                    quarantine_is_replaced_by_id,
                    quarantine_pages,
                    quarantine_pages_end_at_their_bytes,
                    quarantine_keeps_every_field,
                    quarantine_keeps_two_mebibytes,
                    quarantine_keeps_large_poison_with_the_reason_of_the_decoder,
                    a_discarded_entry_is_gone_whole_and_the_others_stay,
                    discarding_what_is_not_there_is_no_error,
                }
                repairing {
                    an_unknown_post_has_nothing_to_repair,
                    a_healthy_post_is_left_as_it_is,
                    drift_either_way_is_corrected_in_one_shard_of_its_own,
                    of_two_repairs_from_one_reading_the_second_is_refused,
                    a_late_repair_is_refused_although_the_count_looks_as_it_did,
                    likes_counted_between_reading_and_repairing_stay_counted,
                    two_operators_and_workers_at_once_leave_no_drift,
                    the_longest_post_is_repaired_too,
                }
                agreeing {
                    the_first_settings_are_kept_and_answered_to_everybody,
                    workers_that_start_at_once_see_the_same_settings,
                    a_probe_changes_no_count_and_may_be_made_again,
                }
                model {
                    any_likes_in_any_batches_with_any_retries_leave_what_the_model_says,
                }
            }
        }
    };
}

async fn memory() -> Option<Fixture> {
    Some(Fixture::new("memory:").await)
}

/// Memory behind the model's locks, quick enough that a suite ends.
async fn contended() -> Option<Fixture> {
    let (commit, document) = (Duration::from_micros(100), Duration::from_nanos(100));
    let contention = Contention::new(Assumptions { commit, document, read: commit, ..Assumptions::default() }, 1);
    let store = Contended::new(Arc::new(Memory::default()), contention, ShardChoice::OfTheLane, 1);
    Some(Fixture::new("memory:").await.with(Arc::new(store)))
}

#[cfg(feature = "embedded")]
async fn embedded() -> Option<Fixture> {
    Some(Fixture::in_directory(|path| format!("embedded:{path}")).await)
}

/// The same store with next to no memory: every batch begins a generation and sends the one before to the tables.
#[cfg(feature = "embedded")]
async fn embedded_in_tables() -> Option<Fixture> {
    Some(Fixture::in_directory(|path| format!("embedded:{path}?memory_bytes=1")).await)
}

/// Reads go over HTTP to a worker's face; writes go to the memory behind it.
#[cfg(feature = "http")]
async fn remote() -> Option<Fixture> {
    let fixture = Fixture::new("memory:").await;
    let store = Arc::new(fronted::Fronted::new(fixture.store.clone()).await);
    Some(fixture.seen_through(store))
}

/// Google's emulator, with a database of each case's own.
#[cfg(feature = "firestore")]
async fn firestore() -> Option<Fixture> {
    let host = crate::support::emulators::firestore()?;
    Some(Fixture::new(&format!("firestore://{}?emulator={host}", crate::support::emulators::unique("suite"))).await)
}

/// The same, asked as the service is: by the one index that the service has.
#[cfg(feature = "firestore")]
async fn firestore_by_cell() -> Option<Fixture> {
    let host = crate::support::emulators::firestore()?;
    let database = crate::support::emulators::unique("suite");
    Some(Fixture::new(&format!("firestore://{database}?emulator={host}&members_by=cell")).await)
}

conformance!(memory);
conformance!(contended);
#[cfg(feature = "firestore")]
conformance!(firestore);
#[cfg(feature = "firestore")]
conformance!(firestore_by_cell);
#[cfg(feature = "http")]
conformance!(remote);
#[cfg(feature = "embedded")]
conformance!(embedded);
#[cfg(feature = "embedded")]
conformance!(embedded_in_tables);
