//! What a subscription says of itself: why nothing can arrive, and what will go wrong some day.

use super::super::{Finding, SourceError, Weight};
use super::setup::{FEW_ATTEMPTS, MAX_ATTEMPTS};
use super::{Access, Options, failure};
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::model::{DeadLetterPolicy, Subscription};

/// A backlog that is kept for less does not outlast a night without a worker.
const SHORT_RETENTION_S: i64 = 24 * 60 * 60;

/// Pub/Sub's own default: a subscription that nobody pulled for so long is deleted with all its messages.
const USUAL_EXPIRATION_S: i64 = 31 * 24 * 60 * 60;

/// Why a subscription could not be looked at.
pub(super) enum Unseen {
    /// This account may consume it and not look at it.
    NotAllowed,
    /// It is not there. What to do.
    Missing(String),
    /// Pub/Sub did not answer, or refused. What happened.
    NoAnswer(String),
}

/// Looks at the subscription.
pub(super) async fn look(options: &Options, access: &Access) -> Result<Subscription, Unseen> {
    let admin = access.subscriptions().await.map_err(|e| Unseen::NoAnswer(failure::no_client(&e, access)))?;
    admin.get_subscription().set_subscription(options.subscription_path()).send().await.map_err(|error| {
        match code(&error) {
            Some(Code::PermissionDenied) => Unseen::NotAllowed,
            Some(Code::NotFound) => Unseen::Missing(failure::sentence(&error, options, access)),
            _ => Unseen::NoAnswer(failure::sentence(&error, options, access)),
        }
    })
}

/// Looks at the subscription and at its dead letters.
pub(super) async fn check(options: &Options, access: &Access) -> Result<Vec<Finding>, SourceError> {
    let subscription = match look(options, access).await {
        Ok(subscription) => subscription,
        Err(Unseen::NotAllowed) => return Ok(Vec::new()),
        Err(Unseen::Missing(told)) => return Ok(vec![nothing_arrives("subscription", told)]),
        Err(Unseen::NoAnswer(message)) => return Err(SourceError { transient: true, message, source: None }),
    };
    let mut findings = settings(&subscription, options);
    if let Some(policy) = &subscription.dead_letter_policy {
        findings.extend(dead_letters(policy, options, access).await);
    }
    Ok(findings)
}

/// Why nothing can be pulled from a subscription that exists.
pub(super) fn cannot_be_pulled(subscription: &Subscription) -> Option<String> {
    let delivers_elsewhere = subscription.push_config.as_ref().is_some_and(|push| !push.push_endpoint.is_empty())
        || subscription.bigquery_config.is_some()
        || subscription.cloud_storage_config.is_some()
        || subscription.bigtable_config.is_some();
    if delivers_elsewhere {
        return Some("the subscription delivers to somewhere else: use one of delivery type pull".to_owned());
    }
    subscription
        .detached
        .then(|| "the subscription is detached from its topic: delete it and run `hotcount setup`".to_owned())
}

/// Exactly-once delivery that is not as the URL wants it.
pub(super) fn other_delivery(subscription: &Subscription, options: &Options) -> Option<String> {
    let is = subscription.enable_exactly_once_delivery;
    let desired = options.exactly_once.filter(|desired| *desired != is)?;
    Some(format!(
        "its exactly-once delivery is {is}, and the URL asks for {desired}: run `hotcount setup` with this URL"
    ))
}

fn nothing_arrives(name: &'static str, told: String) -> Finding {
    Finding { name, told, weight: Weight::NothingArrives }
}

fn advice(name: &'static str, told: String) -> Finding {
    Finding { name, told, weight: Weight::Advice }
}

/// What the subscription's own settings say.
fn settings(subscription: &Subscription, options: &Options) -> Vec<Finding> {
    let (name, path) = (options.name(), options.subscription_path());
    let update = format!("gcloud pubsub subscriptions update {path}");
    let mut findings = Vec::new();
    if let Some(told) = cannot_be_pulled(subscription) {
        findings.push(nothing_arrives("delivery", told));
    }
    // Pub/Sub's name for the topic of a subscription that outlived it.
    if !subscription.topic.starts_with("projects/") {
        let told = format!(
            "the topic of {name} was deleted, so nothing new can arrive, also when a topic of the same name is made: when \
             what is left has been counted, delete the subscription and run `hotcount setup --source {name} --store URL`"
        );
        findings.push(nothing_arrives("topic", told));
    }
    if let Some(told) = other_delivery(subscription, options) {
        findings.push(advice("exactly-once delivery", told));
    }
    if !subscription.filter.is_empty() {
        let told =
            format!("{name} delivers only what its filter lets through, and drops the rest: {}", subscription.filter);
        findings.push(advice("filter", told));
    }
    if !subscription.message_transforms.is_empty() {
        let told = format!("{name} changes or drops messages on their way: it has message transforms");
        findings.push(advice("message transforms", told));
    }
    if let Some(kept) = subscription.message_retention_duration.as_ref().filter(|d| d.seconds() < SHORT_RETENTION_S) {
        let told = format!(
            "{name} keeps messages for {} s, so likes are lost when no worker runs for longer: mend it with `{update} \
             --message-retention-duration=7d`",
            kept.seconds()
        );
        findings.push(advice("retention", told));
    }
    let ttl = subscription.expiration_policy.as_ref().and_then(|policy| policy.ttl.as_ref());
    if let Some(ttl) = ttl.filter(|ttl| ttl.seconds() < USUAL_EXPIRATION_S) {
        let told = format!(
            "{name} is deleted with its messages when no worker pulls for {} s: mend it with `{update} \
             --expiration-period=never`",
            ttl.seconds()
        );
        findings.push(advice("expiration", told));
    }
    if let Some(policy) = &subscription.dead_letter_policy {
        findings.extend(attempts(policy, subscription.retry_policy.is_some(), &name, &update));
    }
    findings
}

/// What uses up delivery attempts, and how many there are.
fn attempts(policy: &DeadLetterPolicy, has_backoff: bool, name: &str, update: &str) -> Vec<Finding> {
    let DeadLetterPolicy { dead_letter_topic, max_delivery_attempts, .. } = policy;
    let mut findings = Vec::new();
    if *max_delivery_attempts < FEW_ATTEMPTS {
        let told = format!(
            "{name} gives up a message after {max_delivery_attempts} delivery attempts, and a worker that is killed costs each \
             message that it held one of them, so healthy likes become dead letters: mend it with `{update} \
             --dead-letter-topic={dead_letter_topic} --max-delivery-attempts={MAX_ATTEMPTS}`"
        );
        findings.push(advice("delivery attempts", told));
    }
    if !has_backoff {
        let told = format!(
            "{name} delivers a message again at once, so an outage can use up its {max_delivery_attempts} delivery attempts \
             within seconds: mend it with `{update} --min-retry-delay=10s --max-retry-delay=600s`"
        );
        findings.push(advice("retry policy", told));
    }
    findings
}

/// Whether dead letters are kept anywhere. An account that may not look at their topic is told nothing.
async fn dead_letters(policy: &DeadLetterPolicy, options: &Options, access: &Access) -> Option<Finding> {
    let (topic, name) = (&policy.dead_letter_topic, options.name());
    let mend = format!("run `hotcount setup --source {name} --store URL`");
    if !topic.starts_with("projects/") {
        let told = format!("the topic of the dead letters of {name} was deleted, so none can leave it: {mend}");
        return Some(advice("dead letters", told));
    }
    let topics = access.topics().await.ok()?;
    let subscribed = topics.list_topic_subscriptions().set_topic(topic.clone()).send().await;
    if subscribed.as_ref().is_ok_and(|answer| !answer.subscriptions.is_empty()) {
        return None;
    }
    let told = match topics.get_topic().set_topic(topic.clone()).send().await {
        Err(error) if code(&error) == Some(Code::NotFound) => {
            format!("the topic of the dead letters of {name}, {topic}, is missing, so none can leave it: {mend}")
        }
        Ok(_) if subscribed.is_ok() => {
            format!("dead letters of {name} are lost on arrival, for nothing is subscribed to {topic}: {mend}")
        }
        Ok(_) | Err(_) => return None,
    };
    Some(advice("dead letters", told))
}

fn code(error: &Error) -> Option<Code> {
    error.status().map(|status| status.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use google_cloud_pubsub::model::{ExpirationPolicy, PushConfig, RetryPolicy};
    use google_cloud_wkt::Duration;

    fn healthy() -> Subscription {
        Subscription::new()
            .set_topic("projects/demo/topics/likes")
            .set_message_retention_duration(Duration::clamp(7 * 86_400, 0))
            .set_expiration_policy(ExpirationPolicy::new())
            .set_retry_policy(RetryPolicy::new())
            .set_dead_letter_policy(dead_letters_after(100))
    }

    fn dead_letters_after(attempts: i32) -> DeadLetterPolicy {
        DeadLetterPolicy::new().set_dead_letter_topic("projects/demo/topics/dead").set_max_delivery_attempts(attempts)
    }

    fn found(subscription: &Subscription) -> Vec<(&'static str, Weight)> {
        let options = Options::parse("pubsub://demo/likes?exactly_once=false").unwrap();
        settings(subscription, &options).into_iter().map(|finding| (finding.name, finding.weight)).collect()
    }

    #[test]
    fn what_setup_makes_has_no_finding() {
        assert_eq!(found(&healthy()), []);
    }

    #[test]
    fn what_keeps_everything_away_is_told_from_what_goes_wrong_some_day() {
        let push = PushConfig::new().set_push_endpoint("https://example.com");
        let day = |seconds| Duration::clamp(seconds, 0);
        let mut no_backoff = healthy();
        no_backoff.retry_policy = None;
        for (subscription, expected) in [
            (healthy().set_topic("_deleted-topic_"), ("topic", Weight::NothingArrives)),
            (healthy().set_push_config(push), ("delivery", Weight::NothingArrives)),
            (healthy().set_detached(true), ("delivery", Weight::NothingArrives)),
            (healthy().set_filter("attributes:a"), ("filter", Weight::Advice)),
            (healthy().set_enable_exactly_once_delivery(true), ("exactly-once delivery", Weight::Advice)),
            (healthy().set_message_retention_duration(day(600)), ("retention", Weight::Advice)),
            (
                healthy().set_expiration_policy(ExpirationPolicy::new().set_ttl(day(86_400))),
                ("expiration", Weight::Advice),
            ),
            (healthy().set_dead_letter_policy(dead_letters_after(5)), ("delivery attempts", Weight::Advice)),
            (no_backoff, ("retry policy", Weight::Advice)),
        ] {
            assert_eq!(found(&subscription), [expected]);
        }
    }

    #[test]
    fn few_delivery_attempts_are_said_with_their_number_and_the_command_that_mends_it() {
        let options = Options::parse("pubsub://demo/likes").unwrap();
        let findings = settings(&healthy().set_dead_letter_policy(dead_letters_after(5)), &options);
        assert!(findings[0].told.contains("after 5 delivery attempts"), "{findings:?}");
        let command = "`gcloud pubsub subscriptions update projects/demo/subscriptions/likes \
                       --dead-letter-topic=projects/demo/topics/dead --max-delivery-attempts=100`";
        assert!(findings[0].told.contains(command), "{findings:?}");
    }
}
