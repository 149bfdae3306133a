//! The URL: `pubsub://PROJECT/SUBSCRIPTION[?option=value&…]`. The worker and its setup read the same one.

use super::super::ConnectError;
use std::time::Duration;

/// What the URL says, with defaults for what it leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The project's id.
    pub project: String,
    /// The subscription's id, without its path.
    pub subscription: String,
    /// `streams`: how many streams are pulled at once. 32: Google's emulator delivers about 2,000 messages a second on
    /// one stream, and the whole way on two cores was fastest with 32 (46,000 events/s; 16: 14,000; 64: 27,000). The
    /// service delivers up to 10 MB/s on one stream, so there it is more than enough.
    pub streams: usize,
    /// `outstanding`: messages that the service may have out on one stream. 1,000, the client library's own default.
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
const KNOWN: &str = "streams (1 to 256), outstanding (1 to 100000), extension_s (10 to 600), max_lease_s (10 to 86400), \
                     idle_s (10 to 86400), emulator (HOST:PORT), topic, exactly_once (true or false)";

impl Options {
    /// Reads a URL.
    ///
    /// # Errors
    /// When it is no `pubsub:` URL, a name is not legal, or an option is unknown or out of bounds.
    pub fn parse(url: &str) -> Result<Self, ConnectError> {
        Self::read(url).map_err(|problem| ConnectError::BadUrl { url: url.to_owned(), problem })
    }

    fn read(url: &str) -> Result<Self, String> {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let names = path.strip_prefix("pubsub://").and_then(|p| p.split_once('/'));
        let (project, subscription) = names.ok_or("write it as pubsub://PROJECT/SUBSCRIPTION")?;
        // A project's id may have a domain in front: `example.com:project`.
        let legal_in_project = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
        if project.is_empty() || !project.chars().all(legal_in_project) {
            return Err(format!("'{project}' is no project id"));
        }
        check_id(subscription)?;
        let mut options = Self {
            project: project.to_owned(),
            subscription: subscription.to_owned(),
            streams: 32,
            outstanding: 1_000,
            extension: Duration::from_secs(60),
            max_lease: Duration::from_secs(60 * 60),
            idle: Duration::from_secs(5 * 60),
            emulator: None,
            topic: None,
            exactly_once: None,
        };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            options.set(&name, &value).map_err(|problem| format!("{problem}; the options are {KNOWN}"))?;
        }
        if options.max_lease < options.extension {
            return Err("max_lease_s is shorter than extension_s".to_owned());
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = |min: u32, max: u32| match value.parse::<u32>() {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(format!("{name}={value} is not a number from {min} to {max}")),
        };
        let seconds = |min, max| number(min, max).map(|n| Duration::from_secs(n.into()));
        match name {
            "streams" => self.streams = number(1, 256)? as usize,
            "outstanding" => self.outstanding = number(1, 100_000)?,
            "extension_s" => self.extension = seconds(10, 600)?,
            "max_lease_s" => self.max_lease = seconds(10, 86_400)?,
            "idle_s" => self.idle = seconds(10, 86_400)?,
            "emulator" if !value.is_empty() => self.emulator = Some(value.to_owned()),
            "topic" => {
                let id = value.strip_prefix("projects/").and_then(|rest| rest.split_once("/topics/")).map(|(_, id)| id);
                check_id(id.unwrap_or(value))?;
                self.topic = Some(value.to_owned());
            }
            "exactly_once" => {
                self.exactly_once = Some(value.parse().map_err(|_| format!("{name}={value} is not true or false"))?);
            }
            _ => return Err(format!("{name}={value} is not an option")),
        }
        Ok(())
    }

    /// `pubsub://PROJECT/SUBSCRIPTION`: the source's name, and what to give to `hotcount setup`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("pubsub://{}/{}", self.project, self.subscription)
    }

    /// `projects/PROJECT/subscriptions/SUBSCRIPTION`.
    #[must_use]
    pub fn subscription_path(&self) -> String {
        format!("projects/{}/subscriptions/{}", self.project, self.subscription)
    }
}

/// Pub/Sub's own rule for ids of topics and subscriptions.
fn check_id(id: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.~+%".contains(c);
    let right = (3..=255).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphabetic())
        && !id.starts_with("goog")
        && id.chars().all(legal);
    if right {
        return Ok(());
    }
    Err(format!(
        "'{id}' is no legal id: 3 to 255 letters, digits and -_.~+%, a letter first, and not beginning with goog"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_options_has_the_defaults() {
        let options = Options::parse("pubsub://example.com:demo/likes").unwrap();
        assert_eq!(options.name(), "pubsub://example.com:demo/likes");
        assert_eq!(options.subscription_path(), "projects/example.com:demo/subscriptions/likes");
        assert_eq!((options.streams, options.outstanding), (32, 1_000));
        assert_eq!((options.extension.as_secs(), options.max_lease.as_secs()), (60, 3_600));
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
            ("pubsub:///likes", "'' is no project id"),
            ("pubsub://demo/li", "'li' is no legal id"),
            ("pubsub://demo/likes/more", "'likes/more' is no legal id"),
            ("pubsub://demo/likes?streams=0", "streams=0 is not a number from 1 to 256"),
            ("pubsub://demo/likes?extension_s=9", "from 10 to 600"),
            ("pubsub://demo/likes?extension_s=60&max_lease_s=30", "shorter"),
            ("pubsub://demo/likes?exactly_once=yes", "true or false"),
            ("pubsub://demo/likes?topic=projects/other/topics/x", "'x' is no legal id"),
            ("pubsub://demo/likes?stream=1", "stream=1 is not an option; the options are streams"),
        ] {
            let text = Options::parse(url).unwrap_err().to_string();
            assert!(text.contains(expected), "{url}: {text}");
        }
    }
}
