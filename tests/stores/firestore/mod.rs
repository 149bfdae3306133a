//! The Firestore store on Google's emulator: one commit, every failure of it, and what it costs.

#[path = "../../../examples/support/application.rs"]
mod application;
mod commits;
mod cost;
mod faults;
mod kept;
mod layout;
mod outside;
mod repairs;
mod stored;
mod versions;

use self::faults::{Faults, When};
use crate::support::emulators::{firestore, unique};
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Got;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{BatchGetDocumentsRequest, CommitRequest, Document, Write};
use gcloud_sdk::tonic::Code;
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::firestore::rpc::{Grpc, Rpc};
use hotcount::store::firestore::{Address, Firestore, member_id};
use hotcount::store::{
    Applied, Attempt, ConnectError, Counts, Depth, ErrorClass, Listing, Options, Quarantined, Store, StoreError,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// A database of the test's own on the emulator.
struct Place {
    url: String,
}

impl Place {
    fn new(name: &str) -> Option<Self> {
        let host = firestore()?;
        Some(Self { url: format!("firestore://{}?emulator={host}", unique(name)) })
    }

    fn address(&self) -> Address {
        Address::parse(&self.url, "like-counter", None).expect("the URL is right")
    }

    async fn store(&self) -> Firestore {
        Firestore::connect(&self.url, &Options::default()).await.expect("the emulator is there")
    }

    async fn grpc(&self) -> Grpc {
        Grpc::connect(&self.address()).await.expect("the emulator is there")
    }

    /// A store whose calls pass through `Faults`.
    async fn faulty(&self) -> (Firestore, Arc<Faults>) {
        let faults = Arc::new(Faults::over(Arc::new(self.grpc().await)));
        (Firestore::over(faults.clone(), self.address()), faults)
    }
}

fn key() -> BatchKey {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    BatchKey::from_random(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | u128::from(std::process::id()))
}

fn batch(likes: Vec<Like>) -> Batch {
    Batch::new(key(), likes)
}

/// Likes of users `from..to` of a post.
fn likes(post: &str, users: std::ops::Range<u32>) -> Vec<Like> {
    users.map(|user| Like::new(post, &format!("user-{user}"), &format!("event-{post}-{user}"), true, 1)).collect()
}

fn resuming() -> Attempt {
    Attempt { number: 2, resuming: true, shard: 3 }
}

async fn apply(store: &Firestore, likes: Vec<Like>) -> Applied {
    store.apply(&batch(likes), Attempt::first(1)).await.expect("it is applied")
}

/// Goes on as the flush does: again under the same key, reading the key first after an unknown outcome.
async fn settle(store: &Firestore, batch: &Batch) -> Result<Applied, StoreError> {
    let mut attempt = Attempt::first(1);
    loop {
        match store.apply(batch, attempt).await {
            Err(error) if attempt.number < 5 => match error.class {
                ErrorClass::Unknown => attempt.resuming = true,
                ErrorClass::DidNotCommit => attempt.shard += 1,
                ErrorClass::Unauthenticated => {}
                _ => return Err(error),
            },
            other => return other,
        }
        attempt.number += 1;
    }
}

/// (count, shards, members) of a post.
async fn tally(store: &Firestore, post: &str) -> (i64, u64, u64) {
    let tally = store.tally(post, Depth::ShardsAndMembers).await.expect("it counts");
    (tally.count, tally.shards, tally.members.expect("asked for"))
}
