//! Reading the store of a running worker over HTTP: what `--store http://ADDR` names.
//!
//! The embedded store belongs to one process, so `count`, `verify` and `quarantine list` ask that process. The routes and
//! the JSON are in [`crate::face`].

use super::{ConnectError, Counts, Depth, ErrorClass, Listing, Quarantined, StoreError, Tally};
use crate::face::{MAX_POSTS, MAX_QUARANTINED, PostCount, PostPage, Problem, QuarantinePage, count_path, listing_name};
use async_trait::async_trait;
use reqwest::{Client, StatusCode};
use serde::de::DeserializeOwned;
use std::time::Duration;
use url::Url;

/// How long connecting may take: the worker is near, or it is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take: a post with many millions of members is counted one by one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A running worker.
pub struct Remote {
    client: Client,
    base: Url,
}

impl Remote {
    /// The worker at `http://ADDR`. It is not asked anything yet.
    ///
    /// # Errors
    /// When the URL is not `http://ADDR`, or no client can be made.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        let bad = |problem: String| ConnectError::BadUrl { url: url.to_owned(), problem };
        let base = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        let bare = base.path() == "/" && base.query().is_none() && base.fragment().is_none();
        if base.scheme() != "http" || !base.has_host() || !bare {
            return Err(bad("write http://ADDR, the address that the worker was given with --http".to_owned()));
        }
        let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT).build();
        let client =
            client.map_err(|error| ConnectError::Unavailable { url: url.to_owned(), problem: error.to_string() })?;
        Ok(Self { client, base })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, StoreError> {
        let base = self.base.as_str().trim_end_matches('/');
        let failed = |class, problem: String| StoreError::new(class, format!("the worker at {base} {problem}"));
        let mut url = Url::parse(&format!("{base}{path}"))
            .map_err(|error| failed(ErrorClass::CannotWork, format!("cannot be asked for {path} ({error})")))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let answer = self.client.get(url).send().await.map_err(|error| {
            let problem = format!("the worker at {base} does not answer: is it running, with --http?");
            StoreError::caused(ErrorClass::Unknown, problem, error)
        })?;
        let status = answer.status();
        if status == StatusCode::OK {
            return answer.json().await.map_err(|error| {
                let problem = format!("the worker at {base} gave an answer that is not understood: is it a hotcount?");
                StoreError::caused(ErrorClass::CannotWork, problem, error)
            });
        }
        let class = if status.is_server_error() { ErrorClass::Unknown } else { ErrorClass::CannotWork };
        // Whoever is no hotcount has no sentence for us.
        let problem = answer.json::<Problem>().await.map_or_else(|_| status.to_string(), |problem| problem.error);
        Err(failed(class, format!("answered: {problem}")))
    }
}

#[async_trait]
impl Counts for Remote {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        let query: &[_] = match depth {
            Depth::Shards => &[],
            Depth::ShardsAndMembers => &[("verify", "true")],
        };
        Ok(self.get::<PostCount>(&count_path(post), query).await?.tally())
    }

    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut posts: Vec<String> = Vec::new();
        // A page there may be shorter than one here.
        while posts.len() < limit {
            let wanted = (limit - posts.len()).min(MAX_POSTS);
            let number = wanted.to_string();
            let mut query = vec![("listing", listing_name(listing)), ("limit", number.as_str())];
            query.extend(posts.last().map(String::as_str).or(after).map(|after| ("after", after)));
            let mut page: PostPage = self.get("/v1/posts", &query).await?;
            let last = page.posts.len() < wanted;
            posts.append(&mut page.posts);
            if last {
                break;
            }
        }
        Ok(posts)
    }

    async fn quarantined(&self, after: Option<&str>, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        let mut entries: Vec<Quarantined> = Vec::new();
        while entries.len() < limit {
            let wanted = (limit - entries.len()).min(MAX_QUARANTINED);
            let number = wanted.to_string();
            let mut query = vec![("limit", number.as_str())];
            query.extend(entries.last().map(|entry| entry.id.as_str()).or(after).map(|after| ("after", after)));
            let page: QuarantinePage = self.get("/v1/quarantine", &query).await?;
            let last = page.entries.len() < wanted;
            for entry in page.entries {
                let entry = Quarantined::try_from(entry);
                entries.push(entry.map_err(|e| StoreError::caused(ErrorClass::CannotWork, e.to_string(), e))?);
            }
            if last {
                break;
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_address_names_a_worker() {
        assert!(Remote::connect("http://127.0.0.1:8080").is_ok());
        assert!(Remote::connect("http://localhost:8080/").is_ok());
        for url in ["http:", "https://localhost", "http://localhost/v1", "http://localhost?x=1"] {
            let error = Remote::connect(url).err().expect(url).to_string();
            assert!(error.contains(url), "{error}");
        }
    }
}
