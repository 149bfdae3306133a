//! A process that has as many files open as it may.

use super::{apply, batch, count, open};
use hotcount::store::{Attempt, ErrorClass};
use std::fs::File;
use std::process::Command;
use tempfile::TempDir;

/// Not a test: the process that the next test starts under a limit of open files.
#[tokio::test]
#[ignore = "run by another test, under a limit"]
async fn a_process_with_few_descriptors() {
    let Ok(path) = std::env::var("HOTCOUNT_TEST_STORE") else { return };
    // Every batch needs a new segment and new tables.
    let store = open(std::path::Path::new(&path), "?memory_bytes=1").await;
    apply(&*store, 0, 5).await;
    let mut others = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        others.push(file);
    }
    let mut refused = 0;
    for number in 1..30 {
        match store.apply(&batch(number, 5), Attempt::first(1)).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.class, ErrorClass::DidNotCommit, "{error}");
                assert!(error.to_string().contains("as many files and connections open as it may"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "there were enough descriptors");
    drop(others);
    // It passes: the same batches are tried again, and all of them count once. A flush that failed is tried again within
    // a second.
    for number in 1..30 {
        let mut tries = 0;
        while let Err(error) = store.apply(&batch(number, 5), Attempt::first(1)).await {
            assert_eq!(error.class, ErrorClass::DidNotCommit, "{error}");
            tries += 1;
            assert!(tries < 600, "it did not pass: {error}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    assert_eq!(count(&*store, "busy").await, 150);
    store.close().await.unwrap();
}

#[tokio::test]
async fn running_out_of_descriptors_is_said_as_that_and_passes() {
    let directory = TempDir::new().unwrap();
    let child = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 48; exec \"$0\" --ignored --exact --nocapture embedded_disk::descriptors::a_process_with_few_descriptors",
        ])
        .arg(std::env::current_exe().unwrap())
        .env("HOTCOUNT_TEST_STORE", directory.path())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && out.contains("1 passed"), "{out}\n{err}");
    assert_eq!(count(&*open(directory.path(), "").await, "busy").await, 150);
}
