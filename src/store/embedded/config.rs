//! What the URL of an embedded store says.

use crate::common::adapter_url::{AdapterUrl, Known, UrlError};
use crate::store::{Access, Options};
use std::path::PathBuf;

/// The most that one option may take, 1 GiB.
const MAX_BYTES: u64 = 1 << 30;

const KNOWN: &[Known] = &[
    Known::new("memory_mib", "1 to 1024"),
    Known::new("cache_mib", "1 to 1024"),
    // For tests: a generation of some bytes goes to disk after each batch.
    Known::new("memory_bytes", ""),
];

/// What the URL's query may set.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) consumer: String,
    pub(super) access: Access,
    /// `memory_mib`: bytes of rows in one generation. There are two, which may grow to twice that while the disk is slow,
    /// and their log is as large. Twice as much means half as many tables, and twice as long to read the log back after a
    /// crash.
    pub(super) generation_bytes: usize,
    /// `cache_mib`: bytes of blocks of tables kept in memory.
    pub(super) cache_bytes: u64,
}

impl Config {
    const DEFAULT_MEMORY_MIB: usize = 128;
    const DEFAULT_CACHE_MIB: u64 = 64;

    /// What holds where the URL says nothing else.
    pub(super) fn new(options: &Options) -> Self {
        Self {
            consumer: options.consumer.clone(),
            access: options.access,
            generation_bytes: Self::DEFAULT_MEMORY_MIB << 20,
            cache_bytes: Self::DEFAULT_CACHE_MIB << 20,
        }
    }

    /// The path and the options in `embedded:PATH?memory_mib=N&cache_mib=N`.
    pub(super) fn parse(url: &str, options: &Options) -> Result<(PathBuf, Self), UrlError> {
        let url = AdapterUrl::parse(url)?;
        let path = PathBuf::from(url.path()?);
        let given = url.options(KNOWN)?;
        let mib = |name| given.number(name, 1..=1_024).map(|mib| mib.map(|mib| mib << 20));
        // All are under 2^30 + 1 bytes, so they fit wherever this runs.
        let mut config = Self::new(options);
        if let Some(bytes) = mib("memory_mib")?.or(given.number("memory_bytes", 1..=MAX_BYTES)?) {
            config.generation_bytes = bytes as usize;
        }
        if let Some(bytes) = mib("cache_mib")? {
            config.cache_bytes = bytes;
        }
        Ok((path, config))
    }
}
