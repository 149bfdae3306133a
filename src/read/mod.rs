//! Reading counts from a store, and correcting a drift while workers keep running.

pub mod reader;
pub mod repair;
