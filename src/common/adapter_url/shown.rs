//! URLs as they may be shown to anybody.

/// What stands where something is kept back.
const KEPT_BACK: &str = "…";

/// The scheme whose place is a path, in which an `@` is usual.
const PATH_SCHEME: &str = "embedded:";

/// The URL without what could be a secret: the values of its options, and what stands before an `@`. A path in which
/// nothing looks like a password stays as it is, so that a file can be found by it.
#[must_use]
pub fn shown(url: &str) -> String {
    let scheme = super::scheme_end(url).map_or("", |colon| &url[..=colon]);
    let rest = &url[scheme.len()..];
    let (slashes, rest) = rest.strip_prefix("//").map_or(("", rest), |rest| ("//", rest));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = slashes.is_empty() && (scheme.eq_ignore_ascii_case(PATH_SCHEME) || url.starts_with(['/', '.']));
    let place = match last_at(place) {
        // As far as anybody can tell, a password with a '?' in it.
        _ if last_at(query).is_some() => KEPT_BACK.to_owned(),
        Some((before, after)) if !path || has_colon(&place[..before]) => {
            format!("{KEPT_BACK}@{}", visible(&place[after..], path))
        }
        _ => visible(place, path).to_owned(),
    };
    let query = if query.is_empty() { String::new() } else { format!("?{KEPT_BACK}") };
    format!("{scheme}{slashes}{place}{query}")
}

fn has_colon(text: &str) -> bool {
    text.contains(':') || text.contains("%3A") || text.contains("%3a")
}

/// Where the last `@` begins and ends, plain or encoded.
fn last_at(text: &str) -> Option<(usize, usize)> {
    let plain = text.rfind('@').map(|at| (at, at + 1));
    let encoded = text.rfind("%40").map(|at| (at, at + 3));
    plain.max(encoded)
}

/// No name of a host, a project or a subscription has one of these: what follows them was meant as an option.
fn visible(place: &str, path: bool) -> &str {
    if path {
        return place;
    }
    place.split(['#', '&', ';', '=']).next().unwrap_or_default()
}

/// A sentence in which every `SCHEME://USER:PASSWORD@HOST` has lost what stands before the `@`: for sentences that come
/// from elsewhere.
#[must_use]
pub fn without_passwords(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains("://") || !text.contains('@') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "'\"<>`)".contains(c)).unwrap_or(after.len());
        let url = &after[..end];
        match url.rfind('@') {
            Some(at) => {
                out.push_str(KEPT_BACK);
                out.push_str(&url[at..]);
            }
            None => out.push_str(url),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_could_be_a_secret_is_shown() {
        for (url, expected) in [
            ("pubsub://demo/likes", "pubsub://demo/likes"),
            ("pubsub://user:secret@demo/likes", "pubsub://…@demo/likes"),
            ("pubsub://secret@demo/likes", "pubsub://…@demo/likes"),
            ("pubsub://user:sec/ret@demo/likes", "pubsub://…@demo/likes"),
            ("pubsub://user:sec@ret@demo/likes", "pubsub://…@demo/likes"),
            ("pubsub://user:secret%40demo/likes", "pubsub://…@demo/likes"),
            ("pubsub://user:sec?ret@demo/likes", "pubsub://…?…"),
            ("pubsub://demo/likes?token=secret", "pubsub://demo/likes?…"),
            ("pubsub://demo/likes&token=secret", "pubsub://demo/likes"),
            ("pubsub:user:secret@demo", "pubsub:…@demo"),
            ("http:secret@host", "http:…@host"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("user:secret@host", "user:…@host"),
            ("secret@host", "…@host"),
            ("embedded:/home/somebody@example.com/data", "embedded:/home/somebody@example.com/data"),
            ("embedded:user:secret@host", "embedded:…@host"),
            ("embedded:/day=1/a&b?memory_mib=1", "embedded:/day=1/a&b?…"),
            ("./me@home/data", "./me@home/data"),
            ("//me:secret@home", "//…@home"),
            ("", ""),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
    }

    #[test]
    fn a_sentence_from_elsewhere_loses_its_passwords() {
        for (text, expected) in [
            ("nothing to hide: a@b.c", "nothing to hide: a@b.c"),
            ("cannot reach http://user:secret@host:1/a?b (refused)", "cannot reach http://…@host:1/a?b (refused)"),
            ("'http://u:s@a' and \"x://t@b\"", "'http://…@a' and \"x://…@b\""),
            ("http://host mail to a@b.c", "http://host mail to a@b.c"),
        ] {
            assert_eq!(without_passwords(text), expected);
        }
    }
}
