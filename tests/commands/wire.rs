//! The main job over a wire that goes wrong in every way it can, between the real clients and Google's emulators.

use crate::support::emulators::{firestore, unique};
use crate::support::proxy::{Call, Proxy, Status, Verdict};
use crate::support::publish::Topic;
use hotcount::engine::pipeline::{self, Config};
use hotcount::engine::progress::Progress;
use hotcount::store::{self, Depth, Tally};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const USERS: usize = 600;

/// The first commits and acknowledgements meet one fault each, the rest none.
fn trouble(call: &Call<'_>) -> Verdict {
    let faults = [
        Verdict::Lose(Status::new(14, "done, and the answer is lost")),
        Verdict::Refuse(Status::new(10, "aborted")),
        Verdict::BreakAfter,
        Verdict::Delay(Duration::from_millis(300)),
        Verdict::Refuse(Status::new(13, "internal")),
        Verdict::Break,
        Verdict::Lose(Status::new(4, "deadline exceeded")),
        Verdict::Refuse(Status::new(14, "unavailable")),
    ];
    match call.method {
        "Commit" | "Acknowledge" => faults.get(call.number).cloned().unwrap_or(Verdict::Pass),
        _ => Verdict::Pass,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_exact_over_a_wire_that_refuses_loses_delays_and_breaks() {
    let (Some(firestore), Some(topic)) = (firestore(), Topic::new(|subscription| subscription).await) else { return };
    let (store_wire, source_wire) = (Proxy::start(&firestore, trouble).await, Proxy::start(&topic.host, trouble).await);
    let url = format!("firestore://{}?emulator={}", unique("wire"), store_wire.host());
    let store = hotcount::connect::store(&url, &store::Options::default()).await.unwrap();
    let url = topic.url("streams=4&extension_s=10&idle_s=10").replace(&topic.host, source_wire.host());
    let source = hotcount::connect::source(&url).await.unwrap();
    let (shutdown, progress) = (CancellationToken::new(), Arc::new(Progress::default()));
    let config = Config { batch_writes: Some(50), ..Config::default() };
    let engine =
        pipeline::run(source, store.clone(), config, shutdown.clone().cancelled_owned(), Arc::clone(&progress));
    let watched = async {
        for chunk in (0..USERS).collect::<Vec<_>>().chunks(100) {
            topic.publish_all(chunk.iter().map(|user| event(*user))).await;
        }
        let all = Tally { count: USERS as i64, shards: 0, members: Some(USERS as u64) };
        tokio::time::timeout(Duration::from_secs(240), async {
            while store.tally("viral", Depth::ShardsAndMembers).await.map(|t| Tally { shards: 0, ..t }).ok()
                != Some(all)
            {
                tokio::task::yield_now().await;
            }
            store_wire.called("Commit", 9).await;
            source_wire.called("Acknowledge", 9).await;
        })
        .await
        .unwrap_or_else(|_| panic!("{:?}, {} acks", progress.counted(), source_wire.calls("Acknowledge")));
        shutdown.cancel();
    };
    let (report, ()) = tokio::join!(engine, watched);
    assert_eq!(report.unwrap().counted.left, 0);
    // Acknowledgements that were lost bring their messages back, to whoever comes next.
    assert_eq!(store.tally("viral", Depth::ShardsAndMembers).await.unwrap().drift(), Some(0));
}

fn event(user: usize) -> String {
    format!(
        r#"{{"eventId":"e{user}","type":"like.added","postId":"viral","userId":"u{user}","occurredAt":"2026-01-01T00:00:00Z"}}"#
    )
}
