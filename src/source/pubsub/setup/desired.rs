//! What a subscription should be like, and how to tell whether one is.

use google_cloud_pubsub::model::{DeadLetterPolicy, ExpirationPolicy, RetryPolicy, Subscription};
use google_cloud_wkt::Duration;

/// The lease of a message that nobody extends. The streams ask for their own; 60 s is the same as theirs, for whoever
/// pulls by hand.
pub(super) const ACK_DEADLINE_S: i32 = 60;

/// How soon a dropped message comes back. Attempts are few (100), so that a store that is down for minutes must not use
/// them up in seconds.
pub(super) const MIN_BACKOFF_S: i64 = 10;

/// What the backoff grows to, the longest there is: 100 attempts then last about 16 hours.
pub(super) const MAX_BACKOFF_S: i64 = 600;

/// The most that Pub/Sub offers. Poison is quarantined at once, so what is delivered so often was never poison: it
/// suffered from an outage and deserves every chance.
pub(in super::super) const MAX_ATTEMPTS: i32 = 100;

/// Fewer are worth a warning. Google's default is 5: five workers killed with the same message in hand, or an outage that
/// drops it five times, and a healthy like is a dead letter.
pub(in super::super) const FEW_ATTEMPTS: i32 = 20;

/// How many days a message waits for a worker: Pub/Sub's default.
pub(super) const RETENTION_DAYS: i64 = 7;

/// How many days a dead letter waits for somebody to look: the longest there is. The emulator refuses more than
/// [`RETENTION_DAYS`].
pub(super) const DEAD_LETTER_RETENTION_DAYS: i64 = 31;

const DAY_S: i64 = 24 * 60 * 60;

/// A setting that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Topic,
    Delivery,
    AckDeadline,
    Retention,
    Expiration,
    Retry,
    DeadLetters,
    ExactlyOnce,
}

impl Setting {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Topic => "the topic",
            Self::Delivery => "the delivery type",
            Self::AckDeadline => "the ack deadline",
            Self::Retention => "the retention",
            Self::Expiration => "the expiration",
            Self::Retry => "the retry policy",
            Self::DeadLetters => "the dead-letter policy",
            Self::ExactlyOnce => "exactly-once delivery",
        }
    }

    /// Its name in a field mask.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Delivery => "push_config",
            Self::AckDeadline => "ack_deadline_seconds",
            Self::Retention => "message_retention_duration",
            Self::Expiration => "expiration_policy",
            Self::Retry => "retry_policy",
            Self::DeadLetters => "dead_letter_policy",
            Self::ExactlyOnce => "enable_exactly_once_delivery",
        }
    }

    /// The setting in words. Two subscriptions agree in it exactly if the words are the same.
    pub(super) fn show(self, of: &Subscription) -> String {
        let seconds = |d: &Option<Duration>| d.as_ref().map_or_else(|| "default".to_owned(), show_seconds);
        match self {
            Self::Topic => of.topic.clone(),
            Self::Delivery => delivery(of).to_owned(),
            Self::AckDeadline => format!("{} s", of.ack_deadline_seconds),
            Self::Retention => seconds(&of.message_retention_duration),
            Self::Expiration => match &of.expiration_policy {
                Some(policy) => policy.ttl.as_ref().map_or_else(|| "never".to_owned(), show_seconds),
                None => "default".to_owned(),
            },
            Self::Retry => match &of.retry_policy {
                Some(policy) => {
                    format!("{} to {}", seconds(&policy.minimum_backoff), seconds(&policy.maximum_backoff))
                }
                None => "at once".to_owned(),
            },
            Self::DeadLetters => match &of.dead_letter_policy {
                Some(policy) => {
                    format!("{} after {} attempts", policy.dead_letter_topic, policy.max_delivery_attempts)
                }
                None => "none".to_owned(),
            },
            Self::ExactlyOnce => if of.enable_exactly_once_delivery { "on" } else { "off" }.to_owned(),
        }
    }

    /// `to` with this setting of `from`.
    pub(super) fn copied(self, from: &Subscription, mut to: Subscription) -> Subscription {
        match self {
            Self::Topic => to.topic.clone_from(&from.topic),
            Self::Delivery => to.push_config.clone_from(&from.push_config),
            Self::AckDeadline => to.ack_deadline_seconds = from.ack_deadline_seconds,
            Self::Retention => to.message_retention_duration = from.message_retention_duration,
            Self::Expiration => to.expiration_policy.clone_from(&from.expiration_policy),
            Self::Retry => to.retry_policy.clone_from(&from.retry_policy),
            Self::DeadLetters => to.dead_letter_policy.clone_from(&from.dead_letter_policy),
            Self::ExactlyOnce => to.enable_exactly_once_delivery = from.enable_exactly_once_delivery,
        }
        to
    }
}

/// A subscription as it should be, and the settings that are relied on.
pub(super) struct Desired {
    subscription: Subscription,
    settings: Vec<Setting>,
}

impl Desired {
    /// The subscription that the worker pulls. Exactly-once delivery is compared only where it is asked for.
    pub(super) fn likes(path: String, topic: &str, dead_letters: &str, exactly_once: Option<bool>) -> Self {
        let subscription = base(path, topic, RETENTION_DAYS)
            .set_retry_policy(
                RetryPolicy::new()
                    .set_minimum_backoff(Duration::clamp(MIN_BACKOFF_S, 0))
                    .set_maximum_backoff(Duration::clamp(MAX_BACKOFF_S, 0)),
            )
            .set_dead_letter_policy(
                DeadLetterPolicy::new().set_dead_letter_topic(dead_letters).set_max_delivery_attempts(MAX_ATTEMPTS),
            )
            .set_enable_exactly_once_delivery(exactly_once.unwrap_or(false));
        let mut settings =
            vec![Setting::AckDeadline, Setting::Retention, Setting::Expiration, Setting::Retry, Setting::DeadLetters];
        settings.extend(exactly_once.map(|_| Setting::ExactlyOnce));
        Self { subscription, settings }
    }

    /// The subscription that keeps dead letters.
    pub(super) fn inspection(path: String, dead_letters: &str, retention_days: i64) -> Self {
        Self {
            subscription: base(path, dead_letters, retention_days),
            settings: vec![Setting::Retention, Setting::Expiration],
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.subscription.name
    }

    pub(super) fn subscription(&self) -> Subscription {
        self.subscription.clone()
    }

    pub(super) fn settings(&self) -> impl Iterator<Item = Setting> + use<> {
        self.settings.clone().into_iter()
    }

    /// What differs and can never be changed: the setting, what it is, and what to do.
    pub(super) fn fixed_differences(&self, existing: &Subscription) -> Vec<(Setting, String, String)> {
        [
            (
                Setting::Topic,
                "a subscription keeps its topic; use another subscription, or delete this one and run again",
            ),
            (
                Setting::Delivery,
                "somebody may rely on it; use another subscription, or turn it into a pull one yourself",
            ),
        ]
        .into_iter()
        .map(|(setting, advice)| (setting, setting.show(existing), advice.to_owned()))
        .filter(|(setting, is, _)| *is != setting.show(&self.subscription))
        .collect()
    }
}

fn base(path: String, topic: &str, retention_days: i64) -> Subscription {
    Subscription::new()
        .set_name(path)
        .set_topic(topic)
        .set_ack_deadline_seconds(ACK_DEADLINE_S)
        .set_message_retention_duration(Duration::clamp(retention_days * DAY_S, 0))
        // Without it Pub/Sub deletes, with all messages, a subscription that nobody pulled for 31 days.
        .set_expiration_policy(ExpirationPolicy::new())
}

fn delivery(of: &Subscription) -> &'static str {
    if of.detached {
        "detached"
    } else if of.push_config.as_ref().is_some_and(|push| !push.push_endpoint.is_empty()) {
        "push"
    } else if of.bigquery_config.is_some() || of.cloud_storage_config.is_some() || of.bigtable_config.is_some() {
        "export"
    } else {
        "pull"
    }
}

fn show_seconds(duration: &Duration) -> String {
    match duration.seconds() {
        s if s >= DAY_S && s % DAY_S == 0 => format!("{} days", s / DAY_S),
        s => format!("{s} s"),
    }
}
