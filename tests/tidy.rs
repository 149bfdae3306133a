//! Style that is executed: the arrows between rooms and modules, the size of files, who may spawn, and paths named in documents.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot read its own tree fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which rooms a room may name. Data flows one way: source → decode → aggregate → flush → store → ack. `like` and `common`
/// name nothing else, the ports name those two, and every other room names ports. An adapter names its port and what the
/// port may name; no adapter names another one, and no room but those on top (`connect`, `lab`, the command line) names
/// an adapter.
const ROOMS: &[(&str, &[&str])] = &[
    ("common", &[]),
    ("like", &[]),
    ("telemetry", &["common"]),
    ("source", &["common", "like", "telemetry"]),
    ("store", &["common", "like", "telemetry"]),
    ("engine", &["common", "like", "source", "store", "telemetry"]),
    ("read", &["common", "like", "store"]),
    ("http_api", &["common", "like", "source", "store", "telemetry"]),
    ("connect", &["common", "http_api", "source", "store"]),
    ("lab", &["common", "like", "source", "store"]),
];

/// Rooms that name adapters.
const ON_TOP: [&str; 2] = ["connect", "lab"];

/// Which modules of its own room a module of these rooms may name.
const WITHIN: &[(&str, &str, &[&str])] = &[
    ("common", "adapter_url", &[]),
    ("common", "backoff", &[]),
    ("common", "budget", &["sync"]),
    ("common", "sync", &[]),
    ("like", "framing", &[]),
    ("like", "inflate", &[]),
    ("like", "event", &["framing", "inflate"]),
    ("like", "membership", &["event"]),
    ("like", "batch", &["event"]),
    ("engine", "aggregate", &[]),
    ("engine", "shard", &[]),
    ("engine", "watchdog", &[]),
    ("engine", "receipt", &[]),
    ("engine", "progress", &["watchdog"]),
    ("engine", "flush", &["aggregate", "progress", "receipt", "shard", "watchdog"]),
    ("engine", "quarantine", &["flush", "progress", "receipt", "watchdog"]),
    ("engine", "pipeline", &["aggregate", "flush", "progress", "quarantine", "receipt", "watchdog"]),
    ("engine", "reprocess", &["pipeline", "progress"]),
];

/// The longest file, in lines, tests inside it included.
const MAX_LINES: usize = 410;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The text without its inline tests and without comments.
fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The adapters of a port: what lies beside it that opens by URL.
const ADAPTERS: [&str; 7] = [
    "source/http",
    "source/jsonl",
    "source/memory",
    "source/pubsub",
    "store/embedded",
    "store/firestore",
    "store/memory",
];

/// The room of a file, and the module inside it.
fn place_of(path: &Path) -> (String, String) {
    let inside = path.strip_prefix(root().join("src")).unwrap().with_extension("");
    let mut parts = inside.iter().map(|p| p.to_str().unwrap().to_owned());
    (parts.next().unwrap(), parts.next().filter(|module| module != "mod").unwrap_or_default())
}

/// The module of a file as `room/module`.
fn module_of(path: &Path) -> String {
    let (room, module) = place_of(path);
    if module.is_empty() { room } else { format!("{room}/{module}") }
}

/// What a file names of its own crate: the rooms, and the module inside each.
fn named_in(code: &str) -> BTreeSet<(String, String)> {
    let word =
        |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned();
    let mut named = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        let mut segments = path.split("::");
        let room = word(segments.next().unwrap_or_default());
        match segments.next() {
            // A group, `crate::room::{a::X, b}`: its members are found one by one.
            Some(group) if group.starts_with('{') => {
                let end = path.find('}').unwrap_or(path.len());
                let members = &path[path.find('{').unwrap_or(0) + 1..end];
                named.extend(members.split(',').map(|member| (room.clone(), word(member.trim()))));
            }
            inside => {
                named.insert((room, inside.map(word).unwrap_or_default()));
            }
        }
    }
    named
}

fn production_files() -> impl Iterator<Item = PathBuf> {
    let tests = |path: &PathBuf| path.file_name().is_some_and(|f| f == "tests.rs");
    rust_files(&root().join("src")).into_iter().filter(move |path| !tests(path))
}

#[test]
fn a_room_names_only_rooms_before_it_in_the_flow() {
    let rooms: BTreeMap<_, _> = ROOMS.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for path in production_files() {
        let (room, _) = place_of(&path);
        if ["lib", "main", "cli"].contains(&room.as_str()) {
            continue;
        }
        let allowed = rooms.get(room.as_str()).unwrap_or_else(|| panic!("{room} is not in the table"));
        for (named, _) in named_in(&code_of(&path)) {
            assert!(named == room || allowed.contains(&named.as_str()), "{}: {room} names {named}", path.display());
        }
        seen.insert(room);
    }
    assert_eq!(seen, rooms.keys().map(|room| (*room).to_owned()).collect(), "rooms, and rooms in the table");
}

#[test]
fn no_port_and_no_adapter_names_an_adapter() {
    for path in production_files() {
        let (room, _) = place_of(&path);
        let own = module_of(&path);
        if ["lib", "main", "cli"].contains(&room.as_str()) || ON_TOP.contains(&room.as_str()) {
            continue;
        }
        let code = code_of(&path);
        for (named_room, module) in named_in(&code) {
            let named = format!("{named_room}/{module}");
            assert!(named == own || !ADAPTERS.contains(&named.as_str()), "{} names {named}", path.display());
        }
        // Inside a port, an adapter can be named without the crate.
        for adapter in ADAPTERS.iter().filter(|adapter| adapter.starts_with(&format!("{room}/")) && **adapter != own) {
            let near = format!("super::{}::", adapter.rsplit('/').next().unwrap_or_default());
            assert!(!code.contains(&near), "{} names {adapter}", path.display());
        }
    }
    for adapter in ADAPTERS {
        assert!(root().join(format!("src/{adapter}.rs")).exists(), "{adapter} is gone");
    }
}

#[test]
fn modules_of_a_room_name_only_what_lies_before_them() {
    let mut seen = BTreeSet::new();
    for path in production_files() {
        let (room, module) = place_of(&path);
        if module.is_empty() || !WITHIN.iter().any(|(r, _, _)| *r == room) {
            continue;
        }
        let row = WITHIN.iter().find(|(r, m, _)| *r == room && *m == module);
        let (_, _, allowed) = row.unwrap_or_else(|| panic!("{room}/{module} is not in the table"));
        for (named_room, named) in named_in(&code_of(&path)) {
            let fine = named_room != room || named == module || allowed.contains(&named.as_str());
            assert!(fine, "{}: {room}/{module} names {named}", path.display());
        }
        seen.insert((room, module));
    }
    for (room, module, _) in WITHIN {
        assert!(seen.contains(&((*room).to_owned(), (*module).to_owned())), "{room}/{module} is gone");
    }
}

#[test]
fn aggregation_and_decisions_never_await_and_never_read_a_clock() {
    for module in [
        "common/adapter_url",
        "common/backoff",
        "common/budget",
        "engine/aggregate",
        "engine/shard",
        "like/batch",
        "like/event",
        "like/framing",
        "like/inflate",
        "like/membership",
    ] {
        for path in rust_files(&root().join("src")) {
            if module_of(&path) != module || path.file_name().is_some_and(|f| f == "tests.rs") {
                continue;
            }
            let code = code_of(&path);
            for forbidden in [".await", "async fn", "::now()", "tokio", "std::fs", "std::net"] {
                assert!(!code.contains(forbidden), "{} has {forbidden}", path.display());
            }
        }
    }
}

/// What the buffer takes from elsewhere, the model checker does not see.
#[test]
fn the_buffer_shares_nothing_between_threads_but_what_the_model_checker_sees() {
    for path in rust_files(&root().join("src")) {
        if !["engine/aggregate", "common/budget"].contains(&module_of(&path).as_str())
            || path.file_name().is_some_and(|f| f == "tests.rs")
        {
            continue;
        }
        let code = code_of(&path);
        for forbidden in ["std::sync", "dashmap", "thread_local", "static ", "Cell<"] {
            assert!(!code.contains(forbidden), "{} has {forbidden}", path.display());
        }
    }
}

#[test]
fn only_the_pipeline_and_the_server_spawn_tasks() {
    for path in rust_files(&root().join("src")) {
        let code = code_of(&path);
        // The embedded store owns two threads, and awaits the blocking calls that it hands to the runtime.
        let spawns = code.contains("tokio::spawn") || code.contains("JoinSet") || code.contains("spawn_local");
        let may = ["engine/pipeline", "http_api/server"].contains(&module_of(&path).as_str());
        assert!(!spawns || may, "{} spawns", path.display());
        let threads = code.contains("thread::Builder") || code.contains("spawn_blocking");
        assert!(!threads || module_of(&path) == "store/embedded", "{} starts threads", path.display());
    }
}

/// `select!` looks at its branches in a random order unless told otherwise, and a `watch` channel wakes in one.
#[test]
fn the_engine_leaves_nothing_to_chance_but_its_seed() {
    for path in rust_files(&root().join("src")) {
        let module = module_of(&path);
        let (room, _) = place_of(&path);
        if ["cli", "http_api", "main"].contains(&room.as_str())
            || ["lab/load", "source/http", "source/pubsub"].contains(&module.as_str())
        {
            continue;
        }
        let code = code_of(&path);
        for select in code.split("select! {").skip(1) {
            assert!(select.trim_start().starts_with("biased;"), "{}: a select! without `biased;`", path.display());
        }
        for forbidden in ["sync::watch", "watch::channel", "RandomState::new", "rand::rng()", "random_seed"] {
            assert!(!code.contains(forbidden), "{} has {forbidden}", path.display());
        }
    }
}

/// Text of strangers reaches a terminal through the one place that escapes it.
#[test]
fn the_command_line_writes_in_one_place() {
    for path in rust_files(&root().join("src")) {
        let code = code_of(&path);
        let here = ["src/cli/output.rs", "src/cli/plain.rs"].iter().any(|own| path.ends_with(own));
        let cli = ["cli", "main"].contains(&place_of(&path).0.as_str());
        for forbidden in ["println!", "eprint!", "io::stdout()"] {
            let allowed = here || forbidden == "io::stdout()" && !cli;
            assert!(allowed || !code.contains(forbidden), "{} has {forbidden}", path.display());
        }
    }
}

#[test]
fn every_file_is_short_enough_to_be_one_idea() {
    for folder in ["src", "tests", "benches", "examples", "fuzz/src", "fuzz/fuzz_targets"] {
        for path in rust_files(&root().join(folder)) {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
        }
    }
}

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
    for document in
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/results.md", "docs/testing.md", "tests/README.md"]
    {
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
