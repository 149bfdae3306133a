//! Which entries of the quarantine a command is about.

use super::PAGE;
use clap::Args;
use hotcount::store::{ErrorClass, PageSize, Quarantined, Store, StoreError, StoredFault};

#[derive(Clone, Debug, Args)]
pub(super) struct Selection {
    /// Ids of entries, as `quarantine list` shows them
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Every entry of this consumer
    #[arg(long)]
    all: bool,
}

/// Some of the selected entries.
#[derive(Default)]
pub(super) struct Page {
    pub(super) entries: Vec<Quarantined>,
    /// Those that are there and cannot be read.
    pub(super) unreadable: Vec<(String, StoredFault)>,
    /// Ids that nothing is kept under.
    pub(super) missing: Vec<String>,
}

impl Page {
    /// The ids of what is there, readable or not.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        let unreadable = self.unreadable.iter().map(|(id, _)| id.clone());
        self.entries.iter().map(|entry| entry.id.clone()).chain(unreadable)
    }
}

/// The selected entries, page by page.
pub(super) struct Pages {
    selection: Selection,
    /// The last id of the page before.
    after: Option<String>,
    ended: bool,
}

impl Selection {
    /// In words, for a question.
    pub(super) fn text(&self) -> String {
        match self.ids.as_slice() {
            [] => "all quarantined deliveries of this consumer".to_owned(),
            [one] => format!("the quarantined delivery {one}"),
            many => format!("{} quarantined deliveries", many.len()),
        }
    }

    pub(super) fn pages(mut self) -> Pages {
        self.ids.sort();
        self.ids.dedup();
        Pages { selection: self, after: None, ended: false }
    }
}

impl Pages {
    /// The next page, or nothing more. Entries that have been deleted meanwhile do no harm: a page begins behind an id.
    pub(super) async fn next(&mut self, store: &dyn Store) -> Result<Option<Page>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        if self.selection.all {
            let page = store.quarantined(self.after.as_deref(), PageSize::entries(PAGE)).await?;
            self.ended = page.next.is_none();
            self.after = page.next;
            return Ok(Some(Page { entries: page.entries, unreadable: page.unreadable, missing: Vec::new() }));
        }
        let (mut page, mut bytes) = (Page::default(), 0);
        let size = PageSize::entries(PAGE);
        let mut looked = 0;
        for id in self.selection.ids.iter().take(size.entries) {
            if bytes >= size.bytes {
                break;
            }
            looked += 1;
            match store.find_quarantined(id).await {
                Ok(Some(entry)) => {
                    bytes += entry.bytes();
                    page.entries.push(entry);
                }
                Ok(None) => page.missing.push(id.clone()),
                Err(error) => page.unreadable.push((id.clone(), fault_of(error)?)),
            }
        }
        self.selection.ids.drain(..looked);
        self.ended = self.selection.ids.is_empty();
        Ok(Some(page))
    }
}

/// What keeps the one entry that was asked for from being read; any other error is one of the store.
fn fault_of(error: StoreError) -> Result<StoredFault, StoreError> {
    match &error.class {
        ErrorClass::Undecidable(those) => those.first().map(|one| one.fault.clone()).ok_or(error),
        _ => Err(error),
    }
}
