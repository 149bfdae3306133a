//! What makes a right input nearly right.

use proptest::prelude::*;
use proptest::sample::Index;

/// One change of some bytes.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    Put(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Repeat(Index, u8, u8),
    Cut(Index),
    /// The beginning of this, and the end of a seed.
    Splice(Index, Index, Index),
}

/// What parsers look for.
const WORDS: &[&str] = &[
    "\0",
    "\n",
    "\r\n",
    "\"",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "/",
    "?",
    "&",
    "=",
    "%2F",
    "@",
    "..",
    "__",
    "-1",
    "0",
    "1e999",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "NaN",
    "inf",
    "null",
    "true",
    "é",
    "\u{10ffff}",
    "\"eventId\":\"\",",
    "2099-01-01T00:00:00Z",
    "-24:00",
    ":60",
    ".9999999999",
    "\u{feff}",
];

impl Arbitrary for Mutation {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        let at = || any::<Index>();
        let bytes = prop_oneof![
            prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 1..9),
        ];
        prop_oneof![
            (at(), any::<u8>()).prop_map(|(at, byte)| Self::Put(at, byte)),
            (at(), 0..8_u8).prop_map(|(at, bit)| Self::Flip(at, bit)),
            (at(), bytes).prop_map(|(at, bytes)| Self::Insert(at, bytes)),
            (at(), 1..20_u8).prop_map(|(at, length)| Self::Remove(at, length)),
            (at(), 1..20_u8, 2..200_u8).prop_map(|(at, length, times)| Self::Repeat(at, length, times)),
            at().prop_map(Self::Cut),
            (at(), at(), at()).prop_map(|(at, seed, from)| Self::Splice(at, seed, from)),
        ]
        .boxed()
    }
}

impl Mutation {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let place = |at: &Index| at.index(bytes.len() + 1);
        match self {
            Self::Put(at, byte) if !bytes.is_empty() => *at.get_mut(bytes.as_mut_slice()) = *byte,
            Self::Flip(at, bit) if !bytes.is_empty() => *at.get_mut(bytes.as_mut_slice()) ^= 1 << bit,
            Self::Put(..) | Self::Flip(..) => {}
            Self::Insert(at, new) => {
                let at = place(at);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(at, length) => {
                let at = place(at);
                bytes.drain(at..(at + usize::from(*length)).min(bytes.len()));
            }
            Self::Repeat(at, length, times) => {
                let at = place(at);
                let again = bytes[at..(at + usize::from(*length)).min(bytes.len())].repeat(usize::from(*times));
                bytes.splice(at..at, again);
            }
            Self::Cut(at) => bytes.truncate(place(at)),
            Self::Splice(at, seed, from) => {
                let seed = &seeds[seed.index(seeds.len())];
                bytes.truncate(place(at));
                bytes.extend_from_slice(&seed[from.index(seed.len() + 1)..]);
            }
        }
    }
}
