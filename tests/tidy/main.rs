//! Style that is executed: the arrows between rooms and modules, what code may do, its size, and what documents name.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot read its own tree fails")]

mod arrows;
mod documents;
mod style;

use std::fs;
use std::path::{Path, PathBuf};

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

fn production_files() -> impl Iterator<Item = PathBuf> {
    let tests = |path: &PathBuf| path.file_name().is_some_and(|f| f == "tests.rs");
    rust_files(&root().join("src")).into_iter().filter(move |path| !tests(path))
}
