//! Which entries of the quarantine a command is about.

use super::PAGE;
use clap::Args;
use hotcount::store::{PageSize, Quarantined, Store, StoreError};

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
    /// Ids that nothing is kept under.
    pub(super) missing: Vec<String>,
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
            return Ok(Some(Page { entries: page.entries, missing: Vec::new() }));
        }
        let mut page = Page::default();
        let rest = self.selection.ids.split_off(PAGE.min(self.selection.ids.len()));
        for id in std::mem::replace(&mut self.selection.ids, rest) {
            match store.find_quarantined(&id).await? {
                Some(entry) => page.entries.push(entry),
                None => page.missing.push(id),
            }
        }
        self.ended = self.selection.ids.is_empty();
        Ok(Some(page))
    }
}
