//! What was deleted from the quarantine is gone from the disk.

use super::files::{content, holds};
use super::{apply, open, try_open};
use hotcount::store::{Access, PageSize, Quarantined, Store};
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tempfile::TempDir;

fn poison(id: &str, secret: &str) -> Quarantined {
    Quarantined {
        id: id.to_owned(),
        reason: "payload: not an event".to_owned(),
        data: secret.repeat(50).into(),
        attributes: vec![("trace".to_owned(), format!("attribute of {secret}"))],
        source: "test:".to_owned(),
        message_id: None,
        published_at: None,
        received_at: UNIX_EPOCH,
        delivery_attempt: None,
    }
}

async fn fill(store: &dyn Store) {
    for number in 0..20 {
        store.quarantine(&[poison(&format!("{number:02}"), "SECRET-WORD")]).await.unwrap();
        store.quarantine(&[poison(&format!("{number:02}-kept"), "other word")]).await.unwrap();
        apply(store, number, 10).await;
    }
}

fn secret_in(path: &Path) -> Option<std::path::PathBuf> {
    holds(&content(path), b"SECRET-WORD")
}

#[tokio::test]
async fn what_was_purged_is_gone_from_every_file_when_the_store_is_closed() {
    for query in ["", "?memory_bytes=4000"] {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path(), query).await;
        fill(&*store).await;
        store.close().await.unwrap();
        assert!(secret_in(directory.path()).is_some());
        let store = try_open(directory.path(), query, Access::Change).await.unwrap();
        let ids: Vec<_> = (0..20).map(|number| format!("{number:02}")).collect();
        store.discard(&ids).await.unwrap();
        store.close().await.unwrap();
        assert_eq!(secret_in(directory.path()), None, "{query}");
        let store = try_open(directory.path(), query, Access::Read).await.unwrap();
        assert_eq!(store.quarantined(None, PageSize::entries(100)).await.unwrap().entries.len(), 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_purged_is_gone_from_every_file_soon_while_the_store_is_open() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), "?memory_bytes=4000").await;
    fill(&*store).await;
    assert!(secret_in(directory.path()).is_some());
    let ids: Vec<_> = (0..20).map(|number| format!("{number:02}")).collect();
    store.discard(&ids).await.unwrap();
    let start = Instant::now();
    let mut number = 100;
    while let Some(file) = secret_in(directory.path()) {
        assert!(start.elapsed() < Duration::from_secs(120), "{} still holds what was purged", file.display());
        // It goes while likes arrive.
        apply(&*store, number, 1).await;
        number += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    store.close().await.unwrap();
}
