//! Planted bugs. A simulation that finds nothing proves something only if it would have found these.

use crate::plan::{Plan, StoreKind};

/// A part that is wrong in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mutant {
    /// The store answers a commit before it has taken effect.
    AnswersTooEarly,
    /// The client sends the increments again after an unknown outcome.
    ResendsIncrements,
    /// The batch key is ignored after a lost answer, and memberships are written blindly.
    BlindWrites,
    /// A membership is written whatever its version.
    NoVersions,
    /// A commit writes what it can and leaves out the rest.
    HalfACommit,
    /// A removal deletes the membership instead of keeping it.
    ForgetsRemovals,
    /// Poison is acknowledged and not kept.
    QuarantineOfAir,
    /// Shards and members are read at two times.
    ReadsAtTwoTimes,
    /// A dropped token counts as an acknowledgement.
    DroppedMeansDone,
}

impl Mutant {
    /// Each, with the name of its check.
    pub(crate) const ALL: [(Self, &str); 9] = [
        (Self::AnswersTooEarly, "a_store_that_answers_before_it_is_durable_is_caught"),
        (Self::ResendsIncrements, "increments_sent_again_after_an_unknown_outcome_are_caught"),
        (Self::BlindWrites, "a_batch_key_ignored_after_a_lost_answer_with_blind_writes_is_caught"),
        (Self::NoVersions, "a_membership_written_whatever_its_version_is_caught"),
        (Self::HalfACommit, "a_commit_that_is_not_atomic_is_caught"),
        (Self::ForgetsRemovals, "a_removal_that_leaves_no_tombstone_is_caught"),
        (Self::QuarantineOfAir, "poison_acknowledged_and_not_kept_is_caught"),
        (Self::ReadsAtTwoTimes, "shards_and_members_read_at_two_times_are_caught"),
        (Self::DroppedMeansDone, "a_dropped_token_that_counts_as_delivered_is_caught"),
    ];

    /// A plan in which the double has a place.
    pub(crate) fn fit(self, mut plan: Plan) -> Plan {
        plan.store = StoreKind::Firestore;
        plan
    }
}
