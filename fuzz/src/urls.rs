//! The URLs of sources and stores, as somebody types them.

#[allow(dead_code, reason = "the store reads fields that no property is about")]
#[path = "../../src/store/embedded/config.rs"]
mod embedded;

use hotcount::source::http::Http;
use hotcount::source::pubsub::Options;
use hotcount::store;
use hotcount::store::firestore::Address;
use hotcount::store::remote::Remote;
use std::error::Error;
use std::fmt::Write;

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
    // A client is made for every URL that is right, which takes long.
    if !url.starts_with("http://")
        && let Err(error) = Remote::connect(url)
    {
        says_why(&error, url);
    }
}

fn says_why(error: &dyn Error, url: &str) {
    let text = error.to_string();
    assert!(text.contains(url) && text.len() > url.len() + 10, "{text}");
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
    let mut query = url::form_urlencoded::Serializer::for_suffix(again.clone(), options.name().len() + 1);
    query.extend_pairs(options.emulator.as_deref().map(|host| ("emulator", host)));
    query.extend_pairs(options.topic.as_deref().map(|topic| ("topic", topic)));
    query.extend_pairs(options.exactly_once.map(|once| ("exactly_once", if once { "true" } else { "false" })));
    again = query.finish();
    assert_eq!(Options::parse(&again).expect(&again), options);
}

/// Every document stands where the layout says, whatever names a URL has; and no error repeats a password.
fn firestore(url: &str, consumer: &str) {
    let address = match Address::parse(url, consumer, None) {
        Ok(address) => address,
        Err(error) => {
            let text = error.to_string();
            for secret in secrets_in(url) {
                assert!(!text.contains(secret), "a password is repeated: {text}");
            }
            return assert!(text.len() > 20, "{text}");
        }
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

/// What stands before each '@', as far as it could be a password: long enough that nothing else has it by chance.
fn secrets_in(url: &str) -> impl Iterator<Item = &str> {
    let marks = url.match_indices('@').chain(url.match_indices("%40"));
    let before = marks.map(|(at, _)| &url[..at]);
    before.filter_map(|text| text.rsplit(['/', '?', '&', '=', ':', '@']).next()).filter(|secret| secret.len() >= 12)
}

/// Whatever is typed, memory stays within what a table can address.
fn embedded(url: &str) {
    match embedded::Config::parse(url, &store::Options { consumer: "c".to_owned(), ..store::Options::default() }) {
        Ok((path, config)) => {
            assert!(!path.as_os_str().is_empty());
            assert!((1..=1 << 30).contains(&config.generation_bytes), "{config:?}");
            assert!(config.cache_bytes <= 1 << 30 && config.filter_bytes <= 1 << 30, "{config:?}");
        }
        Err(problem) => assert!(problem.len() > 10),
    }
}
