//! Which code may do what, and how long it may be.

use crate::{code_of, module_of, place_of, production_files, root, rust_files};
use std::fs;

/// The longest file, in lines, tests inside it included.
const MAX_LINES: usize = 410;

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

/// The longest function, in lines from its signature to its end.
const MAX_FUNCTION_LINES: usize = 70;

#[test]
fn every_function_fits_on_a_screen() {
    for path in rust_files(&root().join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        let mut open: Option<(usize, usize)> = None;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let words = line.trim_start();
            let begins = words.contains("fn ")
                && (words.starts_with("fn ") || words.starts_with("pub") || words.starts_with("async fn"));
            match open {
                // rustfmt puts the end of a function under its beginning.
                Some((first, at)) if indent == at && words.starts_with('}') => {
                    let lines = number + 1 - first;
                    assert!(lines <= MAX_FUNCTION_LINES, "{}:{}: {lines} lines", path.display(), first + 1);
                    open = None;
                }
                None if begins && !words.ends_with(';') && !words.ends_with('}') => open = Some((number, indent)),
                _ => {}
            }
        }
    }
}

/// A library is set by fields. Whole commands, for a user to run, are another thing.
#[test]
fn the_library_does_not_speak_of_flags() {
    let mut spoken = Vec::new();
    for path in production_files() {
        let (room, _) = place_of(&path);
        // What setup prints are commands of gcloud.
        if ["cli", "lab", "main"].contains(&room.as_str())
            || ["setup/commands.rs", "firestore/setup.rs"].iter().any(|file| path.ends_with(file))
        {
            continue;
        }
        let code = code_of(&path);
        for line in code
            .lines()
            .filter(|line| !line.contains("gcloud") && !line.contains("zstd ") && !line.contains("`hotcount "))
        {
            for quoted in line.split('"').skip(1).step_by(2) {
                let flag = quoted.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').find(|word| {
                    word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
                });
                spoken.extend(flag.map(|_| format!("{}: {line}", path.display())));
            }
        }
    }
    assert!(spoken.is_empty(), "{}", spoken.join("\n"));
}
