//! What the Pub/Sub client does alone: it pulls and acknowledges.

use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::Subscriber;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Pulls and acknowledges `messages` messages on `streams` streams. They have been published before.
pub(crate) async fn pull(host: &str, subscription: &str, streams: usize, messages: usize) -> Duration {
    let client = Subscriber::builder()
        .with_endpoint(format!("http://{host}"))
        .with_credentials(anonymous::Builder::new().build())
        .build()
        .await
        .expect("the emulator is there");
    let (acked, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..streams {
        let mut stream = client.subscribe(subscription).set_max_outstanding_messages(1_000_u32).build();
        let (acked, all) = (Arc::clone(&acked), Arc::clone(&all));
        tasks.spawn(async move {
            while let Some(received) = stream.next().await {
                let (message, handler) = received.expect("the stream goes on");
                std::hint::black_box(message);
                handler.ack();
                if acked.fetch_add(1, Ordering::Relaxed) + 1 == messages {
                    all.notify_one();
                }
            }
        });
    }
    all.notified().await;
    start.elapsed()
}
