//! Every parser of outside input, on bytes that are nearly right and on bytes that are not. The checks themselves, the fuzz
//! targets and the seeds are in `fuzz/`, so a finding of the fuzzer becomes a seed, and a seed is tried here for ever.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot read its seeds fails")]

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;
mod mutation;

// Private parsers that the checks include by path name these as of their own crate.
use hotcount::{common, like, store};
use mutation::Mutation;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Mutated inputs of each target. The fuzzer tries more in a second.
const CASES: u32 = 2_000;

/// The seeds of a target, then what mutations make of them.
fn holds(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    for (path, seed) in files.iter().zip(&seeds) {
        let held = catch_unwind(AssertUnwindSafe(|| check(seed)));
        assert!(held.is_ok(), "the seed {} does not hold", path.display());
    }
    let mut runner = TestRunner::new(ProptestConfig { cases: CASES, failure_persistence: None, ..Default::default() });
    let inputs = (any::<prop::sample::Index>(), prop::collection::vec(any::<Mutation>(), 0..6));
    let outcome = runner.run(&inputs, |(seed, mutations)| {
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes, &seeds));
        let shown = bytes.escape_ascii().to_string();
        catch_unwind(AssertUnwindSafe(|| check(&bytes)))
            .map_err(|_| TestCaseError::fail(format!("does not hold: b\"{shown}\"")))
    });
    if let Err(failure) = outcome {
        panic!("{target}: {failure}");
    }
}

#[test]
fn an_event_is_the_like_or_the_poison_that_a_plain_reading_says() {
    holds("decoder", fuzz::decoder);
}

#[test]
fn a_text_has_the_same_records_wherever_a_piece_ends_and_they_are_what_a_plain_reading_finds() {
    holds("lines", fuzz::lines);
}

#[test]
fn what_was_packed_comes_out_the_same_wherever_a_piece_ends() {
    holds("unpack", fuzz::unpack);
}

#[test]
fn every_event_of_a_body_is_delivered_once_and_the_answer_tells_its_fate() {
    holds("body", fuzz::body);
}

#[test]
fn a_url_is_refused_with_a_reason_or_means_the_same_when_written_again() {
    holds("urls", fuzz::urls);
}

#[test]
fn an_answer_of_a_worker_means_the_same_when_written_again() {
    holds("face", fuzz::face);
}

#[test]
fn what_lies_on_disk_is_read_as_it_was_written_or_called_damaged() {
    holds("disk", fuzz::disk);
}

#[test]
fn a_load_that_can_be_leads_to_what_it_expects() {
    holds("load", fuzz::load);
}

#[test]
fn a_document_that_hotcount_could_not_have_written_is_not_believed() {
    holds("documents", fuzz::documents);
}
