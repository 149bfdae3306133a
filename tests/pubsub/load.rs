//! The Pub/Sub target on the emulator: everything that is accepted is delivered and counted.

use crate::support::publish::PROJECT;
use crate::support::{emulators, publish};
use google_cloud_pubsub::model::Subscription;
use hotcount::engine::pipeline;
use hotcount::engine::progress::Progress;
use hotcount::lab::load::drive::{Config as Drive, Ended, Watch, drive};
use hotcount::lab::load::target;
use hotcount::lab::load::{Config, Faults, Plan};
use hotcount::read::reader;
use hotcount::source::pubsub::{Access, PubSub};
use hotcount::store::Depth;
use hotcount::store::memory::Memory;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_takes_a_load_and_a_worker_counts_what_the_plan_expects() {
    // A subscription of its own, whose topic the load is published to.
    let mut topic_path = String::new();
    let Some(topic) = publish::Topic::new(|subscription| {
        topic_path.clone_from(&subscription.topic);
        subscription
    })
    .await
    else {
        return;
    };
    let topic_id = topic_path.rsplit('/').next().expect("a path");
    let faults =
        Faults { redelivered: 0.2, double_clicked: 0.1, late: 0.1, shuffled: 0.5, poison: 0.01, ..Faults::default() };
    let plan = Plan::new(Config { messages: 3_000, posts: 20, users: 400, unlikes: 0.2, faults, ..Config::default() })
        .expect("can be");
    let url = format!("pubsub://{PROJECT}/{topic_id}?emulator={}", topic.host);
    let target = target::connect(&url).await.expect("a client");
    let watch = Watch::default();
    let ended = drive(&plan, &*target, &Drive::default(), &CancellationToken::new(), &watch).await;
    assert_eq!((ended, watch.accepted()), (Ended::Complete, 3_000), "{:?}", watch.trouble());

    let source = PubSub::connect(&topic.url("streams=4")).await.expect("the subscription is there");
    let (store, progress, shutdown) =
        (Arc::new(Memory::default()), Arc::new(Progress::default()), CancellationToken::new());
    let engine = tokio::spawn(pipeline::run(
        Arc::new(source),
        store.clone(),
        pipeline::Config::default(),
        shutdown.clone().cancelled_owned(),
        Arc::clone(&progress),
    ));
    let everything_settled = async {
        loop {
            let c = progress.counted();
            if c.applied + c.folded + c.duplicates + c.stale + c.poison >= plan.messages() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), everything_settled).await.expect("all of it is delivered");
    shutdown.cancel();
    engine.await.expect("no panic").expect("works");
    let expected = plan.expect();
    for (post, count) in expected.posts() {
        let tally = reader::tally(&*store, &post, Depth::ShardsAndMembers).await.expect("memory can be read");
        assert_eq!((tally.count, tally.members), (i64::try_from(count).unwrap(), Some(count)), "{post}");
    }
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_given_up_at_once_with_what_to_do() {
    let Some(host) = emulators::pubsub() else { return };
    assert!(Access::new(Some(&host)).is_emulator());
    let url = format!("pubsub://{PROJECT}/{}?emulator={host}", emulators::unique("nowhere"));
    let why = given_up(&url).await;
    let command = format!("`hotcount setup --source {} --store URL`", url.split('?').next().unwrap());
    assert!(why.contains(&command), "{why}");
}

#[tokio::test]
async fn who_sends_to_a_subscription_is_told_the_topic_that_it_has() {
    let mut topic_path = String::new();
    let named = |subscription: Subscription| {
        topic_path.clone_from(&subscription.topic);
        subscription
    };
    let Some(topic) = publish::Topic::new(named).await else { return };
    let url = format!("pubsub://{PROJECT}/{}?emulator={}", topic.subscription, topic.host);
    let why = given_up(&url).await;
    let topic_id = topic_path.rsplit('/').next().expect("a path");
    assert!(why.contains(&format!("send to pubsub://{PROJECT}/{topic_id}")), "{why}");
    let topics = Access::new(Some(&topic.host)).topics().await.expect("a client");
    topics.delete_topic().set_topic(&topic_path).send().await.expect("it is there");
    let why = given_up(&url).await;
    assert!(why.contains("was deleted"), "{why}");
}

/// Why nothing could be sent to `url`.
async fn given_up(url: &str) -> String {
    let target = target::connect(url).await.expect("a client");
    let plan = Plan::new(Config { messages: 10, ..Config::default() }).expect("can be");
    let watch = Watch::default();
    let ended = drive(&plan, &*target, &Drive::default(), &CancellationToken::new(), &watch).await;
    assert_eq!((watch.accepted(), watch.retries()), (0, 0));
    let Ended::GaveUp(why) = ended else { panic!("{ended:?}") };
    why
}
