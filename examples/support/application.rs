//! Counts as an application reads them that has the `firestore` crate already: typed, from the shard documents of a post.

use firestore::{FirestoreDb, FirestoreResult};
use serde::Deserialize;

/// A document of `posts/POST/hotcountShards`, as far as a reader of counts needs it.
#[derive(Deserialize)]
struct Shard {
    count: i64,
}

/// The count of a post: the sum of its shards. One read for each shard that exists.
pub(crate) async fn count(db: &FirestoreDb, post: &str) -> FirestoreResult<i64> {
    let parent = db.parent_path("posts", post)?;
    let shards: Vec<Shard> =
        db.fluent().select().fields(["count"]).from("hotcountShards").parent(&parent).obj().query().await?;
    Ok(shards.iter().map(|shard| shard.count).sum())
}
