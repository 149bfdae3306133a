//! What went wrong as JSON: a sentence, and the stored documents that cannot be read where that is what it is about.

use crate::store::{ErrorClass, StoreError, StoredFault, Undecidable};
use serde::{Deserialize, Serialize};

/// What went wrong, in a sentence.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Problem {
    /// The sentence.
    pub error: String,
    /// The stored documents that cannot be read; empty for any other problem. It is about what was asked for alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableDocument>,
}

/// A stored document that cannot be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnreadableDocument {
    /// The document, as its store names it.
    pub document: String,
    /// What keeps it from being read.
    #[serde(flatten)]
    pub fault: Fault,
}

/// What keeps something stored from being read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// In words.
    pub error: String,
    /// The version of the layout that it has, where that is what this worker does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v: Option<i64>,
}

impl From<StoredFault> for Fault {
    fn from(fault: StoredFault) -> Self {
        match fault {
            StoredFault::Unreadable(error) => Self { error, v: None },
            StoredFault::Newer(v) => Self { error: fault.to_string(), v: Some(v) },
        }
    }
}

impl From<Fault> for StoredFault {
    fn from(fault: Fault) -> Self {
        fault.v.map_or(Self::Unreadable(fault.error), Self::Newer)
    }
}

impl Problem {
    /// A sentence and nothing else.
    #[must_use]
    pub fn new(error: String) -> Self {
        Self { error, unreadable: Vec::new() }
    }

    /// The store's failure that it is, where stored documents cannot be read.
    #[must_use]
    pub fn undecidable(self) -> Option<StoreError> {
        let one = |one: UnreadableDocument| Undecidable { place: 0, document: one.document, fault: one.fault.into() };
        let those: Vec<_> = self.unreadable.into_iter().map(one).collect();
        (!those.is_empty()).then(|| StoreError::undecidable(those))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let sentence = error.to_string();
        let ErrorClass::Undecidable(those) = error.class else { return Self::new(sentence) };
        let one = |one: Undecidable| UnreadableDocument { document: one.document, fault: one.fault.into() };
        Self { error: sentence, unreadable: those.into_iter().map(one).collect() }
    }
}
