//! What a program without a store of its own would do: a bare loop that puts batches into SQLite, durable at each commit.

use hotcount::like::batch::Batch;
use rusqlite::{Connection, params};
use std::path::Path;
use std::time::{Duration, Instant};

/// Fills a new database in the directory `path`: one transaction a batch, a guarded insert a like and an upsert a post.
/// Answers how long that took, after proving that the counts are those of the members.
pub(crate) fn fill(path: &Path, batches: &[Batch]) -> Duration {
    let mut db = Connection::open(path.join("sqlite.db")).expect("opened");
    db.pragma_update(None, "journal_mode", "wal").expect("set");
    db.pragma_update(None, "synchronous", "full").expect("set");
    // As many pages as the store keeps in memory; with the 2 MB that are the default, random keys thrash it.
    db.pragma_update(None, "cache_size", -(128 << 10)).expect("set");
    // Moving the log into the database every 1,000 pages, the default, would come after every second commit here.
    db.pragma_update(None, "wal_autocheckpoint", 32_000).expect("set");
    db.execute_batch(
        "create table members (post text, user text, liked integer, ord integer, event text, primary key (post, user)) without rowid;
         create table counts (post text primary key, count integer) without rowid;",
    )
    .expect("created");
    let start = Instant::now();
    for batch in batches {
        let commit = db.transaction().expect("begun");
        {
            let mut insert = commit
                .prepare_cached("insert into members values (?1, ?2, ?3, ?4, ?5) on conflict do nothing")
                .expect("prepared");
            let mut count = commit
                .prepare_cached(
                    "insert into counts values (?1, ?2) on conflict do update set count = count + excluded.count",
                )
                .expect("prepared");
            for likes in batch.by_post() {
                let mut delta = 0;
                for like in likes {
                    let row = params![like.post(), like.user(), like.liked(), like.order(), like.event_id()];
                    delta += insert.execute(row).expect("inserted") as i64;
                }
                if delta > 0 {
                    count.execute(params![likes[0].post(), delta]).expect("counted");
                }
            }
        }
        commit.commit().expect("committed");
    }
    let took = start.elapsed();
    let members: i64 = db.query_row("select count(*) from members", [], |row| row.get(0)).expect("counted");
    let counts: i64 = db.query_row("select sum(count) from counts", [], |row| row.get(0)).expect("counted");
    assert_eq!(members, counts);
    took
}
