//! The options of a URL: what an adapter knows, each read as what it is.

use super::{AdapterUrl, UrlError, decode};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// An option that an adapter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it may be, for people; empty for one that is not spoken of.
    pub takes: &'static str,
}

impl Known {
    /// An option `name` that may be what `takes` says.
    #[must_use]
    pub const fn new(name: &'static str, takes: &'static str) -> Self {
        Self { name, takes }
    }
}

/// The longest name that is repeated in an error.
const MAX_NAME: usize = 40;

/// The options that a URL gives. No error repeats the value of one.
pub struct Options<'u> {
    url: &'u AdapterUrl,
    given: Vec<(&'static str, String)>,
}

impl<'u> Options<'u> {
    pub(super) fn of(url: &'u AdapterUrl, known: &'static [Known]) -> Result<Self, UrlError> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for pair in url.query().split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(url.refused(format!("an option has no value: write NAME=VALUE; {}", list(known))));
            };
            let name = url.decoded(name)?;
            let Some(Known { name, .. }) = known.iter().find(|option| option.name == name) else {
                let named = if looks_like_a_name(&name) { format!("'{name}'") } else { "of that name".to_owned() };
                return Err(url.refused(format!("there is no option {named}; {}", list(known))));
            };
            if given.iter().any(|(other, _)| other == name) {
                return Err(url.refused(format!("the option '{name}' is given twice")));
            }
            let value = decode(value).map_err(|problem| url.refused(format!("the value of {name}: {problem}")))?;
            given.push((name, value));
        }
        Ok(Self { url, given })
    }

    /// The option as text, where it is given.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// The option as what `read` makes of it.
    ///
    /// # Errors
    /// When `read` makes nothing of it; `expected` says what it must be.
    pub fn read<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, UrlError> {
        let wrong = || self.url.refused(format!("{name} must be {expected}"));
        self.text(name).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// A number in `range`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, UrlError> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.read(name, &expected, |value| value.parse().ok().filter(|number| range.contains(number)))
    }

    /// Seconds in `range`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn seconds(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<Duration>, UrlError> {
        Ok(self.number(name, range)?.map(Duration::from_secs))
    }

    /// One of some words.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, UrlError> {
        let expected = choices.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
        let find = |value: &str| choices.iter().find(|(word, _)| *word == value).map(|(_, choice)| *choice);
        self.read(name, &expected, find)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, UrlError> {
        self.choice(name, &[("true", true), ("false", false)])
    }

    /// `HOST:PORT`, with `http://` or `https://` before it or not.
    ///
    /// # Errors
    /// When it is anything else, such as one with a password.
    pub fn host_port(&self, name: &str) -> Result<Option<String>, UrlError> {
        self.read(name, "HOST:PORT", |value| {
            let host_port = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://")).unwrap_or(value);
            let (host, port) = host_port.rsplit_once(':')?;
            let legal = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
            (!host.is_empty() && host.chars().all(legal) && port.parse::<u16>().is_ok()).then(|| value.to_owned())
        })
    }

    /// Says that an option of this URL is not understood.
    pub fn refused(&self, problem: impl Into<String>) -> UrlError {
        self.url.refused(problem)
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.given.iter().map(|(name, _)| name)).finish()
    }
}

/// Whatever does not look like one may be a value, or a password, in the wrong place.
fn looks_like_a_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME && text.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '-')
}

fn list(known: &[Known]) -> String {
    let spoken_of: Vec<String> = known
        .iter()
        .filter(|option| !option.takes.is_empty())
        .map(|Known { name, takes }| format!("{name} ({takes})"))
        .collect();
    if spoken_of.is_empty() { "there is none".to_owned() } else { format!("there are {}", spoken_of.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] = &[
        Known::new("size", "1 to 9"),
        Known::new("host", "HOST:PORT"),
        Known::new("by", "a or b"),
        Known::new("x", ""),
    ];

    fn read<T>(query: &str, read: impl FnOnce(&Options<'_>) -> Result<T, UrlError>) -> Result<T, String> {
        let url = AdapterUrl::parse(&format!("test:?{query}")).expect("it has a scheme");
        url.options(KNOWN).and_then(|options| read(&options)).map_err(|error| error.problem)
    }

    #[test]
    fn an_option_is_read_as_what_it_is() {
        assert_eq!(read("size=9&x=1", |o| o.number("size", 1..=9)), Ok(Some(9)));
        assert_eq!(read("&&x=1&", |o| o.seconds("size", 1..=9)), Ok(None));
        assert_eq!(read("by=b", |o| o.choice("by", &[("a", 1), ("b", 2)])), Ok(Some(2)));
        assert_eq!(read("by=%C3%A9+%26", |o| Ok(o.text("by").map(str::to_owned))), Ok(Some("é+&".to_owned())));
        for host in ["localhost:1", "127.0.0.1:9", "[::1]:8080", "http://a-b.c:80", "https://a:443"] {
            assert_eq!(read(&format!("host={host}"), |o| o.host_port("host")), Ok(Some(host.to_owned())));
        }
    }

    #[test]
    fn a_wrong_option_is_refused_with_what_there_is_and_without_its_value() {
        let refused = |query: &str| {
            read(query, |o| {
                o.number("size", 1..=9)?;
                o.host_port("host")?;
                o.choice("by", &[("a", 1), ("b", 2)])
            })
        };
        let there_are = "there are size (1 to 9), host (HOST:PORT), by (a or b)";
        for (query, problem) in [
            ("size=secret", "size must be a number from 1 to 9"),
            ("size=10", "size must be a number from 1 to 9"),
            ("size=", "size must be a number from 1 to 9"),
            ("host=user:secret@host:1", "host must be HOST:PORT"),
            ("host=host", "host must be HOST:PORT"),
            ("host=host:secret", "host must be HOST:PORT"),
            ("by=secret", "by must be a or b"),
            ("size=1&by=a&size=1", "the option 'size' is given twice"),
            ("size=1&s%69ze=2", "the option 'size' is given twice"),
            ("size=%2", "the value of size: a '%' needs two hexadecimal digits after it: write a plain % as %25"),
            ("sized=secret", &format!("there is no option 'sized'; {there_are}")),
            ("Secret1=1", &format!("there is no option of that name; {there_are}")),
            ("secret", &format!("an option has no value: write NAME=VALUE; {there_are}")),
        ] {
            assert_eq!(refused(query), Err(problem.to_owned()), "{query}");
        }
    }
}
