//! The one reading of adapter URLs, `SCHEME:PLACE[?OPTION=VALUE&…]`, for stores, sources and targets alike.
//!
//! Everything may be percent-encoded, and a plain `%` or, in a place, a plain `?` has to be; `+` is a plus. An option that
//! the adapter does not know, or one that is given twice, is refused. What a URL may keep secret is never shown: no error
//! and no `Debug` of this module has the value of an option, or what stands before an `@`.

mod options;
mod shown;
mod worker;

pub use options::{Known, Options};
pub use shown::{shown, without_passwords};
pub use worker::Worker;

use std::fmt;

/// A URL that is not understood. It holds nothing that has to stay secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the URL '{url}' is not understood: {problem}")]
pub struct UrlError {
    /// The URL as it may be shown, see [`shown()`].
    pub url: String,
    /// What is wrong with it, and what to write instead.
    pub problem: String,
}

/// A URL in its parts.
#[derive(Clone, PartialEq, Eq)]
pub struct AdapterUrl {
    text: String,
    /// Where the colon after the scheme is.
    colon: usize,
}

impl AdapterUrl {
    /// Finds the scheme; the rest is read by what is asked for.
    ///
    /// # Errors
    /// When it begins with no scheme.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        match scheme_end(text) {
            Some(colon) => Ok(Self { text: text.to_owned(), colon }),
            None => Err(refusal(text, "it begins with no scheme, such as embedded: or pubsub:")),
        }
    }

    /// What stands before the first colon, in lower case.
    #[must_use]
    pub fn scheme(&self) -> String {
        self.text[..self.colon].to_ascii_lowercase()
    }

    /// Says that this URL is not understood.
    pub fn refused(&self, problem: impl Into<String>) -> UrlError {
        refusal(&self.text, problem)
    }

    /// Checks that nothing stands between the scheme and the options.
    ///
    /// # Errors
    /// When something does; `expected` says what to write.
    pub fn placeless(&self, expected: &str) -> Result<(), UrlError> {
        if self.place().is_empty() { Ok(()) } else { Err(self.refused(expected)) }
    }

    /// The path in `SCHEME:PATH`, decoded. Three slashes mean one, as in `file:///tmp`.
    ///
    /// # Errors
    /// When there is none, two slashes make a host of its first part, or it is not decoded.
    pub fn path(&self) -> Result<String, UrlError> {
        let scheme = self.scheme();
        let place = self.place();
        let place = match place.strip_prefix("//") {
            Some(rest) if rest.starts_with('/') => rest,
            Some(_) => {
                return Err(self.refused(format!(
                    "two slashes begin the name of a host: write {scheme}:PATH, or {scheme}:/PATH from the root"
                )));
            }
            None => place,
        };
        if place.is_empty() {
            return Err(self.refused(format!("it has no path: write {scheme}:PATH")));
        }
        self.decoded(place)
    }

    /// The names in `SCHEME://NAME/NAME/…`, each decoded; an encoded slash is part of a name.
    ///
    /// # Errors
    /// When there are no two slashes, or a name is not decoded; `expected` says what to write.
    pub fn names(&self, expected: &str) -> Result<Vec<String>, UrlError> {
        let place = self.place().strip_prefix("//").ok_or_else(|| self.refused(expected))?;
        place.split('/').map(|name| self.decoded(name)).collect()
    }

    /// The options, each of them `known` and given once.
    ///
    /// # Errors
    /// When one is unknown, given twice, has no value or is not decoded.
    pub fn options(&self, known: &'static [Known]) -> Result<Options<'_>, UrlError> {
        Options::of(self, known)
    }

    /// The worker in `http://ADDR`, where ADDR is what it was given with `--http`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn worker(&self) -> Result<Worker, UrlError> {
        Worker::parse(&self.text).map_err(|problem| self.refused(problem))
    }

    fn place(&self) -> &str {
        let rest = &self.text[self.colon + 1..];
        rest.split_once('?').map_or(rest, |(place, _)| place)
    }

    fn query(&self) -> &str {
        self.text.split_once('?').map_or("", |(_, query)| query)
    }

    fn decoded(&self, text: &str) -> Result<String, UrlError> {
        decode(text).map_err(|problem| self.refused(problem))
    }
}

impl fmt::Debug for AdapterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.text))
    }
}

/// The scheme of a URL in lower case; for a text without one the text as it may be shown.
#[must_use]
pub fn scheme(text: &str) -> String {
    AdapterUrl::parse(text).map_or_else(|_| shown(text), |url| url.scheme())
}

/// The `HOST:PORT` of an emulator, as its variable in the environment has it; `None` where the variable is not set or is
/// empty. An emulator asks for no password, so one that stands there is left out.
#[must_use]
pub fn emulator_of(variable: Option<String>) -> Option<String> {
    let host = variable?;
    let host = match host.rsplit_once('@') {
        Some((before, host)) if before.starts_with("https://") => format!("https://{host}"),
        Some((_, host)) => host.to_owned(),
        None => host,
    };
    (!host.is_empty()).then_some(host)
}

fn refusal(text: &str, problem: impl Into<String>) -> UrlError {
    UrlError { url: shown(text), problem: problem.into() }
}

/// Where the colon after a scheme is.
fn scheme_end(text: &str) -> Option<usize> {
    let colon = text.find(':')?;
    let legal = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let scheme = &text[..colon];
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(legal)).then_some(colon)
}

/// The text with its `%41` turned into `A`.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            // Two hexadecimal digits fit in a byte.
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err("a '%' needs two hexadecimal digits after it: write a plain % as %25".to_owned()),
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) if text.contains('\0') => Err("no name has a NUL in it (%00)".to_owned()),
        Ok(text) => Ok(text),
        Err(_) => Err("what it encodes with '%' is not UTF-8".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> AdapterUrl {
        AdapterUrl::parse(text).expect(text)
    }

    #[test]
    fn a_path_is_decoded_and_a_plain_percent_sign_is_refused_with_what_to_write() {
        for (text, path) in [
            ("embedded:./data", "./data"),
            ("embedded:/a/my%20data", "/a/my data"),
            ("embedded:/a/my data", "/a/my data"),
            ("embedded:/a/100%25", "/a/100%"),
            ("embedded:/a/what%3f?memory_mib=1", "/a/what?"),
            ("embedded:/a+b/%C3%A9", "/a+b/é"),
            ("embedded:///a", "/a"),
            ("EMBEDDED:C:data", "C:data"),
        ] {
            assert_eq!(url(text).path().expect(text), path);
        }
        for (text, problem) in [
            ("embedded:", "no path"),
            ("embedded:?memory_mib=1", "no path"),
            ("embedded://data/likes", "embedded:/PATH"),
            ("embedded:/a/100%", "%25"),
            ("embedded:/a/100%/b", "%25"),
            ("embedded:/a/%2", "%25"),
            ("embedded:/a/%é1", "%25"),
            ("embedded:/a/%FF", "UTF-8"),
            ("embedded:/a%00", "NUL"),
        ] {
            let error = url(text).path().expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn names_are_decoded_one_by_one() {
        let names = |text| url(text).names("write x://NAME").map_err(|error| error.problem);
        assert_eq!(names("x://a/b%2Fc?d=e"), Ok(vec!["a".to_owned(), "b/c".to_owned()]));
        assert_eq!(names("x:a"), Err("write x://NAME".to_owned()));
        assert!(names("x://%").is_err());
    }

    #[test]
    fn what_begins_with_no_scheme_is_no_url() {
        for text in ["", "data", ":", "./a:b", "1:2", "a b:c"] {
            assert!(AdapterUrl::parse(text).is_err(), "{text}");
        }
        assert_eq!(scheme("PubSub://demo"), "pubsub");
        assert_eq!(scheme("./data"), "./data");
        assert_eq!(scheme("secret@host"), "…@host");
    }

    #[test]
    fn an_emulators_variable_loses_its_password() {
        let emulator = |text: &str| emulator_of(Some(text.to_owned()));
        assert_eq!(emulator("127.0.0.1:9").as_deref(), Some("127.0.0.1:9"));
        assert_eq!(emulator("http://user:secret@host:9").as_deref(), Some("host:9"));
        assert_eq!(emulator("https://user:secret@host:9").as_deref(), Some("https://host:9"));
        assert_eq!(emulator(""), None);
    }
}
