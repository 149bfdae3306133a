//! The URLs of sources and stores, as somebody types them.

#[allow(dead_code, reason = "the store reads fields that no property is about")]
#[path = "../../src/store/embedded/config.rs"]
mod embedded;

use hotcount::common::adapter_url::{AdapterUrl, UrlError, shown};
use hotcount::source::http::Http;
use hotcount::source::pubsub::Options;
use hotcount::store;
use hotcount::store::firestore::Address;
use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;

/// A line with a URL, and one with a consumer's name.
pub fn urls(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (url, consumer) = text.split_once('\n').unwrap_or((text, "like-counter"));
    pubsub(url);
    firestore(url, consumer);
    embedded(url);
    if let Err(error) = Http::connect(url) {
        says_why(&error, url);
    }
    worker(url);
    for url in with_secrets(url) {
        let said = whatever_is_said_about(&url, consumer);
        assert!(!said.contains(SECRET), "{url} is shown in: {said}");
    }
}

fn says_why(error: &dyn Error, url: &str) {
    let (text, shown) = (error.to_string(), shown(url));
    assert!(text.contains(&shown) && text.len() > shown.len() + 10, "{text}");
}

/// What no error, name or `Debug` may have.
const SECRET: &str = "hunter2";

/// The URL with a password wherever somebody may write one.
fn with_secrets(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once(':').unwrap_or(("pubsub", url));
    let rest = rest.trim_start_matches('/');
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut urls = vec![
        format!("{scheme}://user:{SECRET}@{rest}"),
        format!("{scheme}://{SECRET}@{rest}"),
        format!("{scheme}:user:{SECRET}@{rest}"),
        format!("{scheme}://user:{SECRET}%40{rest}"),
        format!("{scheme}://user:a/{SECRET}@{rest}"),
        format!("{scheme}://user:a?{SECRET}@{rest}"),
        format!("{scheme}://{path}?user:{SECRET}@{query}"),
        format!("{scheme}://{path}?{query}&token={SECRET}"),
        format!("{scheme}://{path}?{query}&{SECRET}"),
    ];
    let options =
        ["streams", "emulator", "exactly_once", "deadline_s", "members_by", "batch_key_lifetime_s", "memory_mib"];
    urls.extend(options.map(|option| format!("{scheme}://{path}?{query}&{option}={SECRET}")));
    urls.extend(
        ["emulator", "topic", "prefix"].map(|option| format!("{scheme}://{path}?{option}=user:{SECRET}@host:1")),
    );
    urls
}

/// Every error about this URL, every name that it gives, and every way to print what was made of it.
fn whatever_is_said_about(url: &str, consumer: &str) -> String {
    let said = [
        Options::parse(url).map(|options| format!("{options:?} {}", options.name())).map_err(|error| told(&error)),
        Address::parse(url, consumer, None).map(|address| format!("{address:?}")).map_err(|error| told(&error)),
        embedded_config(url).map(|_| String::new()).map_err(|error| told(&error)),
        Http::connect(url).map(|_| String::new()).map_err(|error| told(&error)),
        AdapterUrl::parse(url)
            .and_then(|url| url.worker().map(|worker| format!("{url:?} {worker} {worker:?}")))
            .map_err(|error| told(&error)),
    ];
    said.map(|said| said.unwrap_or_else(|error| error)).join("\n")
}

fn told(error: &dyn Error) -> String {
    format!("{error} {error:?}")
}

/// A worker's routes are asked for where it is, and it is called by its host.
fn worker(url: &str) {
    match AdapterUrl::parse(url).and_then(|parsed| parsed.worker()) {
        Ok(worker) => {
            let route = worker.route("/v1/posts").expect("a route");
            assert_eq!(route.path(), "/v1/posts");
            let host = format!("{worker}/v1/posts");
            assert!(host == route.as_str() || route.as_str().contains('@'), "{host} {route}");
        }
        Err(error) => says_why(&error, url),
    }
}

/// Written out again with every option, a URL means the same; and its names are legal in the paths that they become.
fn pubsub(url: &str) {
    let options = match Options::parse(url) {
        Ok(options) => options,
        Err(error) => return says_why(&error, url),
    };
    assert!((1..=256).contains(&options.streams) && options.extension <= options.max_lease);
    assert_eq!(options.subscription_path().split('/').count(), 4, "{options:?}");
    let mut again = options.name();
    let _ = write!(
        again,
        "?streams={}&outstanding={}&extension_s={}&max_lease_s={}&idle_s={}",
        options.streams,
        options.outstanding,
        options.extension.as_secs(),
        options.max_lease.as_secs(),
        options.idle.as_secs()
    );
    let texts = [("emulator", options.emulator.as_deref()), ("topic", options.topic.as_deref())];
    for (name, value) in texts {
        let value = value.map(|value| value.replace('%', "%25"));
        let _ = value.map_or(Ok(()), |value| write!(again, "&{name}={value}"));
    }
    let _ = options.exactly_once.map_or(Ok(()), |once| write!(again, "&exactly_once={once}"));
    assert_eq!(Options::parse(&again).expect(&again), options);
}

/// Every document stands where the layout says, whatever names a URL has; and no error repeats a password.
fn firestore(url: &str, consumer: &str) {
    let address = match Address::parse(url, consumer, None) {
        Ok(address) => address,
        Err(error) => return says_why(&error, url),
    };
    let root = address.root();
    let below = |name: &str| name.strip_prefix(&root).expect("below the root").split('/').count() - 1;
    assert_eq!(root.split('/').count(), 5, "{root}");
    assert_eq!(below(&address.shard("post", "0")), 4);
    assert_eq!(below(&address.member("0")), 2);
    assert_eq!(below(&address.poison("0")), 2);
    assert_eq!(below(&address.nothing()), 2);
    for collection in [address.likes(), address.shards(), address.batches(), address.quarantine()] {
        assert!(!collection.starts_with("__") && collection.len() <= 1_500, "{collection}");
    }
    // All of a consumer's entries lie between these two, and no other consumer's do.
    assert!(address.poison_prefix() < address.poison_end());
    for other in ["0", "~"] {
        let entry = address.poison(other);
        assert!(entry > address.poison_prefix() && entry < address.poison_end());
    }
    if let Ok(twin) = Address::parse(url, &format!("{consumer}-2"), None) {
        let entry = twin.poison("0");
        assert!(entry < address.poison_prefix() || entry > address.poison_end(), "{entry}");
    }
}

/// Whatever is typed, memory stays within what a table can address.
fn embedded(url: &str) {
    match embedded_config(url) {
        Ok((path, config)) => {
            assert!(!path.as_os_str().is_empty());
            assert!((1..=1 << 30).contains(&config.generation_bytes), "{config:?}");
            assert!(config.cache_bytes <= 1 << 30, "{config:?}");
        }
        Err(error) => says_why(&error, url),
    }
}

fn embedded_config(url: &str) -> Result<(PathBuf, embedded::Config), UrlError> {
    embedded::Config::parse(url, &store::Options::default())
}
