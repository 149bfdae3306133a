//! The one table from a URL to an adapter. Adding an adapter adds its folder and one line here.

use crate::common::adapter_url::{AdapterUrl, scheme, shown};
#[cfg(feature = "http")]
use crate::http_api::client::Client;
#[cfg(feature = "http")]
use crate::source::in_flight::InFlight;
use crate::source::{self, Source};
use crate::store::{self, Access, Counts, Options, Repair, Store};
use std::sync::Arc;

/// Opens the source that `url` names.
///
/// # Errors
/// When no adapter has the scheme, the URL is not understood, or the source does not open.
pub async fn source(url: &str) -> Result<Arc<dyn Source>, source::ConnectError> {
    match scheme(url).as_str() {
        #[cfg(feature = "http")]
        "http" => Ok(Arc::new(source::http::Http::connect(url)?)),
        #[cfg(feature = "pubsub")]
        "pubsub" => Ok(Arc::new(source::pubsub::PubSub::connect(url).await?)),
        other => Err(source::ConnectError::UnknownScheme(other.to_owned())),
    }
}

/// Opens the source that `url` names, with the HTTP routes that feed it; a source that pulls has none. What requests hold
/// counts in `held`.
///
/// # Errors
/// As [`source()`].
#[cfg(feature = "http")]
pub async fn source_with_routes(
    url: &str,
    held: &Arc<InFlight>,
) -> Result<(Arc<dyn Source>, axum::Router), source::ConnectError> {
    if scheme(url) != "http" {
        return Ok((self::source(url).await?, axum::Router::new()));
    }
    let http = Arc::new(source::http::Http::connect(url)?);
    let routes = http.routes(held);
    Ok((http, routes))
}

/// Opens the store that `url` names, for writing.
///
/// # Errors
/// When no adapter has the scheme, the URL is not understood, or the store does not open.
pub async fn store(url: &str, options: &Options) -> Result<Arc<dyn Store>, store::ConnectError> {
    match scheme(url).as_str() {
        #[cfg(feature = "firestore")]
        "firestore" => Ok(Arc::new(store::firestore::Firestore::connect(url, options).await?)),
        #[cfg(feature = "embedded")]
        "embedded" => store::embedded::Embedded::connect(url, options).await,
        "memory" if options.access != Access::Create => Err(store::ConnectError::Unavailable {
            url: shown(url),
            problem: "it is empty in every new process, so there is nothing to read: name the store that a worker writes, or \
                      http://ADDR of a worker that runs"
                .to_owned(),
        }),
        "memory" => Ok(Arc::new(store::memory::Memory::connect(&AdapterUrl::parse(url)?)?)),
        other => Err(store::ConnectError::UnknownScheme(other.to_owned(), "")),
    }
}

/// Opens it for reading alone, where `http://ADDR` names a running worker.
///
/// # Errors
/// As [`store()`].
pub async fn counts(url: &str, options: &Options) -> Result<Arc<dyn Counts>, store::ConnectError> {
    Ok(repair(url, options).await?)
}

/// Opens it for reading and repairing, where `http://ADDR` names a running worker.
///
/// # Errors
/// As [`store()`].
pub async fn repair(url: &str, options: &Options) -> Result<Arc<dyn Repair>, store::ConnectError> {
    match scheme(url).as_str() {
        #[cfg(feature = "http")]
        "http" => Ok(Arc::new(Client::connect(url)?)),
        _ => match store(url, options).await {
            Ok(store) => Ok(store),
            Err(store::ConnectError::UnknownScheme(s, _)) => {
                Err(store::ConnectError::UnknownScheme(s, ", or http://ADDR of a running worker"))
            }
            Err(other) => Err(other),
        },
    }
}
