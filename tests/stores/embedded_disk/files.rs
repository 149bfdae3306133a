//! Folders as what lies in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Content with their bytes, and folders without.
pub(crate) type Content = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// All files below a folder with their bytes, and all folders.
pub(crate) fn content(folder: &Path) -> Content {
    let mut found = BTreeMap::new();
    collect(folder, folder, &mut found);
    found
}

/// The same while a store is open that works in the background: read again until it was one state.
pub(crate) fn content_at_rest(folder: &Path) -> Content {
    let mut before = content(folder);
    for _ in 0..1_000 {
        let now = content(folder);
        if now == before {
            return now;
        }
        before = now;
    }
    panic!("the store goes on writing, though it is asked for nothing");
}

fn collect(root: &Path, folder: &Path, found: &mut Content) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_owned();
        if path.is_dir() {
            found.insert(name, None);
            collect(root, &path, found);
        } else {
            match fs::read(&path) {
                // An open store removes files.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                bytes => drop(found.insert(name, Some(bytes.unwrap()))),
            }
        }
    }
}

/// Makes a folder that has this content.
pub(crate) fn restore(folder: &Path, content: &Content) {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    for (name, bytes) in content {
        match bytes {
            None => fs::create_dir_all(folder.join(name)).unwrap(),
            Some(bytes) => fs::write(folder.join(name), bytes).unwrap(),
        }
    }
}

/// Whether any file holds these bytes.
pub(crate) fn holds(content: &Content, needle: &[u8]) -> Option<PathBuf> {
    let holds = |bytes: &Vec<u8>| bytes.windows(needle.len()).any(|window| window == needle);
    content.iter().find(|(_, bytes)| bytes.as_ref().is_some_and(holds)).map(|(name, _)| name.clone())
}

/// A small generator that gives the same numbers every time (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}
