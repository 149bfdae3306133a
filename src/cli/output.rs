//! Results on standard output: columns for people, one JSON object a line for scripts.

use super::plain::{plain, plain_lines};
use hotcount::common::adapter_url::without_passwords;
use hotcount::http_api::{PostCount, Problem};
use hotcount::store::{ErrorClass, StoreError, Tally};
use serde::Serialize;
use std::io::{self, Write};

/// One line. A reader that went away (`| head`) ends the program quietly.
pub(crate) fn line(text: &str) -> io::Result<()> {
    // JSON stays as it is; no row for people is a whole JSON object.
    let json = text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let text = if json { text.into() } else { plain_lines(text) };
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other,
    }
}

/// One line about what happens, or an error, on standard error. Nothing else writes there but logs and questions.
pub(crate) fn complain(text: &str) {
    // There is nobody left to tell when standard error is gone.
    let _ = writeln!(io::stderr(), "{}", plain_lines(&without_passwords(text)));
}

/// An error and its causes in one line, without what was said already.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain() {
        // The store's own message has the code and the text of a status.
        #[cfg(feature = "firestore")]
        if cause.is::<gcloud_sdk::tonic::Status>() {
            continue;
        }
        let text = cause.to_string();
        if !told.contains(&text) {
            let between = if told.is_empty() { "" } else { ": " };
            told = format!("{told}{between}{text}");
        }
    }
    told
}

/// Characters of a payload that a row shows.
const SHOWN: usize = 80;

/// The beginning of a payload, whatever it is, on one line.
pub(crate) fn beginning(payload: &[u8]) -> String {
    // Enough bytes for so many characters of any length.
    let payload = &payload[..payload.len().min(4 * SHOWN)];
    let shown: String = String::from_utf8_lossy(payload).chars().take(SHOWN).collect();
    plain(&shown).into_owned()
}

/// The counts of a post, in either form.
pub(crate) struct Row<'a> {
    pub(crate) post: &'a str,
    pub(crate) tally: &'a Tally,
}

impl Row<'_> {
    pub(crate) fn header(verify: bool) -> String {
        let members = if verify { format!(" {:>12} {:>8}", "members", "drift") } else { String::new() };
        format!("{:<32} {:>12} {:>6}{members}", "post", "count", "shards")
    }

    pub(crate) fn text(&self) -> String {
        let Tally { count, shards, members } = self.tally;
        let mut text = format!("{:<32} {count:>12} {shards:>6}", plain(self.post));
        if let (Some(members), Some(drift)) = (members, self.tally.drift()) {
            text += &format!(" {members:>12} {drift:>8}");
        }
        text
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&PostCount::new(self.post.to_owned(), *self.tally))
    }
}

/// A post whose counts cannot be read.
#[derive(Serialize)]
pub(crate) struct Unreadable<'a> {
    post: &'a str,
    #[serde(flatten)]
    problem: Problem,
}

impl<'a> Unreadable<'a> {
    /// The post, where `error` says that what is stored for it cannot be read.
    ///
    /// # Errors
    /// Any other failure.
    pub(crate) fn of(post: &'a str, error: StoreError) -> Result<Self, StoreError> {
        if !matches!(error.class, ErrorClass::Undecidable(_)) {
            return Err(error);
        }
        Ok(Self { post, problem: error.into() })
    }

    pub(crate) fn text(&self) -> String {
        format!("{:<32} {}", self.post, self.problem.error)
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}
