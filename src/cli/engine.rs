//! The engine's settings as flags, shared by `run` and `replay`.

use clap::{Args, ValueEnum};
use hotcount::engine::pipeline::{Config, EngineError, Report, Setting};
use hotcount::engine::progress::Progress;
use hotcount::like::event::OrderPolicy;
use std::num::NonZeroU16;
use std::time::Duration;

/// Where the order of likes comes from.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    /// `occurredAt`, in nanoseconds
    OccurredAt,
    /// The integer `version`
    Version,
    /// No order: like.removed is poison
    None,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Where the order of likes comes from: the newest wins
    #[arg(long, env = "HOTCOUNT_ORDER", value_enum, default_value = "occurred-at")]
    order: Order,
    /// Counter shards that lanes choose from; readers need no setting, so it may change at any time
    #[arg(long, env = "HOTCOUNT_SHARDS", default_value_t = NonZeroU16::MIN.saturating_add(63), value_name = "N")]
    shards: NonZeroU16,
    /// Commits at once [default: what suits the store]
    #[arg(long, env = "HOTCOUNT_LANES", value_name = "N")]
    lanes: Option<usize>,
    /// Documents in one commit, increments and batch key included [default: what suits the store]
    #[arg(long, env = "HOTCOUNT_BATCH_WRITES", value_name = "N")]
    batch_writes: Option<usize>,
    /// How long a like may wait for company, in milliseconds
    #[arg(long, env = "HOTCOUNT_LINGER_MS", default_value_t = 50, value_name = "MS")]
    linger_ms: u64,
    /// Deliveries held at most, from pull to settling; when full, the worker stops pulling
    #[arg(long, env = "HOTCOUNT_MAX_HELD", default_value_t = 100_000, value_name = "N")]
    max_held: usize,
    /// Mebibytes held at most, payloads, tokens and bookkeeping included
    #[arg(long, env = "HOTCOUNT_MAX_HELD_MIB", default_value_t = 256, value_name = "MIB")]
    max_held_mib: usize,
    /// Likes whose commit was answered that are remembered, to settle their duplicates without the store
    /// [default: what suits the store]
    #[arg(long, env = "HOTCOUNT_RECENT_LIKES", value_name = "N")]
    recent_likes: Option<usize>,
    /// How long a batch is tried again before it is left to redelivery, in seconds [default: nine tenths of the
    /// source's lease, at most 3300]
    #[arg(long, env = "HOTCOUNT_RETRY_DEADLINE_S", value_name = "S")]
    retry_deadline_s: Option<u64>,
    /// How long a shutdown may take altogether, in seconds: flushing, settling, closing the source and the store. The default
    /// fits into the 30 seconds of Kubernetes; where 10 are given, as on Cloud Run, set 8
    #[arg(long, env = "HOTCOUNT_DRAIN_DEADLINE_S", default_value_t = 25, value_name = "S")]
    drain_deadline_s: u64,
    /// Seeds shard choice and jitter; batch keys are random whatever it is [default: random]
    #[arg(long, env = "HOTCOUNT_SEED", value_name = "N")]
    seed: Option<u64>,
}

impl EngineArgs {
    /// The engine's settings.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config {
            order: match self.order {
                Order::OccurredAt => OrderPolicy::OccurredAt,
                Order::Version => OrderPolicy::Version,
                Order::None => OrderPolicy::None,
            },
            max_held_deliveries: self.max_held,
            max_held_bytes: self.max_held_mib.saturating_mul(1 << 20),
            batch_writes: self.batch_writes,
            linger: Duration::from_millis(self.linger_ms),
            recent_likes: self.recent_likes,
            lanes: self.lanes,
            drain_timeout: Duration::from_secs(self.drain_deadline_s),
            seed: self.seed.unwrap_or_else(rand::random_seed),
            ..Config::default()
        };
        config.flush.shards = self.shards;
        config.flush.retry_deadline = self.retry_deadline_s.map(Duration::from_secs);
        config
    }
}

/// The error in the words of the command line: with flags where the library has fields.
pub(crate) fn with_flags(error: EngineError) -> anyhow::Error {
    let (EngineError::Config(conflict) | EngineError::Settings(conflict)) = &error else { return error.into() };
    anyhow::Error::msg(conflict.told(|setting| match setting {
        Setting::BatchWrites(writes) => format!("--batch-writes {writes}"),
        Setting::MaxHeldDeliveries(deliveries) => format!("--max-held {deliveries}"),
        Setting::Lanes(lanes) => format!("--lanes {lanes}"),
        Setting::Linger(linger) => format!("--linger-ms {}", linger.as_millis()),
        Setting::RetryDeadline(deadline) => format!("--retry-deadline-s {}", deadline.as_secs()),
        Setting::DrainTimeout(timeout) => format!("--drain-deadline-s {}", timeout.as_secs()),
        Setting::Order(order) => format!("--order {order}"),
        Setting::Store => "--store".to_owned(),
        Setting::Source => "--source".to_owned(),
        other => other.to_string(),
    }))
}

/// For commands whose only random choice is how long to wait between attempts.
pub(crate) fn seeded() -> ::rand::rngs::SmallRng {
    ::rand::SeedableRng::seed_from_u64(rand::random_seed())
}

/// One seed from the operating system.
mod rand {
    use rand::TryRng;
    use rand::rngs::SysRng;

    pub(super) fn random_seed() -> u64 {
        // Without a source of randomness the clock still tells two runs apart.
        SysRng.try_next_u64().unwrap_or_else(|_| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            now.as_nanos() as u64
        })
    }
}

/// The closing sentence of a run.
pub(crate) fn summary(report: &Report, progress: &Progress) -> String {
    let c = &report.counted;
    let mut text = format!(
        "received {} · applied {} · folded {} · duplicates {} · stale {} · poison {} · left to redelivery {}",
        c.received, c.applied, c.folded, c.duplicates, c.stale, c.poison, c.left
    );
    if report.unconfirmed > 0 {
        text += &format!(" · acks not confirmed {}", report.unconfirmed);
    }
    if progress.commit_latency.count() > 0 {
        let ms = |quantile| progress.commit_latency.quantile(quantile).as_secs_f64() * 1e3;
        text += &format!(" · commit p50 {:.1} ms, p99 {:.1} ms", ms(0.5), ms(0.99));
    }
    text
}
