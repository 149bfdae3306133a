//! Where the keys of batches come from.

use crate::like::batch::BatchKey;
use rand::rngs::{SmallRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

/// Where the keys of batches come from.
///
/// A store takes a batch whose key it has for one that has committed, and writes nothing. So two workers on one store
/// never draw the same keys, and neither does one worker that was started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchKeys {
    /// From the operating system: no two runs share one, whatever their seed.
    #[default]
    Random,
    /// From this seed, so that a simulation replays. Every run on one store needs a seed of its own.
    Seeded(u64),
}

/// A seed from the operating system, for whatever may be different each time.
#[must_use]
pub fn any_seed() -> u64 {
    // Without a source of randomness the clock still tells two runs apart.
    SysRng.try_next_u64().unwrap_or_else(|_| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.as_nanos() as u64
    })
}

/// One lane's keys.
pub enum LaneKeys {
    /// From the operating system.
    Random,
    /// From a generator of the lane's own.
    Seeded(SmallRng),
}

impl LaneKeys {
    /// Keys that grow from `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(SmallRng::seed_from_u64(seed))
    }

    #[expect(
        clippy::expect_used,
        reason = "a guessed key could lose likes; the worker ends and nothing is acknowledged"
    )]
    pub(super) fn next(&mut self) -> BatchKey {
        let mut bits = [0; 16];
        match self {
            Self::Random => SysRng.try_fill_bytes(&mut bits).expect("the operating system gives random numbers"),
            Self::Seeded(rng) => bits = rng.random::<u128>().to_be_bytes(),
        }
        BatchKey::from_random(u128::from_be_bytes(bits))
    }
}
