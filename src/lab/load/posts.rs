//! Which post 64 random bits choose.

use super::random::{below, bound};
use super::{Config, Shape};

/// Chooses posts, from 0 to their number − 1, in constant time.
#[derive(Clone, Debug)]
pub(super) enum Posts {
    Uniform {
        posts: u64,
    },
    /// Post 0 below the bound, the others alike.
    Viral {
        bound: u64,
        posts: u64,
    },
    Table(Vec<Cell>),
}

/// One cell of an alias table: a post is itself below the bound, and its alias otherwise (Walker 1977, in the numbering
/// of Vose 1991). Exact but for the rounding to 32 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    bound: u32,
    alias: u32,
}

impl Posts {
    pub(super) fn new(config: &Config) -> Self {
        match config.shape {
            Shape::Uniform | Shape::Toggle => Self::Uniform { posts: config.posts },
            Shape::Viral { share } | Shape::Flash { share } | Shape::Replay { share } => {
                Self::Viral { bound: bound(share), posts: config.posts }
            }
            Shape::Zipf { exponent } => Self::Table(zipf(config.posts as usize, exponent)),
        }
    }

    #[inline]
    pub(super) fn choose(&self, bits: u64) -> u32 {
        match self {
            Self::Uniform { posts } => below(bits, *posts) as u32,
            // Those that are not below the bound are spread evenly above it; a remainder spreads them over the others.
            Self::Viral { bound, posts } if bits < *bound || *posts == 1 => 0,
            Self::Viral { posts, .. } => 1 + (bits.rotate_left(32) % (posts - 1)) as u32,
            Self::Table(cells) => {
                let cell = below(bits, cells.len() as u64) as u32;
                let Cell { bound, alias } = cells[cell as usize];
                // The low bits decide little about the cell: there are at most ten million.
                if (bits as u32) < bound { cell } else { alias }
            }
        }
    }
}

fn zipf(posts: usize, exponent: f64) -> Vec<Cell> {
    // Division is the same on every machine, powers need not be.
    let weight = |post: usize| {
        let rank = post as f64 + 1.0;
        if exponent == 1.0 { 1.0 / rank } else { rank.powf(-exponent) }
    };
    let sum: f64 = (0..posts).map(weight).sum();
    // Scaled so that the average is 1: then every cell is filled by a light post and a part of a heavy one.
    let mut left: Vec<f64> = (0..posts).map(|post| weight(post) / sum * posts as f64).collect();
    let mut cells = vec![Cell { bound: u32::MAX, alias: 0 }; posts];
    // Weights fall, so the heavy posts are in front: one cursor walks them, and each gives until it is light itself.
    let mut light: Vec<u32> = (0..posts as u32).filter(|post| left[*post as usize] < 1.0).collect();
    let mut heavy: Vec<u32> = (0..posts as u32).filter(|post| left[*post as usize] >= 1.0).collect();
    for (post, cell) in cells.iter_mut().enumerate() {
        cell.alias = post as u32;
    }
    while let (Some(small), Some(large)) = (light.pop(), heavy.last().copied()) {
        let share = left[small as usize];
        cells[small as usize] = Cell { bound: (share * 2_f64.powi(32)) as u32, alias: large };
        left[large as usize] -= 1.0 - share;
        if left[large as usize] < 1.0 {
            heavy.pop();
            light.push(large);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::load::random::{About, Stream};

    fn counts(shape: Shape, posts: u64) -> Vec<u32> {
        let chooser = Posts::new(&Config { shape, posts, ..Config::default() });
        let stream = Stream::new(3, About::Post);
        let mut counts = vec![0; posts as usize];
        (0..1_000_000).for_each(|n| counts[chooser.choose(stream.at(n)) as usize] += 1);
        counts
    }

    #[test]
    fn a_viral_post_takes_its_share_and_the_others_are_alike() {
        let counts = counts(Shape::Viral { share: 0.7 }, 11);
        assert!((698_000..702_000).contains(&counts[0]), "{counts:?}");
        assert!(counts[1..].iter().all(|n| (29_000..31_000).contains(n)), "{counts:?}");
    }

    #[test]
    fn zipf_gives_every_rank_its_part() {
        let counts = counts(Shape::Zipf { exponent: 1.0 }, 100);
        let harmonic: f64 = (1..=100).map(|n| 1.0 / f64::from(n)).sum();
        for (rank, count) in (1_u32..).zip(&counts) {
            let wanted = 1_000_000.0 / harmonic / f64::from(rank);
            let off = (f64::from(*count) - wanted).abs();
            // Five standard deviations.
            assert!(off < 5.0 * wanted.sqrt(), "rank {rank}: {count} instead of {wanted}");
        }
    }

    #[test]
    fn zipf_with_exponent_zero_is_uniform_and_one_post_is_one_post() {
        assert!(counts(Shape::Zipf { exponent: 0.0 }, 10).iter().all(|n| (98_000..102_000).contains(n)));
        for shape in [Shape::Viral { share: 0.0 }, Shape::Zipf { exponent: 1.0 }, Shape::Uniform] {
            assert_eq!(counts(shape, 1), [1_000_000]);
        }
    }
}
