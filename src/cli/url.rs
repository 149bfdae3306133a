//! URLs of stores, sources and targets as flags.

use hotcount::common::adapter_url;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A URL as typed. Printed, it is what may be shown: without passwords and values of options.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url(String);

impl Url {
    /// The whole of it, for the adapter alone.
    pub(crate) fn typed(&self) -> &str {
        &self.0
    }

    pub(crate) fn scheme(&self) -> String {
        adapter_url::scheme(&self.0)
    }
}

/// Any text: the adapter says what is wrong, for an error of the command line would show it whole.
impl FromStr for Url {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&adapter_url::shown(&self.0))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
