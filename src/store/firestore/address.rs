//! Where everything is: the store URL, and the name of every document.

use crate::common::adapter_url::{AdapterUrl, Known, emulator_of};
use crate::like::batch::BatchKey;
use crate::store::{ConnectError, Options, hex_of_sha256};
use std::borrow::Cow;
use std::time::Duration;

/// How long a batch key is kept unless the URL says otherwise: the 7 days that Pub/Sub keeps a message by default, and
/// a day more, so that no redelivered batch outlives its key.
pub const BATCH_KEY_LIFETIME: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// The prefix of the four collections unless the URL says otherwise.
pub const PREFIX: &str = "hotcount";

/// Firestore allows 1,500 bytes for a collection's id; nobody needs more than this.
const MAX_PREFIX_BYTES: usize = 100;

/// A document's id may have 1,500 bytes, and the consumer is followed by a colon and at most 36 more.
const MAX_CONSUMER_BYTES: usize = 1_000;

const EXPECTED: &str = "write it as firestore://PROJECT[/DATABASE]";

const DEFAULT_DATABASE: &str = "(default)";

const KNOWN: &[Known] = &[
    Known::new("prefix", "what the names of the collections begin with"),
    Known::new("batch_key_lifetime_s", "seconds, 1 or more"),
    Known::new("emulator", "HOST:PORT"),
    Known::new("members_by", "cell or scan"),
];

/// What a prefix may be.
const PREFIXES: &str = "letters, digits, '-' or '_', and not begin with '__'";

fn is_prefix(prefix: &str) -> bool {
    only(prefix, "-_") && prefix.len() <= MAX_PREFIX_BYTES && !prefix.starts_with("__")
}

/// How the members of a post are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembersBy {
    /// By the sixteen values of `cell`, the one index there is. What the service is asked.
    Cell,
    /// By `post` and `liked`, which have no index. The emulator has no index at all: for `cell` it would read the whole
    /// collection sixteen times, so it is asked this way unless the URL says otherwise.
    Scan,
}

/// The id of the shard that repairs write; workers write numbered ones.
pub(super) const REPAIR: &str = "repair";

/// A database, the names of the collections in it, and the consumer whose batches and poison these are.
#[derive(Clone, Debug)]
pub struct Address {
    project: String,
    database: String,
    prefix: String,
    consumer: String,
    batch_key_lifetime: Duration,
    emulator: Option<String>,
    members_by: Option<MembersBy>,
}

impl Address {
    /// The default database of a project, with the defaults for everything else. [`Firestore::open`](super::Firestore::open)
    /// checks what is set.
    ///
    /// ```
    /// use hotcount::store::firestore::Address;
    ///
    /// let address = Address::new("my-project").with_database("counters").with_prefix("stars");
    /// # let _ = address;
    /// ```
    #[must_use]
    pub fn new(project: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            database: DEFAULT_DATABASE.to_owned(),
            prefix: PREFIX.to_owned(),
            consumer: Options::default().consumer,
            batch_key_lifetime: BATCH_KEY_LIFETIME,
            emulator: None,
            members_by: None,
        }
    }

    /// Another database than the default one.
    #[must_use]
    pub fn with_database(self, database: impl Into<String>) -> Self {
        Self { database: database.into(), ..self }
    }

    /// What the names of the collections begin with.
    #[must_use]
    pub fn with_prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Whose batches and poison these are: two consumers of one topic never share them.
    #[must_use]
    pub fn for_consumer(self, consumer: impl Into<String>) -> Self {
        Self { consumer: consumer.into(), ..self }
    }

    /// How long a batch key is kept: longer than any message waits for its redelivery.
    #[must_use]
    pub fn with_batch_key_lifetime(self, batch_key_lifetime: Duration) -> Self {
        Self { batch_key_lifetime, ..self }
    }

    /// `HOST:PORT` of an emulator.
    #[must_use]
    pub fn on_emulator(self, host_port: impl Into<String>) -> Self {
        Self { emulator: Some(host_port.into()), ..self }
    }

    pub(super) fn or_on_emulator(self, host_port: Option<String>) -> Self {
        Self { emulator: self.emulator.or(host_port), ..self }
    }

    /// `firestore://PROJECT/DATABASE`, for sentences.
    pub(super) fn name(&self) -> String {
        format!("firestore://{}/{}", self.project, self.database)
    }

    /// What Firestore would refuse as part of a name.
    pub(super) fn check(&self) -> Result<(), String> {
        if !only(&self.project, "-.:") {
            return Err(format!("it names no project; {EXPECTED}"));
        }
        if self.database != DEFAULT_DATABASE && !only(&self.database, "-") {
            return Err(format!("it names no database; {EXPECTED}"));
        }
        if !is_prefix(&self.prefix) {
            return Err(format!("prefix must be {PREFIXES}"));
        }
        if self.batch_key_lifetime.as_secs() < 1 {
            return Err("batch_key_lifetime_s must be seconds, 1 or more".to_owned());
        }
        // A colon would make the keys of consumer `a:b` look like keys of consumer `a`.
        let consumer = &self.consumer;
        if consumer.is_empty()
            || consumer.len() > MAX_CONSUMER_BYTES
            || consumer.contains(['/', ':'])
            || consumer.starts_with("__")
        {
            return Err(format!(
                "the consumer '{consumer}' must be 1 to {MAX_CONSUMER_BYTES} bytes without '/' or ':', and not begin with '__'"
            ));
        }
        Ok(())
    }

    /// Reads `firestore://PROJECT[/DATABASE]` with the options `prefix`, `batch_key_lifetime_s` and `emulator`; without
    /// the last, `emulator_host` (the environment's `FIRESTORE_EMULATOR_HOST`) holds.
    ///
    /// # Errors
    /// When something is not understood, or would be refused by Firestore as part of a name.
    pub fn parse(url: &str, consumer: &str, emulator_host: Option<String>) -> Result<Self, ConnectError> {
        let url = AdapterUrl::parse(url)?;
        let names = url.names(EXPECTED)?;
        let (project, database) = match &names[..] {
            [project] => (project, ""),
            [project, database] => (project, database.as_str()),
            _ => return Err(url.refused(EXPECTED).into()),
        };
        let database = if database.is_empty() { DEFAULT_DATABASE } else { database };
        if url.scheme() != "firestore" {
            return Err(url.refused(format!("it names no project; {EXPECTED}")).into());
        }
        let default = Self::new(project).with_database(database).for_consumer(consumer);
        default.check().map_err(|problem| url.refused(problem))?;
        let options = url.options(KNOWN)?;
        let prefix = options.read("prefix", PREFIXES, |prefix| is_prefix(prefix).then(|| prefix.to_owned()))?;
        let by = [("cell", MembersBy::Cell), ("scan", MembersBy::Scan)];
        let lifetime = options.seconds("batch_key_lifetime_s", 1..=u32::MAX.into())?;
        Ok(Self {
            prefix: prefix.unwrap_or(default.prefix),
            batch_key_lifetime: lifetime.unwrap_or(default.batch_key_lifetime),
            emulator: options.host_port("emulator")?.or_else(|| emulator_of(emulator_host)),
            members_by: options.choice("members_by", &by)?,
            ..default
        })
    }

    /// The project's id.
    #[must_use]
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The database's id, `(default)` unless the URL names one.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// What the names of the collections begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The `host:port` of the emulator, when one is used.
    #[must_use]
    pub fn emulator(&self) -> Option<&str> {
        self.emulator.as_deref()
    }

    /// How the members of a post are found.
    #[must_use]
    pub fn members_by(&self) -> MembersBy {
        self.members_by.unwrap_or(if self.emulator.is_some() { MembersBy::Scan } else { MembersBy::Cell })
    }

    /// How long a batch key is kept.
    #[must_use]
    pub fn batch_key_lifetime(&self) -> Duration {
        self.batch_key_lifetime
    }

    /// `projects/{project}/databases/{database}`.
    #[must_use]
    pub fn database_path(&self) -> String {
        format!("projects/{}/databases/{}", self.project, self.database)
    }

    /// The parent of the top-level collections.
    #[must_use]
    pub fn root(&self) -> String {
        format!("{}/documents", self.database_path())
    }

    /// The collection of memberships.
    #[must_use]
    pub fn likes(&self) -> String {
        format!("{}Likes", self.prefix)
    }

    /// The collection, under each post, of its counter shards.
    #[must_use]
    pub fn shards(&self) -> String {
        format!("{}Shards", self.prefix)
    }

    /// The collection of batch keys.
    #[must_use]
    pub fn batches(&self) -> String {
        format!("{}Batches", self.prefix)
    }

    /// The collection of poison.
    #[must_use]
    pub fn quarantine(&self) -> String {
        format!("{}Quarantine", self.prefix)
    }

    /// The document that the shards of `post` are under. It need not exist.
    #[must_use]
    pub fn post(&self, post: &str) -> String {
        format!("{}/posts/{post}", self.root())
    }

    /// One shard of `post`.
    #[must_use]
    pub fn shard(&self, post: &str, shard: &str) -> String {
        format!("{}/{}/{shard}", self.post(post), self.shards())
    }

    /// The membership whose id is `id`, see [`member_id`].
    #[must_use]
    pub fn member(&self, id: &str) -> String {
        format!("{}/{}/{id}", self.root(), self.likes())
    }

    /// The key of a batch.
    #[must_use]
    pub fn batch(&self, key: BatchKey) -> String {
        format!("{}/{}/{}:{key}", self.root(), self.batches(), self.consumer)
    }

    /// What all workers of the consumer agree on. No batch key is called so.
    #[must_use]
    pub fn settings(&self) -> String {
        format!("{}/{}/{}:settings", self.root(), self.batches(), self.consumer)
    }

    /// A document that nobody writes, for seeing whether the database answers.
    #[must_use]
    pub fn nothing(&self) -> String {
        format!("{}/{}/{}:is-the-database-there", self.root(), self.batches(), self.consumer)
    }

    /// An entry of this consumer's quarantine.
    #[must_use]
    pub fn poison(&self, id: &str) -> String {
        format!("{}{id}", self.poison_prefix())
    }

    /// What the names of this consumer's quarantine entries begin with; nobody else's do.
    #[must_use]
    pub fn poison_prefix(&self) -> String {
        format!("{}/{}/{}:", self.root(), self.quarantine(), self.consumer)
    }

    /// The first name after those of this consumer's quarantine entries: `;` is the byte after `:`.
    #[must_use]
    pub fn poison_end(&self) -> String {
        format!("{}/{}/{};", self.root(), self.quarantine(), self.consumer)
    }
}

/// The id of a membership: the first 32 hex digits of SHA-256 of `{bytes in post}:{post}:{user}`.
///
/// The hash comes first so that the likes of one new viral post are spread over the whole key range.
#[must_use]
pub fn member_id(post: &str, user: &str) -> String {
    hex_of_sha256(&[post.len().to_string().as_bytes(), b":", post.as_bytes(), b":", user.as_bytes()])
}

/// The longest post whose id is part of its cell: Firestore takes 1,500 bytes of an indexed value, and two are taken.
const MAX_CELL_POST_BYTES: usize = 1_498;

/// The value of `cell` for a membership with this id: its first hex digit spreads the index over sixteen ranges.
#[must_use]
pub(super) fn cell(id: &str, post: &str) -> String {
    format!("{}:{}", id.get(..1).unwrap_or_default(), cell_post(post))
}

/// How a post stands in its cells: its id; for the two lengths that are too long for that, a hash of it.
#[must_use]
pub(super) fn cell_post(post: &str) -> Cow<'_, str> {
    if post.len() <= MAX_CELL_POST_BYTES {
        return Cow::Borrowed(post);
    }
    Cow::Owned(hex_of_sha256(&[b"post:", post.as_bytes()]))
}

/// The hex digits that a `cell` may begin with, in the order of their bytes.
pub(super) const CELL_DIGITS: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

/// Whether `text` is not empty and all ASCII letters, digits, or of `others`.
fn only(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, ConnectError> {
        Address::parse(url, "like-counter", None)
    }

    #[test]
    fn the_id_of_the_design_is_the_id_of_the_code() {
        assert_eq!(member_id("post-1", "user-7"), "7d2dc7378b92dd56e073e15d853c1135");
        assert_eq!(cell("7d2d", "post-1"), "7:post-1");
    }

    #[test]
    fn a_url_names_a_project_and_perhaps_a_database_and_options() {
        let plain = parse("firestore://demo").expect("it is understood");
        assert_eq!(plain.root(), "projects/demo/databases/(default)/documents");
        assert_eq!(plain.likes(), "hotcountLikes");
        assert_eq!(plain.emulator(), None);
        let full = parse("firestore://demo/other?prefix=stars&batch_key_lifetime_s=60&emulator=127.0.0.1:1")
            .expect("it is understood");
        assert_eq!(full.root(), "projects/demo/databases/other/documents");
        assert_eq!(full.shard("p", "3"), "projects/demo/databases/other/documents/posts/p/starsShards/3");
        assert_eq!(full.batch_key_lifetime(), Duration::from_secs(60));
        assert_eq!(full.emulator(), Some("127.0.0.1:1"));
    }

    #[test]
    fn names_that_firestore_would_refuse_are_refused_first() {
        for url in [
            "firestore:demo",
            "firestore://",
            "firestore://user:secret@demo",
            "firestore://demo/a/b",
            "firestore://demo?prefix=a/b",
            "firestore://demo?prefix=",
            "firestore://demo?prefix=__a",
            "firestore://demo?batch_key_lifetime_s=0",
            "firestore://demo?shards=7",
            "firestore://demo?user:secret@host",
            "firestore://demo?prefix=user:secret@host",
            "firestore://demo?batch_key_lifetime_s=secret%40host",
        ] {
            let Err(error) = parse(url) else { panic!("{url} is taken") };
            assert!(matches!(error, ConnectError::BadUrl { .. }), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for consumer in ["", "a/b", "a:b", "__a"] {
            assert!(Address::parse("firestore://demo", consumer, None).is_err(), "{consumer}");
        }
    }
}
