//! What a store answers when it fails, and what that means for what was asked.

/// What a failure means for the batch, and so what the flush does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Nothing was written. Back off, pick a new shard, try again under the same key.
    DidNotCommit,
    /// It may have been written. Back off, try again under the same key, read the key first.
    Unknown,
    /// The store did not accept the credentials. Nothing was written. Tokens get refreshed, so only several of these
    /// in a row mean that the store cannot work.
    Unauthenticated,
    /// No batch can succeed. The worker stops with this error and acknowledges nothing.
    Fatal,
    /// This batch cannot succeed as it is. Split it until the offender is alone.
    Rejected,
    /// Others keep writing the likes at these places of the batch. They go into a batch of their own, so that one
    /// toggling user cannot slow the others.
    Contended(Vec<usize>),
    /// These likes cannot be decided, for what is stored for them cannot be read. Nothing was written. They concern
    /// nobody else: the rest of the batch goes on without them.
    Undecidable(Vec<Undecidable>),
}

/// A like that cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecidable {
    /// Its place in the batch; 0 where a single like, post or entry was asked for.
    pub place: usize,
    /// The stored document or row, as its store names it.
    pub document: String,
    /// What keeps it from being read.
    pub fault: StoredFault,
}

impl std::fmt::Display for Undecidable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.document, self.fault)
    }
}

/// What keeps a stored document from being read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredFault {
    /// It is not what hotcount writes there: its like is quarantined.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// A newer hotcount has written it (its `v`): its like is left to redelivery, for a newer worker of the fleet.
    #[error("was written by a newer hotcount (v {0}, this one knows v {LAYOUT})")]
    Newer(i64),
}

/// The version of the layout that this hotcount writes, the `v` of every document.
pub const LAYOUT: i64 = 1;

/// A store's failure, with its class. The text is for people; the class decides.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What the failure means.
    pub class: ErrorClass,
    /// What happened, in a sentence.
    pub message: String,
    /// The cause, where there is one.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Documents named in one message; the class has all of them.
const NAMED: usize = 3;

impl StoreError {
    /// Likes that cannot be decided; at least one.
    #[must_use]
    pub fn undecidable(those: Vec<Undecidable>) -> Self {
        let named: Vec<String> = those.iter().take(NAMED).map(Undecidable::to_string).collect();
        let more = those.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Self::new(ErrorClass::Undecidable(those), named.join("; ") + &more)
    }

    /// A failure of the given class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), source: None }
    }

    /// A failure of the given class, with its cause.
    pub fn caused(
        class: ErrorClass,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { class, message: message.into(), source: Some(source.into()) }
    }
}
