//! Keyed hashes of counters: every choice of a plan, without a generator whose state would have to be carried along.

/// What a choice is about. Each has its own stream, so that no two choices of one counter are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum About {
    Kind = 1,
    Post,
    Liked,
    Back,
    Late,
    Shuffled,
    EventId,
    User,
    Poison,
}

/// A seed's stream of hashes for one kind of choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(u64);

impl Stream {
    pub(super) fn new(seed: u64, about: About) -> Self {
        Self(mix(seed ^ mix(about as u64)))
    }

    /// The hash of `n`: a permutation of the 64-bit integers, so that different counters never have the same.
    #[inline]
    pub(super) fn at(self, n: u64) -> u64 {
        // An odd constant spreads neighbours before the finalizer sees them; multiplying by it can be undone.
        mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.0)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input moves every bit of the output, and
/// each step can be undone.
#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from 0 to `below` − 1 made of 64 random bits. `below` is not 0.
#[inline]
pub(super) fn below(bits: u64, below: u64) -> u64 {
    ((u128::from(bits) * u128::from(below)) >> 64) as u64
}

/// A share from 0 to 1 as a bound: as many 64-bit numbers lie under it. All of them for 1, but for the last.
pub(super) fn bound(share: f64) -> u64 {
    // The cast saturates: 1.0 becomes u64::MAX.
    (share * 2_f64.powi(64)) as u64
}

/// A permutation of the numbers from 0 to `len` − 1: multiply by something coprime to `len`, then add.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    factor: u64,
    offset: u64,
    len: u64,
}

impl Permutation {
    pub(super) fn new(stream: Stream, len: u64) -> Self {
        // Close to len divided by the golden ratio, neighbours land far apart; a little chance on top tells seeds apart.
        let start = (len as f64 * 0.618_033_988_75) as u64 + below(stream.at(0), len / 16 + 1);
        let factor = (start.max(1)..).find(|factor| gcd(*factor, len) == 1).unwrap_or(1);
        Self { factor: factor % len.max(1), offset: below(stream.at(1), len), len }
    }

    #[inline]
    pub(super) fn at(&self, n: u64) -> u64 {
        ((u128::from(n) * u128::from(self.factor) + u128::from(self.offset)) % u128::from(self.len)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_meets_every_number_once() {
        for len in [1, 2, 3, 10, 64, 997, 1_000] {
            let permutation = Permutation::new(Stream::new(len, About::User), len);
            let mut seen: Vec<_> = (0..len).map(|n| permutation.at(n)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn a_bound_lets_its_share_through() {
        let stream = Stream::new(7, About::Kind);
        for share in [0.0, 0.001, 0.25, 0.5, 1.0] {
            let under = (0..100_000).filter(|n| stream.at(*n) < bound(share)).count();
            let wanted = share * 100_000.0;
            assert!((under as f64 - wanted).abs() < 1_000.0, "{share}: {under}");
        }
    }
}
