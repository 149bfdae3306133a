//! Derived counts: from shards, from members, and the drift between them. For library users and the command line.

use crate::store::{Counts, Depth, ErrorClass, Listing, StoreError, Tally};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use std::sync::Arc;

/// Posts listed with one call.
const PAGE_POSTS: usize = 300;

/// Posts whose tallies are read at once.
const TALLIES_AT_ONCE: usize = 8;

/// The counts of one post, all read at one time.
///
/// # Errors
/// When the store cannot be read.
pub async fn tally(counts: &dyn Counts, post: &str, depth: Depth) -> Result<Tally, StoreError> {
    counts.tally(post, depth).await
}

/// Every post, page by page, sorted by the bytes of its id.
pub fn posts(counts: Arc<dyn Counts>, listing: Listing) -> impl Stream<Item = Result<String, StoreError>> {
    let pages = stream::try_unfold(Some(None::<String>), move |after| {
        let counts = Arc::clone(&counts);
        async move {
            let Some(after) = after else { return Ok(None) };
            let page = counts.posts(listing, after.as_deref(), PAGE_POSTS).await?;
            let next = if page.len() < PAGE_POSTS { None } else { page.last().cloned().map(Some) };
            Ok(Some((stream::iter(page.into_iter().map(Ok)), next)))
        }
    });
    pages.try_flatten()
}

/// One post of a verification.
#[derive(Debug)]
pub struct Verified {
    /// Its id.
    pub post: String,
    /// Its counts. An error, of the class [`ErrorClass::Undecidable`], where something stored for this post cannot be read;
    /// that keeps no other post from being verified.
    pub tally: Result<Tally, StoreError>,
}

impl Verified {
    /// The tally of a post, or what cannot be read for it. Any other failure is one of the store.
    fn of(post: String, tally: Result<Tally, StoreError>) -> Result<Self, StoreError> {
        match tally {
            Err(error) if !matches!(error.class, ErrorClass::Undecidable(_)) => Err(error),
            tally => Ok(Self { post, tally }),
        }
    }

    /// Whether there are shards, readable or not: nothing else of a tally is read as documents.
    fn has_shards(&self) -> bool {
        self.tally.as_ref().map_or(true, |tally| tally.shards > 0)
    }
}

/// Every post with its shards and its members, each post at one read time of its own. Workers may keep running: at
/// every read time the two are equal.
pub fn verify(counts: Arc<dyn Counts>, listing: Listing) -> impl Stream<Item = Result<Verified, StoreError>> {
    let reading = Arc::clone(&counts);
    posts(counts, listing)
        .map(move |post| {
            let counts = Arc::clone(&reading);
            async move {
                let post = post?;
                let tally = counts.tally(&post, Depth::ShardsAndMembers).await;
                Verified::of(post, tally)
            }
        })
        .buffered(TALLIES_AT_ONCE)
}

/// The same for every post that has shards, and then for those that only members know, because their shards were deleted
/// from outside. Neither listing alone finds all drift: a post whose members are gone is listed by none of them.
pub fn verify_deep(counts: Arc<dyn Counts>) -> impl Stream<Item = Result<Verified, StoreError>> {
    let reading = Arc::clone(&counts);
    let members_alone = posts(Arc::clone(&counts), Listing::Members)
        .map(move |post| {
            let counts = Arc::clone(&reading);
            async move {
                let post = post?;
                // Most posts have shards, readable or not, and then they were verified above.
                let tally = counts.tally(&post, Depth::Shards).await;
                let shallow = Verified::of(post, tally)?;
                if shallow.has_shards() {
                    return Ok(None);
                }
                let tally = counts.tally(&shallow.post, Depth::ShardsAndMembers).await;
                // A post that was born meanwhile has shards by now.
                Ok(Some(Verified::of(shallow.post, tally)?).filter(|deep| !deep.has_shards()))
            }
        })
        .buffered(TALLIES_AT_ONCE)
        .try_filter_map(|found| std::future::ready(Ok(found)));
    verify(counts, Listing::Shards).chain(members_alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::like::batch::{Batch, BatchKey};
    use crate::like::event::Like;
    use crate::store::memory::Memory;
    use crate::store::{Attempt, Store};

    #[tokio::test]
    async fn every_post_is_listed_once_across_pages_and_no_healthy_post_drifts() {
        let store = Arc::new(Memory::default());
        let number = PAGE_POSTS * 2 + 7;
        let likes = (0..number).map(|n| Like::new(&format!("post-{n:05}"), "user", "e", true, 1)).collect();
        store.apply(&Batch::new(BatchKey::from_random(1), likes), Attempt::first(0)).await.expect("applies");
        let rows: Vec<_> = verify(store, Listing::Shards).try_collect().await.expect("memory can be read");
        assert_eq!(rows.iter().filter(|row| row.tally.is_ok()).count(), number);
        assert!(rows.is_sorted_by(|a, b| a.post < b.post));
        assert!(rows.iter().flat_map(|row| &row.tally).all(|tally| tally.drift() == Some(0) && tally.count == 1));
    }
}
