//! What the URL of an embedded store says.

use crate::store::Options;
use std::path::PathBuf;

/// The most that one option may take, 1 GiB: a table's 32 bits address twice that and more.
const MAX_BYTES: usize = 1 << 30;

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
    pub(super) fn parse(url: &str, options: &Options) -> Result<(PathBuf, Self), String> {
        let rest = url.split_once(':').map_or("", |(_, rest)| rest);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() {
            return Err("it has no path: write embedded:PATH, such as embedded:./hotcount-data".to_owned());
        }
        let mut config = Self {
            consumer: options.consumer.clone(),
            generation_bytes: Self::DEFAULT_MEMORY_MIB << 20,
            cache_bytes: Self::DEFAULT_CACHE_MIB << 20,
            filter_bytes: Self::DEFAULT_FILTER_MIB << 20,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let mib = |least: u64| match value.parse::<u64>() {
                Ok(mib) if (least..=1_024).contains(&mib) => Ok(mib << 20),
                _ => Err(format!("{name} is a number of MiB from {least} to 1024")),
            };
            match name {
                // Under 2^30 bytes, so it fits wherever this runs, and a table's 32 bits address it.
                "memory_mib" => config.generation_bytes = mib(1)? as usize,
                "cache_mib" => config.cache_bytes = mib(1)?,
                "filter_mib" => config.filter_bytes = mib(1)? as usize,
                // For tests: a generation of some bytes makes a checkpoint after each batch.
                "memory_bytes" => match value.parse() {
                    Ok(bytes @ 1..=MAX_BYTES) => config.generation_bytes = bytes,
                    _ => return Err(format!("memory_bytes is a number from 1 to {MAX_BYTES}")),
                },
                other => {
                    return Err(format!("it has no option '{other}': there are memory_mib, cache_mib and filter_mib"));
                }
            }
        }
        Ok((PathBuf::from(path), config))
    }
}
