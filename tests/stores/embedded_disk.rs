//! What the embedded store makes of its files after a crash, a loss of power, and damage.

mod backup;
mod damage;
mod descriptors;
mod files;
mod first_open;
mod power;
mod purge;
mod rows;
mod salvage;

use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::{Access, Attempt, ConnectError, Depth, Options, Store};
use std::path::Path;
use std::sync::Arc;

async fn try_open(path: &Path, query: &str, access: Access) -> Result<Arc<dyn Store>, ConnectError> {
    let url = format!("embedded:{}{query}", path.display());
    hotcount::connect::store(&url, &Options { access, ..Options::default() }).await
}

async fn open(path: &Path, query: &str) -> Arc<dyn Store> {
    try_open(path, query, Access::Create).await.expect("the store opens")
}

fn add(post: &str, user: &str, order: i64) -> Like {
    Like::new(post, user, &format!("event-{order}"), true, order)
}

/// Batch `number`: so many members of one post, and one of a post of its own.
fn batch(number: u64, members: usize) -> Batch {
    let order = i64::try_from(number).unwrap();
    let mut likes: Vec<Like> = (0..members).map(|i| add("busy", &format!("{number}-{i}"), order)).collect();
    likes.push(add(&format!("post-{number}"), "one", order));
    Batch::new(BatchKey::from_random(u128::from(number)), likes)
}

async fn apply(store: &dyn Store, number: u64, members: usize) {
    store.apply(&batch(number, members), Attempt::first(1)).await.expect("applied");
}

/// The count of a post, which its members prove.
async fn count(store: &dyn Store, post: &str) -> i64 {
    let tally = store.tally(post, Depth::ShardsAndMembers).await.expect("a tally");
    assert_eq!(tally.drift(), Some(0), "{post}: {tally:?}");
    tally.count
}
