//! Setting up Pub/Sub, on the emulator.

use crate::support::emulators::{self, unique};
use crate::support::publish::{PROJECT, Topic};
use google_cloud_pubsub::model::{ExpirationPolicy, PushConfig, Subscription};
use google_cloud_wkt::Duration;
use hotcount::source::pubsub::setup::{Config, Outcome, Step, dead_letter_topic_of, inspect_subscription_of, setup};
use hotcount::source::pubsub::{Access, PubSub};

fn said(steps: &[Step]) -> Vec<String> {
    steps.iter().map(Step::to_string).collect()
}

#[tokio::test]
async fn setting_up_twice_creates_everything_once() {
    let Some(host) = emulators::pubsub() else { return };
    let (subscription, topic) = (unique("likes"), unique("posts"));
    let url = format!("pubsub://{PROJECT}/{subscription}?emulator={host}&topic={topic}&exactly_once=true");
    let config = Config::from_url(&url).unwrap();
    let expected = [
        format!("topic projects/demo/topics/{topic}"),
        format!("topic projects/demo/topics/{topic}-dead-letters"),
        format!("subscription projects/demo/subscriptions/{topic}-dead-letters-inspect"),
        format!("subscription projects/demo/subscriptions/{subscription}"),
    ];
    assert_eq!(said(&setup(&config).await.unwrap()), expected.each_ref().map(|what| format!("created the {what}")));
    let again = setup(&config).await.unwrap();
    assert_eq!(said(&again), expected.each_ref().map(|what| format!("the {what} was there")));

    let admin = Access::new(Some(&host)).subscriptions().await.unwrap();
    let path = format!("projects/{PROJECT}/subscriptions/{subscription}");
    let made = admin.get_subscription().set_subscription(path).send().await.unwrap();
    assert!(made.enable_exactly_once_delivery);
    assert_eq!(made.ack_deadline_seconds, 60);
    assert_eq!(made.message_retention_duration.unwrap().seconds(), 7 * 86_400);
    let retry = made.retry_policy.unwrap();
    assert_eq!(retry.minimum_backoff.unwrap().seconds(), 10);
    assert_eq!(retry.maximum_backoff.unwrap().seconds(), 600);
    let dead = made.dead_letter_policy.unwrap();
    assert_eq!(dead.max_delivery_attempts, 100);
    assert_eq!(dead.dead_letter_topic, dead_letter_topic_of(PROJECT, &config.topic()));
    let inspect = inspect_subscription_of(PROJECT, &config.topic());
    let inspect = admin.get_subscription().set_subscription(inspect).send().await.unwrap();
    assert_eq!(inspect.topic, dead.dead_letter_topic);
    // The longest that the emulator takes; the service gets 31 days.
    assert_eq!(inspect.message_retention_duration.unwrap().seconds(), 7 * 86_400);

    PubSub::connect(&url).await.unwrap();
}

/// The names of the settings whose outcome `pick` picks.
fn settings(steps: &[Step], pick: fn(&Outcome) -> Option<&'static str>) -> Vec<&'static str> {
    steps.iter().filter_map(|step| pick(&step.outcome)).collect()
}

fn changed(outcome: &Outcome) -> Option<&'static str> {
    if let Outcome::Changed { setting, .. } = outcome { Some(setting) } else { None }
}

fn differing(outcome: &Outcome) -> Option<&'static str> {
    if let Outcome::Differs { setting, .. } = outcome { Some(setting) } else { None }
}

#[tokio::test]
async fn settings_that_differ_are_changed_and_reported_one_by_one() {
    let one_day = |s: Subscription| s.set_message_retention_duration(Duration::clamp(86_400, 0));
    let Some(topic) = Topic::new(one_day).await else { return };
    let config = Config::from_url(&topic.url("exactly_once=true")).unwrap();
    let steps = setup(&config).await.unwrap();
    let expected =
        ["the ack deadline", "the retention", "the retry policy", "the dead-letter policy", "exactly-once delivery"];
    assert_eq!(settings(&steps, changed), expected, "{:#?}", said(&steps));
    // The one that the emulator can set and not change.
    assert_eq!(settings(&steps, differing), ["the expiration"], "{:#?}", said(&steps));

    let again = setup(&config).await.unwrap();
    assert!(settings(&again, changed).is_empty(), "{:#?}", said(&again));
    PubSub::connect(&topic.url("exactly_once=true")).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_changed_is_reported_with_what_to_do() {
    let push = |s: Subscription| {
        let never = ExpirationPolicy::new();
        s.set_push_config(PushConfig::new().set_push_endpoint("http://127.0.0.1:9/")).set_expiration_policy(never)
    };
    let Some(topic) = Topic::new(push).await else { return };
    let url = topic.url(&format!("topic={}", unique("another")));
    let steps = setup(&Config::from_url(&url).unwrap()).await.unwrap();
    assert_eq!(settings(&steps, differing), ["the topic", "the delivery type"], "{:#?}", said(&steps));

    let refused = PubSub::connect(&url).await.err().expect("a push subscription cannot be pulled").to_string();
    assert!(refused.contains("use one of delivery type pull"), "{refused}");
}

#[tokio::test]
async fn a_subscription_without_the_exactly_once_delivery_that_the_url_asks_for_is_refused() {
    let Some(topic) = Topic::new(|subscription| subscription).await else { return };
    let refused = PubSub::connect(&topic.url("exactly_once=true")).await.err().expect("it has none").to_string();
    assert!(refused.contains("run `hotcount setup` with this URL"), "{refused}");
}

#[tokio::test]
async fn the_topic_of_a_subscription_that_exists_is_kept_unless_the_url_names_another() {
    let Some(topic) = Topic::new(|subscription| subscription).await else { return };
    let existing = topic.admin.get_subscription().set_subscription(&topic.subscription_path).send().await.unwrap();
    let steps = setup(&Config::from_url(&topic.url("")).unwrap()).await.unwrap();
    assert_eq!(steps[0], Step { what: format!("topic {}", existing.topic), outcome: Outcome::AlreadyThere });
}

#[tokio::test]
async fn a_missing_subscription_is_an_error_that_names_the_setup() {
    let Some(host) = emulators::pubsub() else { return };
    let subscription = unique("missing");
    let url = format!("pubsub://{PROJECT}/{subscription}?emulator={host}");
    let text = PubSub::connect(&url).await.err().expect("there is no such subscription").to_string();
    assert!(text.contains(&format!("hotcount setup --source pubsub://demo/{subscription}")), "{text}");
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_an_error_that_names_it() {
    // Bound and never accepting: no other process can take the port meanwhile.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pubsub://demo/likes?emulator={}", silent.local_addr().unwrap());
    let text = PubSub::connect(&url).await.err().expect("nobody is there").to_string();
    assert!(text.contains("does not answer: check the network and PUBSUB_EMULATOR_HOST"), "{text}");
    assert!(text.contains(&silent.local_addr().unwrap().to_string()), "{text}");
}

#[tokio::test]
async fn setting_up_where_nobody_answers_is_an_error() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pubsub://demo/likes?emulator={}", silent.local_addr().unwrap());
    let config = Config::from_url(&url).unwrap();
    let text = setup(&config).await.expect_err("nobody is there").to_string();
    assert!(text.contains("does not answer"), "{text}");
}
