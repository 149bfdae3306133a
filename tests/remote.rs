//! The HTTP face and its client, where they refuse. What they agree on is in the store's conformance suite.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot set up its parts fails")]
#![cfg(feature = "http")]

use hotcount::face;
use hotcount::store::memory::Memory;
use hotcount::store::remote::Remote;
use hotcount::store::{Counts, Depth, ErrorClass};
use std::sync::Arc;
use tokio::net::TcpListener;

#[tokio::test]
async fn what_is_not_understood_is_refused_with_a_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let routes = face::routes(Arc::new(Memory::default()), &hotcount::pipeline::Config::default().held());
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
        let problem: face::Problem = answer.json().await.expect("a problem");
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
    let remote = Remote::connect(&format!("http://{address}")).expect("a client");
    let error = remote.tally("p", Depth::Shards).await.expect_err("nobody answers");
    assert_eq!(error.class, ErrorClass::Unknown);
    assert!(error.message.contains("is it running, with --http?"), "{error}");
}
