//! Where the demo keeps its data, and what becomes of it.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory of the demo's own.
pub(super) struct Place {
    path: PathBuf,
    /// Removed with everything in it when this is dropped; `None` when the data is kept.
    temporary: Option<TempDir>,
}

impl Place {
    /// `keep`, which must be new or empty, or a temporary directory.
    pub(super) fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        let (path, temporary) = match keep {
            Some(path) => {
                let shown = path.display();
                std::fs::create_dir_all(path).with_context(|| format!("--keep {shown} cannot be made"))?;
                let mut entries = path.read_dir().with_context(|| format!("--keep {shown} cannot be read"))?;
                if entries.next().is_some() {
                    bail!("--keep {shown} is not empty: name a new directory, for the counts must begin at zero");
                }
                (path.to_owned(), None)
            }
            None => {
                let made = tempfile::Builder::new().prefix("hotcount-demo-").tempdir();
                let made = made.context("no temporary directory can be made; name one with --keep DIR")?;
                (made.path().to_owned(), Some(made))
            }
        };
        if path.to_str().is_none_or(|path| path.contains('?')) {
            bail!("{} cannot stand in a store URL: name a directory with --keep DIR", path.display());
        }
        Ok(Self { path, temporary })
    }

    /// Where the worker's log goes.
    pub(super) fn log(&self) -> PathBuf {
        self.path.join("worker.log")
    }

    /// The worker's store.
    pub(super) fn store_url(&self) -> String {
        format!("embedded:{}", self.path.join("data").display())
    }

    /// Removes the data, unless it is wanted; a sentence about it.
    pub(super) fn end(self, wanted: bool) -> String {
        let (store, log) = (self.store_url(), self.log());
        match self.temporary {
            Some(temporary) if !wanted => match temporary.close() {
                Ok(()) => "its data is removed".to_owned(),
                Err(error) => format!("its data cannot be removed: {error}"),
            },
            temporary => {
                temporary.map(TempDir::keep);
                format!("its data is kept: hotcount verify --store {store}, and {}", log.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_data_goes_unless_it_is_wanted_and_data_to_keep_stays() {
        let folder = tempfile::tempdir().expect("a directory");
        for (keep, wanted, stays) in [(false, false, false), (false, true, true), (true, false, true)] {
            let path = folder.path().join("kept");
            let place = Place::new(keep.then_some(&*path)).expect("a place");
            let path = place.path.clone();
            std::fs::write(place.log(), "text").expect("written");
            let said = place.end(wanted);
            assert_eq!(path.exists(), stays, "{said}");
            assert_eq!(said.contains("hotcount verify --store embedded:"), stays, "{said}");
            let _ = std::fs::remove_dir_all(path);
        }
    }

    #[test]
    fn a_directory_with_something_in_it_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("something"), "").expect("written");
        let said = Place::new(Some(folder.path())).err().expect("refused").to_string();
        assert!(said.contains("is not empty: name a new directory"), "{said}");
    }
}
