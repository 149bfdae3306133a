//! Derived counts: from the shards of a post, from its members, and the drift between them.
//!
//! ```text
//! cargo run --example reader                                  # counts some likes in memory and shows them
//! cargo run --example reader -- firestore://my-project p1 p2  # shows posts of a store
//! cargo run --example reader -- http://127.0.0.1:8080 p1      # shows posts of a running worker
//! ```

use hotcount::batch::{Batch, BatchKey};
use hotcount::event::Like;
use hotcount::reader;
use hotcount::store::{self, Attempt, Counts, Depth, Options};
use std::error::Error;
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (counts, posts): (Arc<dyn Counts>, Vec<String>) = match arguments.next() {
        Some(url) => (store::connect_counts(&url, &Options::default()).await?, arguments.collect()),
        None => (some_likes().await?, vec!["viral".to_owned(), "quiet".to_owned(), "nobody-liked-this".to_owned()]),
    };
    println!("{:<24} {:>10} {:>7} {:>10} {:>6}", "post", "count", "shards", "members", "drift");
    for post in posts {
        let tally = reader::tally(&*counts, &post, Depth::ShardsAndMembers).await?;
        let (members, drift) = (tally.members.unwrap_or_default(), tally.drift().unwrap_or_default());
        println!("{post:<24} {:>10} {:>7} {members:>10} {drift:>6}", tally.count, tally.shards);
        if drift != 0 {
            return Err(format!("{post} drifts by {drift}").into());
        }
    }
    Ok(())
}

/// A thousand users like one post, on two shards; three like another, and one of them thinks better of it.
async fn some_likes() -> Result<Arc<dyn Counts>, Box<dyn Error>> {
    let store = store::connect("memory:", &Options::default()).await?;
    for shard in 0..2_u16 {
        let likes = (0..500).map(|n| Like::new("viral", &format!("user-{shard}-{n}"), "event", true, 1)).collect();
        store.apply(&Batch::new(BatchKey::from_random(u128::from(shard)), likes), Attempt::first(shard)).await?;
    }
    let quiet = |user: &str, liked, order| Like::new("quiet", user, &format!("event-{order}"), liked, order);
    for (key, likes) in
        [vec![quiet("a", true, 1), quiet("b", true, 1), quiet("c", true, 1)], vec![quiet("b", false, 2)]]
            .into_iter()
            .enumerate()
    {
        store.apply(&Batch::new(BatchKey::from_random(10 + key as u128), likes), Attempt::first(0)).await?;
    }
    Ok(store)
}
