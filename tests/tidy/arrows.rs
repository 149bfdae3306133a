//! The arrows between rooms, and between modules of a room.

use crate::{code_of, module_of, place_of, production_files, root};
use std::collections::{BTreeMap, BTreeSet};

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
