use super::*;
use bytes::Bytes;
use futures::FutureExt;
use std::io::Write;

fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

async fn records_of(input: Vec<u8>, max: usize) -> Vec<Bytes> {
    let source = Jsonl::new("test", std::io::Cursor::new(input));
    let mut stream = source.open(0).await.expect("opens once");
    let mut records = Vec::new();
    loop {
        let deliveries = stream.pull(max).await.expect("a cursor can be read");
        assert!(deliveries.len() <= max);
        if deliveries.is_empty() {
            return records;
        }
        records.extend(deliveries.into_iter().map(|d| d.payload));
    }
}

#[tokio::test]
async fn every_line_is_a_delivery_and_empty_ones_are_not() {
    let lines = records_of(b"a\n\nbc\r\n  \nlast".to_vec(), 2).await;
    assert_eq!(lines, ["a", "bc", "last"]);
    assert!(records_of(Vec::new(), 5).await.is_empty());
}

#[tokio::test]
async fn records_that_cross_blocks_stay_whole() {
    let long = "x".repeat(BLOCK_BYTES + 7);
    let lines = records_of(format!("a\n{long}\nb\n").into_bytes(), 100).await;
    assert_eq!(lines, ["a", long.as_str(), "b"]);
}

#[tokio::test]
async fn a_record_over_the_limit_is_cut_and_the_next_is_whole() {
    let endless = "x".repeat(2 * MAX_RECORD_BYTES);
    for input in [format!("a\n{endless}\nb\n").into_bytes(), packed(format!("a\n{endless}\nb\n").as_bytes())] {
        let lines = records_of(input, 100).await;
        assert_eq!(lines.iter().map(Bytes::len).collect::<Vec<_>>(), [1, MAX_RECORD_BYTES, 1]);
    }
}

#[tokio::test]
async fn a_packed_file_is_read_whatever_it_is_called() {
    let text: String = (0..50_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let plain = records_of(text.clone().into_bytes(), 1_000).await;
    let zstd = ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    assert_eq!(plain.len(), 50_000);
    assert_eq!(records_of(packed(text.as_bytes()), 1_000).await, plain);
    assert_eq!(records_of(zstd, 1_000).await, plain);
    let (first, second) = text.split_at(text.len() / 2);
    assert_eq!(records_of([packed(first.as_bytes()), packed(second.as_bytes())].concat(), 1_000).await, plain);
}

/// A source that fails ends the worker, which drops what it holds.
#[tokio::test]
async fn a_file_that_breaks_off_says_so_when_all_before_it_is_settled() {
    let text: String = (0..50_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let mut cut = packed(text.as_bytes());
    cut.truncate(cut.len() / 2);
    let source = Jsonl::new("cut.gz", std::io::Cursor::new(cut));
    let mut stream = source.open(0).await.unwrap();
    let mut held = Vec::new();
    while let Some(deliveries) = stream.pull(1_000).now_or_never() {
        held.extend(deliveries.expect("no failure while something is held"));
    }
    assert!(held.len() > 10_000, "{}", held.len());
    let last = held.pop().unwrap();
    for delivery in held {
        assert!(delivery.ack.settle(&Settlement::Counted).is_none());
    }
    assert!(stream.pull(1_000).now_or_never().is_none(), "one is held still");
    drop(last);
    let error = stream.pull(1_000).await.expect_err("it ends in the middle");
    assert!(error.to_string().contains("cut.gz cannot be read further: the gzip data ends in the middle"), "{error}");
    assert!(!error.transient);
}
