//! What must hold for any bytes at all, one function for each parser of outside input.
//!
//! A function here panics when something does not hold. The fuzz targets call it under libFuzzer, and `tests/parsers/main.rs`
//! includes this file and calls it with the seeds and with mutations of them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a check ends at its first failure")]
#![allow(unreachable_pub, reason = "reached by the fuzz targets alone")]

mod body;
mod decoder;
mod dice;
mod disk;
mod documents;
mod face;
mod lines;
mod load;
mod rpc;
mod unpack;
mod urls;

pub use body::body;
pub use decoder::decoder;
pub use disk::disk;
pub use documents::documents;
pub use face::face;
pub use lines::lines;
pub use load::load;
pub use unpack::unpack;
pub use urls::urls;

// Private parsers are included by path; this is where they find what they name of their own crate.
#[allow(unused_imports, reason = "where `tests/parsers/main.rs` includes this file, it stands there")]
use hotcount::{common, like, store};
use std::cell::LazyCell;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: LazyCell<Runtime> =
        LazyCell::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}
