//! What the URL of an embedded store says.

use crate::adapter_url::{AdapterUrl, Known, UrlError};
use crate::store::Options;
use std::path::PathBuf;

/// The most that one option may take, 1 GiB: a table's 32 bits address twice that and more.
const MAX_BYTES: u64 = 1 << 30;

const KNOWN: &[Known] = &[
    Known::new("memory_mib", "1 to 1024"),
    Known::new("cache_mib", "1 to 1024"),
    Known::new("filter_mib", "1 to 1024"),
    // For tests: a generation of some bytes makes a checkpoint after each batch.
    Known::new("memory_bytes", ""),
];

/// What the URL's query may set.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) consumer: String,
    /// `memory_mib`: bytes of memberships in one generation. There are two, their log is as large again, and hash slots
    /// come on top. Twice as much means half as many tables, and twice as long to read the log back after a crash.
    pub(super) generation_bytes: usize,
    /// `cache_mib`: bytes of blocks of tables kept in memory.
    pub(super) cache_bytes: u64,
    /// `filter_mib`: bytes that tell which members are not on disk. 32 MiB serve some 27 million members; with more, more
    /// new members are looked up in vain.
    pub(super) filter_bytes: usize,
}

impl Config {
    const DEFAULT_MEMORY_MIB: usize = 64;
    const DEFAULT_CACHE_MIB: u64 = 64;
    const DEFAULT_FILTER_MIB: usize = 32;

    /// The path and the options in `embedded:PATH?memory_mib=N&cache_mib=N&filter_mib=N`.
    pub(super) fn parse(url: &str, options: &Options) -> Result<(PathBuf, Self), UrlError> {
        let url = AdapterUrl::parse(url)?;
        let path = PathBuf::from(url.path()?);
        let given = url.options(KNOWN)?;
        let mib = |name| given.number(name, 1..=1_024).map(|mib| mib.map(|mib| mib << 20));
        // All are under 2^30 + 1 bytes, so they fit wherever this runs.
        let mut config = Self {
            consumer: options.consumer.clone(),
            generation_bytes: mib("memory_mib")?.map_or(Self::DEFAULT_MEMORY_MIB << 20, |bytes| bytes as usize),
            cache_bytes: mib("cache_mib")?.unwrap_or(Self::DEFAULT_CACHE_MIB << 20),
            filter_bytes: mib("filter_mib")?.map_or(Self::DEFAULT_FILTER_MIB << 20, |bytes| bytes as usize),
        };
        if let Some(bytes) = given.number("memory_bytes", 1..=MAX_BYTES)? {
            config.generation_bytes = bytes as usize;
        }
        Ok((path, config))
    }
}
