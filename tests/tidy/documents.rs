//! What documents name exists, and what they promise is there.

use crate::{root, rust_files};
use std::fs;

/// A target that the fuzzer alone runs would rot, and a finding of it would not be tried again.
#[test]
fn every_fuzz_target_has_seeds_and_a_property_test() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    let properties = fs::read_to_string(root().join("tests/parsers/main.rs")).unwrap();
    let targets = rust_files(&root().join("fuzz/fuzz_targets"));
    for path in &targets {
        let target = path.file_stem().and_then(|stem| stem.to_str()).unwrap();
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "fuzz/Cargo.toml lacks {target}");
        assert!(fs::read_to_string(path).unwrap().contains(&format!("hotcount_fuzz::{target}(data)")), "{target}");
        assert!(properties.contains(&format!("holds(\"{target}\", fuzz::{target})")), "no property test of {target}");
        let seeds = root().join("fuzz/seeds").join(target);
        assert!(seeds.is_dir(), "{} is missing", seeds.display());
    }
    assert_eq!(properties.matches("    holds(\"").count(), targets.len(), "a property test without its fuzz target");
}

#[test]
fn paths_and_tests_named_in_documents_exist() {
    let tests: String = ["src", "tests"]
        .iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/results.md",
        "docs/testing.md",
        "tests/README.md",
    ] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = ["src/", "tests/", "benches/", "examples/", "docs/", "fuzz/", "scripts/", ".ci/"]
                .iter()
                .any(|p| quoted.starts_with(p));
            if is_path && !quoted.contains(['{', '*', ' ']) {
                let path = quoted.split("::").next().unwrap_or_default();
                assert!(root().join(path).exists(), "{document} names {quoted}");
            }
            let words = quoted.split('_').count();
            if words >= 5 && quoted.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                assert!(
                    tests.contains(&format!("fn {quoted}")) || tests.contains(quoted),
                    "{document} names the test {quoted}"
                );
            }
        }
    }
}

/// The reports that `tests/README.md` answers, by number.
const INCIDENTS: [u32; 60] = [
    1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 18, 20, 21, 23, 24, 25, 27, 28, 29, 31, 33, 34, 35, 36, 37, 38, 39,
    41, 42, 45, 46, 48, 50, 52, 53, 54, 56, 57, 59, 60, 61, 63, 64, 66, 67, 68, 71, 72, 73, 74, 75, 76, 79, 81, 84, 86,
    89,
];

/// Where nothing but a reason stands, because it cannot be brought about here.
const ONLY_A_REASON: [u32; 3] = [64, 73, 75];

#[test]
fn every_incident_is_answered_once_by_a_test_in_the_file_that_is_named_or_by_a_reason() {
    let text = fs::read_to_string(root().join("tests/README.md")).unwrap();
    let mut answered = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| number")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        let number: u32 = cells[0].parse().unwrap_or_else(|_| panic!("{row}"));
        answered.push(number);
        if ONLY_A_REASON.contains(&number) {
            continue;
        }
        let quoted: Vec<&str> = cells[4].split('`').skip(1).step_by(2).collect();
        let [file, test] = quoted[..] else { panic!("{row}") };
        let file = fs::read_to_string(root().join(file)).unwrap_or_else(|_| panic!("{row}"));
        assert!(file.contains(&format!("fn {test}()")) || file.contains(&format!("\"{test}\"")), "{row}");
    }
    assert_eq!(answered, INCIDENTS);
    // A test that was written for a report is in its row.
    for path in rust_files(&root().join("tests/incidents")) {
        for name in fs::read_to_string(path).unwrap().split("fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
            if let Some((_, number)) = name.rsplit_once("_incident_") {
                assert!(INCIDENTS.contains(&number.parse().unwrap()), "{name}");
            }
        }
    }
}
