//! The store of a running worker over HTTP, for reading and repairing: what `--store http://ADDR` names.
//!
//! The embedded store belongs to one process, so `count`, `verify` and `quarantine list` ask that process. The routes and
//! the JSON are in [`crate::http_api`].

mod backup;

use super::{
    MAX_POSTS, MAX_QUARANTINED, PostCount, PostPage, PostState, Problem, RepairOrder, count_path, listing_name,
    repair_path,
};
use crate::common::adapter_url::{AdapterUrl, Worker};
use crate::store::{
    Audit, Backup, ConnectError, Counts, Depth, ErrorClass, Listing, PageSize, QuarantinePage, Repair, Repaired,
    StoreError, Tally,
};
use async_trait::async_trait;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use std::time::Duration;
use url::Url;

/// How long connecting may take: the worker is near, or it is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take: a post with many millions of members is counted one by one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A running worker.
pub struct Client {
    client: reqwest::Client,
    worker: Worker,
}

impl Client {
    /// The worker at `http://ADDR`. It is not asked anything yet.
    ///
    /// # Errors
    /// When the URL is not `http://ADDR`, or no client can be made.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        let worker = AdapterUrl::parse(url)?.worker()?;
        let client = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT).build();
        let client = client
            .map_err(|error| ConnectError::Unavailable { url: worker.to_string(), problem: error.to_string() })?;
        Ok(Self { client, worker })
    }

    /// How the worker is called in sentences.
    fn name(&self) -> String {
        format!("the worker at {}", self.worker)
    }

    fn url(&self, path: &str) -> Result<Url, StoreError> {
        self.worker.route(path).map_err(|error| {
            let problem = format!("{} cannot be asked for {path} ({error})", self.name());
            StoreError::new(ErrorClass::Fatal, problem)
        })
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, StoreError> {
        request.send().await.map_err(|error| {
            let problem = format!("{} does not answer: is it running, and is that its address?", self.name());
            StoreError::caused(ErrorClass::Unknown, problem, error)
        })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, StoreError> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let answer = self.send(self.client.get(url)).await?;
        if answer.status() != StatusCode::OK {
            return Err(self.refusal(answer).await);
        }
        answer.json().await.map_err(|error| {
            let problem = format!("{} gave an answer that is not understood: is it a hotcount?", self.name());
            StoreError::caused(ErrorClass::Fatal, problem, error)
        })
    }

    /// An answer that is none.
    async fn refusal(&self, answer: Response) -> StoreError {
        let status = answer.status();
        let class = if status.is_server_error() { ErrorClass::Unknown } else { ErrorClass::Fatal };
        // Whoever is no hotcount has no sentence for us.
        let problem = answer.json::<Problem>().await.unwrap_or_else(|_| Problem::new(status.to_string()));
        let other = StoreError::new(class, format!("{} answered: {}", self.name(), problem.error));
        problem.undecidable().unwrap_or(other)
    }
}

#[async_trait]
impl Counts for Client {
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

    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        let (entries, bytes) = (size.entries.clamp(1, MAX_QUARANTINED).to_string(), size.bytes.to_string());
        let mut query = vec![("limit", entries.as_str()), ("bytes", bytes.as_str())];
        query.extend(after.map(|after| ("after", after)));
        let page: super::QuarantinePage = self.get("/v1/quarantine", &query).await?;
        page.read().map_err(|error| StoreError::caused(ErrorClass::Fatal, error.to_string(), error))
    }

    async fn backup(&self) -> Result<Backup, StoreError> {
        self.copy().await
    }
}

#[async_trait]
impl Repair for Client {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        Ok(self.get::<PostState>(&repair_path(post), &[]).await?.audit())
    }

    /// The worker reads the counts again itself: it believes nobody but its own store.
    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        let order = RepairOrder { version: seen.version.clone() };
        let answer = self.send(self.client.post(self.url(&repair_path(post))?).json(&order)).await?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(Repaired::Done),
            StatusCode::CONFLICT => Ok(Repaired::Conflict),
            _ => Err(self.refusal(answer).await),
        }
    }
}
