//! Every setting of the engine with its default and its reason, and which of them cannot work together.

use super::config_error::{ConfigError, Setting};
use crate::common::budget::Budget;
use crate::engine::aggregate;
use crate::engine::flush::{self, BatchKeys, LaneKeys};
use crate::like::event::OrderPolicy;
use crate::source::in_flight::InFlight;
use crate::store::Limits;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the order of likes comes from.
    pub order: OrderPolicy,
    /// Deliveries held at most, from pull to settling. 100,000: two seconds of 50,000 a second.
    pub max_held_deliveries: usize,
    /// Bytes held at most, payloads, tokens, bookkeeping and recent likes included. 256 MiB.
    pub max_held_bytes: usize,
    /// Documents in one commit, batch key and increments included; `None` takes what suits the store.
    pub batch_writes: Option<usize>,
    /// How long a like may wait for company.
    pub linger: Duration,
    /// Likes whose commit was answered that are remembered to save work; `None` takes what suits the store. They take an
    /// eighth of `max_held_bytes` at most, however long their ids are.
    pub recent_likes: Option<usize>,
    /// Commits at once; `None` takes what suits the store.
    pub lanes: Option<usize>,
    /// Retries and shards.
    pub flush: flush::Config,
    /// How long a shutdown may take, from the request until the worker ends: flush, acknowledgements, and closing source and
    /// store, for which a fifth of it is kept. 25 s: orchestrators kill after 30. Where they kill after 10, 8 s.
    pub drain_timeout: Duration,
    /// Grows into shard choice and jitter. Random, so that workers that start together part; batch keys do not grow from it.
    pub seed: u64,
    /// Where batch keys come from. Random, unless a simulation wants to replay.
    pub batch_keys: BatchKeys,
}

impl Default for Config {
    fn default() -> Self {
        let aggregate = aggregate::Config::default();
        Self {
            order: OrderPolicy::default(),
            max_held_deliveries: 100_000,
            max_held_bytes: 256 << 20,
            batch_writes: None,
            linger: aggregate.linger,
            recent_likes: None,
            lanes: None,
            flush: flush::Config::default(),
            drain_timeout: Duration::from_secs(25),
            seed: flush::any_seed(),
            batch_keys: BatchKeys::default(),
        }
    }
}

/// A linger that needs no reason.
const LONGEST_LINGER: Duration = Duration::from_secs(1);

/// The part of the bytes held that recent likes may take.
const RECENT_PART: usize = 8;

impl Config {
    /// Refuses settings that cannot work together, or with the store's limits, or with the lease and the number of streams
    /// of the source.
    ///
    /// # Errors
    /// The first conflict found.
    pub fn check(&self, limits: &Limits, max_lease: Option<Duration>, streams: usize) -> Result<(), ConfigError> {
        let writes = self.batch_writes.unwrap_or(limits.max_writes);
        self.check_sizes(writes, limits, streams)?;
        let linger = Setting::Linger(self.linger);
        let retry_deadline = self.flush.retry_deadline(max_lease);
        let retry = Setting::RetryDeadline(retry_deadline);
        let keeps = |lease: Duration| {
            format!("{{}} is not shorter than the {} s for which {{}} keeps a lease", lease.as_secs())
        };
        if let Some(lease) = max_lease {
            if self.linger >= lease {
                return Err(ConfigError::new(keeps(lease), [linger, Setting::Source]));
            }
            if retry_deadline >= lease {
                return Err(ConfigError::new(keeps(lease), [retry, Setting::Source]));
            }
        }
        if self.linger > self.drain_timeout.max(LONGEST_LINGER) {
            let told =
                "{} is longer than {}: a like would wait for company longer than a shutdown may take; a second is long";
            return Err(ConfigError::new(told, [linger, Setting::DrainTimeout(self.drain_timeout)]));
        }
        if self.linger >= retry_deadline {
            let told = "{} is not shorter than {}, so a like would be given up before it was tried";
            return Err(ConfigError::new(told, [linger, retry]));
        }
        if let Some(lifetime) = limits.batch_key_lifetime
            && lifetime <= retry_deadline
        {
            let told = format!(
                "the batch-key lifetime of {} s (batch_key_lifetime_s of {{}}) is not longer than {{}}, so a retry could miss \
                 its own key",
                lifetime.as_secs()
            );
            return Err(ConfigError::new(told, [Setting::Store, retry]));
        }
        Ok(())
    }

    fn check_sizes(&self, writes: usize, limits: &Limits, streams: usize) -> Result<(), ConfigError> {
        let (batch, held) = (Setting::BatchWrites(writes), Setting::MaxHeldDeliveries(self.max_held_deliveries));
        if writes < 3 {
            let told = "{} leaves no room for a like: a commit also holds a shard and its key; use 3 or more";
            return Err(ConfigError::new(told, [batch]));
        }
        if writes > limits.max_writes {
            let told = format!("{{}} is more than the {} that {{}} takes in one commit", limits.max_writes);
            return Err(ConfigError::new(told, [batch, Setting::Store]));
        }
        let full = self.aggregate(limits).full_batch_likes();
        if self.max_held_deliveries < full {
            let told =
                format!("{{}} is less than the {full} likes of a full batch ({{}}), so no batch could ever fill");
            return Err(ConfigError::new(told, [held, batch]));
        }
        if self.max_held_deliveries < streams {
            let told =
                format!("{{}} is less than the {streams} streams of {{}}, so some of them could never be pulled");
            return Err(ConfigError::new(told, [held, Setting::Source]));
        }
        if self.lanes == Some(0) {
            return Err(ConfigError::new("{} would never commit anything; use 1 or more", [Setting::Lanes(0)]));
        }
        Ok(())
    }

    /// The budget of one worker with these settings, with nothing held yet.
    #[must_use]
    pub fn held(&self) -> Arc<InFlight> {
        InFlight::new(Budget::new(self.max_held_deliveries, self.max_held_bytes))
    }

    pub(super) fn aggregate(&self, limits: &Limits) -> aggregate::Config {
        aggregate::Config {
            max_writes: self.batch_writes.unwrap_or(limits.max_writes),
            max_bytes: limits.max_bytes,
            linger: self.linger,
            recent_likes: self.recent_likes.unwrap_or(limits.recent_likes),
            recent_bytes: self.max_held_bytes / RECENT_PART,
            seed: self.seed_of("hash", 0),
        }
    }

    /// What may wait, of deliveries that cannot be settled now and are in nobody's way: poison while the quarantine takes
    /// none, and likes for a newer worker. A tenth of the window each, so that most of it stays for the healthy.
    pub(super) fn a_share(&self) -> usize {
        (self.max_held_deliveries / 10).max(1)
    }

    /// Room for all poison that may be held, so that nobody who finds some ever waits. It takes no memory before it is used.
    pub(super) fn max_poison_on_its_way(&self) -> usize {
        self.max_held_deliveries.saturating_mul(2).clamp(1, tokio::sync::Semaphore::MAX_PERMITS)
    }

    /// A seed of its own for every part that chooses at random.
    pub(super) fn seed_of(&self, part: &str, number: usize) -> u64 {
        grown(self.seed, part, number)
    }

    /// The batch keys of probes.
    pub(super) fn keys_of_probes(&self) -> LaneKeys {
        self.keys_of(usize::MAX)
    }

    /// The batch keys of a lane: no two lanes share one.
    pub(super) fn keys_of(&self, lane: usize) -> LaneKeys {
        match self.batch_keys {
            BatchKeys::Random => LaneKeys::Random,
            BatchKeys::Seeded(seed) => LaneKeys::seeded(grown(seed, "keys", lane)),
        }
    }
}

fn grown(seed: u64, part: &str, number: usize) -> u64 {
    let mut hasher = foldhash::quality::FixedState::with_seed(seed).build_hasher();
    part.hash(&mut hasher);
    number.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_writes: 500,
        max_bytes: 3 << 20,
        lanes: 2,
        recent_likes: 100_000,
        batch_key_lifetime: Some(Duration::from_secs(7 * 86_400)),
    };

    fn sentence(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.check(&LIMITS, Some(Duration::from_secs(3_600)), 600).expect_err("a conflict").to_string()
    }

    #[test]
    fn the_defaults_work_together() {
        assert_eq!(Config::default().check(&LIMITS, Some(Duration::from_secs(3_600)), 32), Ok(()));
    }

    #[test]
    fn a_conflict_names_both_settings() {
        let cases = [
            (sentence(|c| c.max_held_deliveries = 100), ["max_held_deliveries 100", "batch_writes 500"]),
            (sentence(|c| c.max_held_deliveries = 550), ["max_held_deliveries 550", "600 streams of the source"]),
            (sentence(|c| c.linger = Duration::from_secs(3_600)), ["linger 3600s", "the source keeps a lease"]),
            (
                sentence(|c| c.flush.retry_deadline = Some(Duration::from_secs(3_600))),
                ["retry_deadline 3600s", "the source keeps a lease"],
            ),
            (sentence(|c| c.batch_writes = Some(600)), ["batch_writes 600", "the store"]),
            (sentence(|c| c.linger = Duration::from_secs(60)), ["linger 60s", "drain_timeout 25s"]),
            (
                sentence(|c| {
                    c.linger = Duration::from_secs(1);
                    c.flush.retry_deadline = Some(Duration::from_secs(1));
                }),
                ["linger 1s", "retry_deadline 1s"],
            ),
        ];
        for (sentence, names) in cases {
            for name in names {
                assert!(sentence.contains(name), "{sentence}");
            }
        }
        let short = Limits { batch_key_lifetime: Some(Duration::from_secs(60)), ..LIMITS };
        let sentence = Config::default().check(&short, None, 1).expect_err("a conflict").to_string();
        assert!(sentence.contains("batch_key_lifetime_s") && sentence.contains("retry_deadline 3300s"), "{sentence}");
    }

    #[test]
    fn the_retry_deadline_stays_below_the_lease() {
        let flush = flush::Config::default();
        assert_eq!(flush.retry_deadline(Some(Duration::from_secs(10))), Duration::from_secs(9));
        assert_eq!(flush.retry_deadline(None), Duration::from_secs(3_300));
    }
}
