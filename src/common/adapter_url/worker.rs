//! The address of a running worker.

use std::fmt;
use url::{ParseError, Url};

/// A worker's `http://ADDR`. A user and a password in it go to whatever stands before the worker, and are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Worker(Url);

impl Worker {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if url.scheme() != "http" || !url.has_host() || !bare {
            return Err("write http://ADDR, the address that the worker was given with --http".to_owned());
        }
        Ok(Self(url))
    }

    /// One of its routes.
    ///
    /// # Errors
    /// When `path` is none.
    pub fn route(&self, path: &str) -> Result<Url, ParseError> {
        Url::parse(&format!("{}{path}", self.0.as_str().trim_end_matches('/')))
    }
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0.host_str().unwrap_or_default())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use crate::common::adapter_url::AdapterUrl;

    #[test]
    fn only_a_bare_address_names_a_worker_and_its_password_is_not_shown() {
        let worker = |url: &str| AdapterUrl::parse(url).and_then(|url| url.worker());
        for (url, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://localhost/", "http://localhost"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("http://user:secret@localhost:8080", "http://localhost:8080"),
        ] {
            let worker = worker(url).expect(url);
            assert_eq!((worker.to_string(), format!("{worker:?}")), (shown.to_owned(), shown.to_owned()));
        }
        let asked = worker("http://user:secret@localhost:8080").expect("an address").route("/readyz").expect("a route");
        assert_eq!(asked.as_str(), "http://user:secret@localhost:8080/readyz");
        for url in
            ["http:", "https://localhost", "http://localhost/v1", "http://localhost?x=1", "http://user:secret@h/v1"]
        {
            let error = worker(url).expect_err(url).to_string();
            assert!(!error.contains("secret") && error.len() > 20, "{error}");
        }
    }
}
