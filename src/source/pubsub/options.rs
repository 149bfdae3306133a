//! The URL: `pubsub://PROJECT/SUBSCRIPTION[?option=value&…]`. The worker and its setup read the same one.

use super::super::ConnectError;
use crate::common::adapter_url::{AdapterUrl, Known, UrlError};
use std::time::Duration;

/// A subscription and how it is pulled: what a URL says, or what an application sets.
///
/// ```
/// use hotcount::source::pubsub::Options;
/// use std::time::Duration;
///
/// let options = Options::new("my-project", "likes").streams(4).max_lease(Duration::from_secs(600));
/// assert_eq!(options, Options::parse("pubsub://my-project/likes?streams=4&max_lease_s=600")?);
/// # Ok::<(), hotcount::source::ConnectError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The project's id.
    pub project: String,
    /// The subscription's id, without its path.
    pub subscription: String,
    /// `streams`: how many streams are pulled at once. 32: Google's emulator delivers about 2,000 messages a second on
    /// one stream, and the whole way on two cores was fastest with 32 (46,000 events/s; 16: 14,000; 64: 27,000). The
    /// service delivers up to 10 MB/s on one stream, so there it is more than enough.
    pub streams: usize,
    /// `outstanding`: messages that the service may have out on one stream. 250: with 32 streams that is 8,000, eight rounds
    /// of two Firestore commits, and at 300 ms from delivery to acknowledgement it lets 26,000 likes a second through. What
    /// is out when a worker is killed costs each message a delivery attempt. It also bounds a request of acknowledgements,
    /// of which the service takes 512 KiB: the client library sends up to 1,000 ids of a stream at once, however long.
    pub outstanding: u32,
    /// `extension_s`: for how long a lease is extended at a time, 10 to 600 s. 60 s: shorter than a commit that is
    /// retried and a lease runs out because one extension was late; longer and a killed worker's messages come back
    /// later, for that is how long they stay out.
    pub extension: Duration,
    /// `max_lease_s`: for how long a delivery may be held. 60 min: an outage of the store up to there costs no
    /// delivery attempts.
    pub max_lease: Duration,
    /// `idle_s`: a stream that brings nothing for so long is opened anew on a new connection, for the client library
    /// cannot tell a dead connection from a quiet topic. 5 min: the kernel takes about 15 to give up a connection.
    pub idle: Duration,
    /// `emulator`: `HOST:PORT` of an emulator; goes before `PUBSUB_EMULATOR_HOST`.
    pub emulator: Option<String>,
    /// `topic`: the topic that `hotcount setup` subscribes to, an id or `projects/PROJECT/topics/TOPIC`; where it is not
    /// given, one that is called as the subscription.
    pub topic: Option<String>,
    /// `exactly_once`: whether the subscription must have exactly-once delivery; either will do where it is not given.
    /// The counts do not need it; it saves redeliveries, in one region and for more latency.
    pub exactly_once: Option<bool>,
}

/// What every option may be. Bounds keep typing errors from becoming gigabytes.
const KNOWN: &[Known] = &[
    Known::new("streams", "1 to 256"),
    Known::new("outstanding", "1 to 100000"),
    Known::new("extension_s", "10 to 600"),
    Known::new("max_lease_s", "10 to 86400"),
    Known::new("idle_s", "10 to 86400"),
    Known::new("emulator", "HOST:PORT"),
    Known::new("topic", "an id or projects/PROJECT/topics/TOPIC"),
    Known::new("exactly_once", "true or false"),
];

const EXPECTED: &str = "write it as pubsub://PROJECT/SUBSCRIPTION";

impl Options {
    /// A subscription, with the defaults for everything else. [`PubSub::open`](super::PubSub::open) checks what is set.
    #[must_use]
    pub fn new(project: impl Into<String>, subscription: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            subscription: subscription.into(),
            streams: 32,
            outstanding: 250,
            extension: Duration::from_secs(60),
            max_lease: Duration::from_secs(60 * 60),
            idle: Duration::from_secs(5 * 60),
            emulator: None,
            topic: None,
            exactly_once: None,
        }
    }

    /// Sets [`Options::streams`].
    #[must_use]
    pub fn streams(self, streams: usize) -> Self {
        Self { streams, ..self }
    }

    /// Sets [`Options::outstanding`].
    #[must_use]
    pub fn outstanding(self, outstanding: u32) -> Self {
        Self { outstanding, ..self }
    }

    /// Sets [`Options::extension`].
    #[must_use]
    pub fn extension(self, extension: Duration) -> Self {
        Self { extension, ..self }
    }

    /// Sets [`Options::max_lease`].
    #[must_use]
    pub fn max_lease(self, max_lease: Duration) -> Self {
        Self { max_lease, ..self }
    }

    /// Sets [`Options::idle`].
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Sets [`Options::emulator`].
    #[must_use]
    pub fn emulator(self, host_port: impl Into<String>) -> Self {
        Self { emulator: Some(host_port.into()), ..self }
    }

    /// Sets [`Options::exactly_once`].
    #[must_use]
    pub fn exactly_once(self, exactly_once: bool) -> Self {
        Self { exactly_once: Some(exactly_once), ..self }
    }

    /// What is wrong with these options.
    pub(super) fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, (least, most): (u64, u64)| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} must be a number from {least} to {most}")),
        };
        // A project's id may have a domain in front: `example.com:project`.
        let legal_in_project = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
        if self.project.is_empty() || !self.project.chars().all(legal_in_project) {
            return Err("it names no project: letters, digits and -.: make its id".to_owned());
        }
        if !is_id(&self.subscription) {
            return Err(format!("the subscription is no legal id: {ID}"));
        }
        within("streams", self.streams as u64, (1, 256))?;
        within("outstanding", self.outstanding.into(), (1, 100_000))?;
        within("extension_s", self.extension.as_secs(), (10, 600))?;
        within("max_lease_s", self.max_lease.as_secs(), (10, 86_400))?;
        within("idle_s", self.idle.as_secs(), (10, 86_400))?;
        if self.max_lease < self.extension {
            return Err("max_lease_s is shorter than extension_s".to_owned());
        }
        Ok(())
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// When it is no `pubsub:` URL, a name is not legal, or an option is unknown or out of bounds.
    pub fn parse(url: &str) -> Result<Self, ConnectError> {
        Ok(Self::read(&AdapterUrl::parse(url)?)?)
    }

    fn read(url: &AdapterUrl) -> Result<Self, UrlError> {
        let names = url.names(EXPECTED)?;
        let [project, subscription] = &names[..] else { return Err(url.refused(EXPECTED)) };
        if url.scheme() != "pubsub" {
            return Err(url.refused(EXPECTED));
        }
        let default = Self::new(project, subscription);
        default.check().map_err(|problem| url.refused(problem))?;
        let given = url.options(KNOWN)?;
        let topic = given.read("topic", &format!("a legal id, {ID}, or projects/PROJECT/topics/ID"), |topic| {
            let id = topic.strip_prefix("projects/").and_then(|rest| rest.split_once("/topics/")).map(|(_, id)| id);
            is_id(id.unwrap_or(topic)).then(|| topic.to_owned())
        })?;
        let options = Self {
            // The bounds fit in both types.
            streams: given.number("streams", 1..=256)?.map_or(default.streams, |streams| streams as usize),
            outstanding: given.number("outstanding", 1..=100_000)?.map_or(default.outstanding, |most| most as u32),
            extension: given.seconds("extension_s", 10..=600)?.unwrap_or(default.extension),
            max_lease: given.seconds("max_lease_s", 10..=86_400)?.unwrap_or(default.max_lease),
            idle: given.seconds("idle_s", 10..=86_400)?.unwrap_or(default.idle),
            emulator: given.host_port("emulator")?,
            topic,
            exactly_once: given.flag("exactly_once")?,
            ..default
        };
        options.check().map_err(|problem| url.refused(problem))?;
        Ok(options)
    }

    /// `pubsub://PROJECT/SUBSCRIPTION`: the source's name, and what to give to `hotcount setup`.
    #[must_use]
    pub fn name(&self) -> String {
        // Of what an id may have, this alone means something in a URL.
        format!("pubsub://{}/{}", self.project, self.subscription.replace('%', "%25"))
    }

    /// `projects/PROJECT/subscriptions/SUBSCRIPTION`.
    #[must_use]
    pub fn subscription_path(&self) -> String {
        format!("projects/{}/subscriptions/{}", self.project, self.subscription)
    }
}

/// Pub/Sub's own rule for ids of topics and subscriptions, in words.
const ID: &str = "3 to 255 letters, digits and -_.~+%, a letter first, and not beginning with goog";

fn is_id(id: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.~+%".contains(c);
    (3..=255).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphabetic())
        && !id.starts_with("goog")
        && id.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_options_has_the_defaults() {
        let options = Options::parse("pubsub://example.com:demo/likes").unwrap();
        assert_eq!(options.name(), "pubsub://example.com:demo/likes");
        let encoded = "pubsub://demo/likes+%25~";
        assert_eq!(Options::parse(encoded).unwrap().name(), encoded);
        assert_eq!(options.subscription_path(), "projects/example.com:demo/subscriptions/likes");
        assert_eq!((options.streams, options.outstanding), (32, 250));
        assert_eq!((options.extension.as_secs(), options.max_lease.as_secs()), (60, 3_600));
    }

    #[test]
    fn options_that_are_set_are_checked_as_those_of_a_url_are() {
        let fine = Options::new("demo", "likes");
        assert_eq!(fine.check(), Ok(()));
        for (options, expected) in [
            (Options::new("", "likes"), "it names no project"),
            (Options::new("demo", "li"), "the subscription is no legal id"),
            (fine.clone().streams(0), "streams must be a number from 1 to 256"),
            (fine.clone().outstanding(0), "outstanding must be"),
            (fine.clone().max_lease(Duration::from_secs(30)), "shorter"),
            (fine.clone().idle(Duration::ZERO), "idle_s must be"),
        ] {
            let told = options.check().expect_err("it is wrong");
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn every_option_is_read() {
        let url = "pubsub://demo/likes?streams=3&outstanding=5&extension_s=10&max_lease_s=20&idle_s=30\
                   &emulator=127.0.0.1%3A9&topic=posts&exactly_once=true";
        let options = Options::parse(url).unwrap();
        let expected = Options {
            project: "demo".to_owned(),
            subscription: "likes".to_owned(),
            streams: 3,
            outstanding: 5,
            extension: Duration::from_secs(10),
            max_lease: Duration::from_secs(20),
            idle: Duration::from_secs(30),
            emulator: Some("127.0.0.1:9".to_owned()),
            topic: Some("posts".to_owned()),
            exactly_once: Some(true),
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn a_wrong_url_is_refused_with_what_is_wrong() {
        for (url, expected) in [
            ("pubsub:likes", "pubsub://PROJECT/SUBSCRIPTION"),
            ("pubsub://demo", "pubsub://PROJECT/SUBSCRIPTION"),
            ("pubsub:///likes", "it names no project"),
            ("pubsub://user:secret@demo/likes", "it names no project"),
            ("pubsub://demo/li", "the subscription is no legal id"),
            ("pubsub://demo/likes/more", "pubsub://PROJECT/SUBSCRIPTION"),
            ("http://demo/likes", "pubsub://PROJECT/SUBSCRIPTION"),
            ("pubsub://demo/likes?streams=0", "streams must be a number from 1 to 256"),
            ("pubsub://demo/likes?extension_s=9", "from 10 to 600"),
            ("pubsub://demo/likes?extension_s=60&max_lease_s=30", "shorter"),
            ("pubsub://demo/likes?exactly_once=yes", "true or false"),
            ("pubsub://demo/likes?topic=projects/other/topics/x", "topic must be a legal id"),
            ("pubsub://demo/likes?emulator=user:secret@host:1", "emulator must be HOST:PORT"),
            ("pubsub://demo/likes?stream=1", "there is no option 'stream'; there are streams"),
        ] {
            let text = Options::parse(url).unwrap_err().to_string();
            assert!(text.contains(expected) && !text.contains("secret"), "{url}: {text}");
        }
    }
}
