//! What must hold for any bytes at all, one function for each parser of outside input.
//!
//! A function here panics when something does not hold. The fuzz targets call it under libFuzzer, and `tests/parsers/main.rs`
//! includes this file and calls it with the seeds and with mutations of them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a check ends at its first failure")]
#![allow(unreachable_pub, reason = "reached by the fuzz targets alone")]

mod decoder;

pub use decoder::decoder;
