//! Settings that cannot work together, told in the words of whoever set them.

use std::fmt;
use std::time::Duration;

/// A setting of [`Config`](super::Config) with its value, or what the worker was given beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// `batch_writes`.
    BatchWrites(usize),
    /// `max_held_deliveries`.
    MaxHeldDeliveries(usize),
    /// `lanes`.
    Lanes(usize),
    /// `linger`.
    Linger(Duration),
    /// `flush.retry_deadline`.
    RetryDeadline(Duration),
    /// `drain_timeout`.
    DrainTimeout(Duration),
    /// `order`, by the name that [`OrderPolicy`](crate::like::event::OrderPolicy) has in a store.
    Order(String),
    /// The store.
    Store,
    /// The source.
    Source,
}

/// By the name of its field.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BatchWrites(writes) => write!(f, "batch_writes {writes}"),
            Self::MaxHeldDeliveries(deliveries) => write!(f, "max_held_deliveries {deliveries}"),
            Self::Lanes(lanes) => write!(f, "lanes {lanes}"),
            Self::Linger(linger) => write!(f, "linger {linger:?}"),
            Self::RetryDeadline(deadline) => write!(f, "retry_deadline {deadline:?}"),
            Self::DrainTimeout(timeout) => write!(f, "drain_timeout {timeout:?}"),
            Self::Order(order) => write!(f, "order policy {order}"),
            Self::Store => f.write_str("the store"),
            Self::Source => f.write_str("the source"),
        }
    }
}

/// Settings that cannot work together; the sentence names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// With `{}` where a setting is named.
    sentence: String,
    settings: Vec<Setting>,
}

impl ConfigError {
    pub(super) fn new(sentence: impl Into<String>, settings: impl Into<Vec<Setting>>) -> Self {
        Self { sentence: sentence.into(), settings: settings.into() }
    }

    /// The settings that conflict.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The sentence, with each setting as `name` calls it: a command line has flags where the library has fields.
    #[must_use]
    pub fn told(&self, name: impl Fn(&Setting) -> String) -> String {
        let mut told = String::new();
        let mut settings = self.settings.iter();
        for (number, text) in self.sentence.split("{}").enumerate() {
            if number > 0 {
                told.extend(settings.next().map(&name));
            }
            told.push_str(text);
        }
        told
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(Setting::to_string))
    }
}

impl std::error::Error for ConfigError {}
