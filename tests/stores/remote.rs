//! The HTTP face and its client, where they refuse. What they agree on is in the store's conformance suite.

use async_trait::async_trait;
use futures::TryStreamExt;
use hotcount::http_api;
use hotcount::http_api::client::Client;
use hotcount::read::reader;
use hotcount::store::memory::Memory;
use hotcount::store::{
    Audit, Counts, Depth, ErrorClass, Listing, PageSize, QuarantinePage, Repair, Repaired, StoreError, StoredFault,
    Tally, Undecidable,
};
use std::sync::Arc;
use tokio::net::TcpListener;

#[tokio::test]
async fn what_is_not_understood_is_refused_with_a_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let routes = http_api::routes(Arc::new(Memory::default()), &hotcount::engine::pipeline::Config::default().held());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    for (path, sentence) in [
        ("/v1/posts?limit=0", "limit is a number from 1 to 1000"),
        ("/v1/posts?limit=1001", "limit is a number from 1 to 1000"),
        ("/v1/posts?listing=all", "listing"),
        ("/v1/quarantine?limit=26", "limit is a number from 1 to 25"),
        ("/v1/counts/%FF", "UTF-8"),
        ("/v1/counts/p?verify=perhaps", "verify"),
    ] {
        let answer = reqwest::get(format!("{base}{path}")).await.expect("an answer");
        assert_eq!(answer.status(), 400, "{path}");
        let problem: http_api::Problem = answer.json().await.expect("a problem");
        assert!(problem.error.contains(sentence), "{path}: {}", problem.error);
    }
    server.abort();
}

#[tokio::test]
async fn a_worker_that_is_not_there_is_an_error_that_says_what_to_check() {
    // Bound and dropped: nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let remote = Client::connect(&format!("http://{address}")).expect("a client");
    let error = remote.tally("p", Depth::Shards).await.expect_err("nobody answers");
    assert_eq!(error.class, ErrorClass::Unknown);
    assert!(error.message.contains("is it running, and is that its address?"), "{error}");
}

/// A store of which one post and one entry cannot be read, and one post is of a newer version.
struct Spoiled(Memory);

impl Spoiled {
    fn fault(post: &str) -> Result<(), StoreError> {
        let fault = match post {
            "spoiled" => StoredFault::Unreadable("its field 'count' is missing".to_owned()),
            "newer" => StoredFault::Newer(7),
            _ => return Ok(()),
        };
        let of_shard = |n| Undecidable { place: 0, document: format!("posts/{post}/{n}"), fault: fault.clone() };
        Err(StoreError::undecidable(vec![of_shard(1), of_shard(2)]))
    }
}

#[async_trait]
impl Counts for Spoiled {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        Self::fault(post)?;
        self.0.tally(post, depth).await
    }

    async fn posts(&self, _: Listing, after: Option<&str>, _: usize) -> Result<Vec<String>, StoreError> {
        let all = ["healthy", "newer", "spoiled", "well"].map(str::to_owned);
        Ok(all.into_iter().filter(|post| after.is_none_or(|after| post.as_str() > after)).collect())
    }

    async fn quarantined(&self, after: Option<&str>, _: PageSize) -> Result<QuarantinePage, StoreError> {
        let unreadable = [
            ("a".to_owned(), StoredFault::Unreadable("its part 2 is missing".to_owned())),
            ("b".to_owned(), StoredFault::Newer(7)),
        ];
        Ok(match after {
            None => QuarantinePage { entries: vec![], unreadable: unreadable.into(), next: Some("b".to_owned()) },
            Some(_) => QuarantinePage::default(),
        })
    }
}

#[async_trait]
impl Repair for Spoiled {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        Self::fault(post)?;
        self.0.audit(post).await
    }

    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.0.repair(post, seen).await
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_the_same_through_a_worker_and_keeps_no_other_post_from_being_verified() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let store = Arc::new(Spoiled(Memory::default()));
    let routes = http_api::routes(store.clone(), &hotcount::engine::pipeline::Config::default().held());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let remote = Arc::new(Client::connect(&base).expect("a client"));
    for post in ["spoiled", "newer"] {
        let answers = [
            remote.tally(post, Depth::ShardsAndMembers).await.expect_err("it cannot be read"),
            remote.audit(post).await.expect_err("it cannot be read"),
            remote.repair(post, &Audit::default()).await.expect_err("it cannot be read"),
        ];
        let here = Spoiled::fault(post).expect_err("it cannot be read");
        for there in answers {
            assert_eq!((&there.class, &there.message), (&here.class, &here.message));
        }
        let answer = reqwest::get(format!("{base}/v1/counts/{post}")).await.expect("an answer");
        assert_eq!(answer.status(), 500, "asking again does not help");
    }
    let here = store.quarantined(None, PageSize::entries(5)).await.expect("a page");
    let there = remote.quarantined(None, PageSize::entries(5)).await.expect("a page");
    assert_eq!((&there.unreadable, &there.next), (&here.unreadable, &here.next));
    let local: Arc<dyn Counts> = store;
    for counts in [local, remote] {
        for rows in [
            reader::verify(counts.clone(), Listing::Shards).try_collect::<Vec<_>>().await,
            reader::verify_deep(counts).try_collect().await,
        ] {
            let rows = rows.expect("the others can be read");
            let read: Vec<_> = rows.iter().map(|row| (row.post.as_str(), row.tally.is_ok())).collect();
            assert_eq!(read[..4], [("healthy", true), ("newer", false), ("spoiled", false), ("well", true)]);
        }
    }
    server.abort();
}
