//! What is wrong with a subscription is found on the emulator, at the start and later.

use crate::support::emulators::{self, unique};
use crate::support::proxy::{Proxy, Status, Verdict};
use crate::support::publish::{PROJECT, Topic, made};
use google_cloud_pubsub::model::{DeadLetterPolicy, PushConfig, Subscription};
use google_cloud_wkt::Duration as Seconds;
use hotcount::engine::pipeline;
use hotcount::engine::progress::Progress;
use hotcount::source::pubsub::setup::{Config, setup};
use hotcount::source::pubsub::{Access, PubSub};
use hotcount::source::{Finding, Source, Weight};
use hotcount::store::memory::Memory;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Only a hang reaches it.
const WITHIN: Duration = Duration::from_secs(180);

async fn topic_of(topic: &Topic) -> String {
    topic.admin.get_subscription().set_subscription(&topic.subscription_path).send().await.unwrap().topic
}

async fn delete_topic(topic: &Topic) {
    let topics = Access::new(Some(&topic.host)).topics().await.unwrap();
    topics.delete_topic().set_topic(topic_of(topic).await).send().await.unwrap();
}

async fn check(topic: &Topic) -> Vec<Finding> {
    PubSub::connect(&topic.url("streams=1")).await.unwrap().check().await.unwrap()
}

fn names(findings: &[Finding], weight: Weight) -> Vec<&'static str> {
    findings.iter().filter(|finding| finding.weight == weight).map(|finding| finding.name).collect()
}

#[tokio::test]
async fn what_setup_makes_has_nothing_to_find() {
    let Some(host) = emulators::pubsub() else { return };
    let url = format!("pubsub://{PROJECT}/{}?emulator={host}", unique("likes"));
    setup(&Config::from_url(&url).unwrap()).await.unwrap();
    assert_eq!(PubSub::connect(&url).await.unwrap().check().await.unwrap(), []);
}

/// The subscription outlives its topic, and is pulled as before: nothing comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_topic_was_deleted_is_not_ready_and_says_why() {
    let Some(topic) = Topic::new(|s| s).await else { return };
    assert_eq!(names(&check(&topic).await, Weight::NothingArrives), [""; 0]);
    delete_topic(&topic).await;
    let source = Arc::new(PubSub::connect(&topic.url("streams=1")).await.unwrap());
    let (progress, shutdown) = (Arc::new(Progress::default()), CancellationToken::new());
    let store = Arc::new(Memory::default());
    let config = pipeline::Config::default();
    let engine =
        tokio::spawn(pipeline::run(source, store, config, shutdown.clone().cancelled_owned(), Arc::clone(&progress)));
    let told = async {
        while !progress.not_ready().join("\n").contains("was deleted, so nothing new can arrive") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WITHIN, told).await.expect("it says that the topic is gone");
    shutdown.cancel();
    engine.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_subscription_that_is_changed_or_deleted_while_a_worker_runs_is_found() {
    let Some(topic) = Topic::new(|s| s).await else { return };
    let source = PubSub::connect(&topic.url("streams=1")).await.unwrap();
    let push = PushConfig::new().set_push_endpoint("https://example.com/push");
    let changed = topic.admin.modify_push_config().set_subscription(&topic.subscription_path).set_push_config(push);
    changed.send().await.unwrap();
    assert_eq!(names(&source.check().await.unwrap(), Weight::NothingArrives), ["delivery"]);
    topic.admin.delete_subscription().set_subscription(&topic.subscription_path).send().await.unwrap();
    let findings = source.check().await.unwrap();
    assert_eq!(names(&findings, Weight::NothingArrives), ["subscription"]);
    assert!(findings[0].told.contains("hotcount setup --source"), "{findings:?}");
    assert!(source.ping().await.is_ok(), "it is not Pub/Sub that does not answer");
}

#[tokio::test]
async fn googles_defaults_for_dead_letters_are_advised_against_and_leave_the_worker_ready() {
    let few = |s: Subscription| {
        let policy = DeadLetterPolicy::new().set_dead_letter_topic(s.topic.clone()).set_max_delivery_attempts(5);
        s.set_dead_letter_policy(policy).set_message_retention_duration(Seconds::clamp(600, 0))
    };
    let Some(topic) = Topic::new(few).await else { return };
    let findings = check(&topic).await;
    assert_eq!(names(&findings, Weight::NothingArrives), [""; 0]);
    let advice = names(&findings, Weight::Advice);
    for name in ["delivery attempts", "retry policy", "retention"] {
        assert!(advice.contains(&name), "{findings:#?}");
    }
    let attempts = findings.iter().find(|finding| finding.name == "delivery attempts").unwrap();
    assert!(attempts.told.contains("after 5 delivery attempts"), "{attempts:?}");
    assert!(attempts.told.contains("--max-delivery-attempts=100"), "{attempts:?}");
}

#[tokio::test]
async fn dead_letters_that_nobody_keeps_are_told() {
    let Some(host) = emulators::pubsub() else { return };
    let dead = format!("projects/{PROJECT}/topics/{}", unique("dead"));
    let topics = Access::new(Some(&host)).topics().await.unwrap();
    made(topics.create_topic().set_name(&dead).send().await);
    let with_dead = |s: Subscription| {
        s.set_dead_letter_policy(DeadLetterPolicy::new().set_dead_letter_topic(&dead).set_max_delivery_attempts(100))
    };
    let Some(topic) = Topic::new(with_dead).await else { return };
    let told = |findings: Vec<Finding>| {
        findings.into_iter().find(|finding| finding.name == "dead letters").expect("it is found").told
    };
    assert!(told(check(&topic).await).contains("lost on arrival"));
    topics.delete_topic().set_topic(&dead).send().await.unwrap();
    let gone = told(check(&topic).await);
    assert!(gone.contains("is missing") || gone.contains("was deleted"), "{gone}");
}

/// An account that may consume need not be allowed to look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_is_not_permitted_finds_nothing() {
    let Some(topic) = Topic::new(|s| s).await else { return };
    delete_topic(&topic).await;
    let proxy = Proxy::start(&topic.host, |call| match call.method {
        // Administrators speak HTTP.
        "HTTP" => Verdict::Refuse(Status::new(7, "permission denied")),
        _ => Verdict::Pass,
    })
    .await;
    let url = topic.url("streams=1").replace(&topic.host, proxy.host());
    let source = PubSub::connect(&url).await.unwrap();
    assert_eq!(source.check().await.unwrap(), []);
    assert!(source.ping().await.is_ok());
}
