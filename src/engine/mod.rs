//! The engine: from a delivery to a durable count and back to its acknowledgement. Names the ports, never an adapter.
//!
//! | module | is |
//! |---|---|
//! | [`aggregate`] | the bounded buffer that folds likes per member and seals batches; no async, no clock |
//! | [`receipt`] | what travels with a like until its delivery is settled |
//! | [`shard`] | which counter shard a lane writes |
//! | [`flush`] | a batch on its way to being durable |
//! | [`quarantine`] | poison on its way to being kept |
//! | [`progress`] | the numbers and findings of a running worker |
//! | [`watchdog`] | sees what stands still; pure |
//! | [`pipeline`] | tasks and the order of shutdown; the only place that spawns |
//! | [`reprocess`] | quarantined deliveries, once more through the pipeline |

pub mod aggregate;
pub mod flush;
pub mod pipeline;
pub mod progress;
pub mod quarantine;
pub mod receipt;
pub mod reprocess;
pub mod shard;
pub mod watchdog;
