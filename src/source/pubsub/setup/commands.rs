//! The same as shell commands, for those who keep their infrastructure in scripts.

use super::desired::{
    ACK_DEADLINE_S, DEAD_LETTER_RETENTION_DAYS, MAX_ATTEMPTS, MAX_BACKOFF_S, MIN_BACKOFF_S, RETENTION_DAYS,
};
use super::{Config, dead_letter_topic_of, inspect_subscription_of};

/// The `gcloud` commands that do what [`super::setup`] does, and the two permissions besides which dead letters need on
/// the real service. Each is one line of shell.
#[must_use]
pub fn commands(config: &Config) -> Vec<String> {
    let (project, topic) = (&config.options.project, config.topic());
    let dead_letters = dead_letter_topic_of(project, &topic);
    let inspect = inspect_subscription_of(project, &topic);
    let likes = config.options.subscription_path();
    let exactly_once = match config.options.exactly_once {
        Some(true) => " --enable-exactly-once-delivery",
        Some(false) | None => "",
    };
    let mut commands = vec![
        format!("gcloud pubsub topics create {topic}"),
        format!("gcloud pubsub topics create {dead_letters}"),
        format!(
            "gcloud pubsub subscriptions create {inspect} --topic={dead_letters} --ack-deadline={ACK_DEADLINE_S} \
             --message-retention-duration={DEAD_LETTER_RETENTION_DAYS}d --expiration-period=never"
        ),
        format!(
            "gcloud pubsub subscriptions create {likes} --topic={topic} --ack-deadline={ACK_DEADLINE_S} \
             --message-retention-duration={RETENTION_DAYS}d --expiration-period=never \
             --min-retry-delay={MIN_BACKOFF_S}s --max-retry-delay={MAX_BACKOFF_S}s \
             --dead-letter-topic={dead_letters} --max-delivery-attempts={MAX_ATTEMPTS}{exactly_once}"
        ),
    ];
    commands.extend(bindings(project, &dead_letters, &likes));
    commands
}

/// Pub/Sub moves a dead letter as its own service agent: it publishes to the dead-letter topic and acknowledges on the
/// subscription, and may do neither by default. The agent's address has the project's number in it.
pub(super) fn bindings(project: &str, dead_letters: &str, likes: &str) -> Vec<String> {
    let number = format!("$(gcloud projects describe {project} --format='value(projectNumber)')");
    let member = format!("--member=\"serviceAccount:service-{number}@gcp-sa-pubsub.iam.gserviceaccount.com\"");
    vec![
        format!("gcloud pubsub topics add-iam-policy-binding {dead_letters} {member} --role=roles/pubsub.publisher"),
        format!("gcloud pubsub subscriptions add-iam-policy-binding {likes} {member} --role=roles/pubsub.subscriber"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_make_the_same_things_and_grant_what_dead_letters_need() {
        let config = Config::from_url("pubsub://demo/likes?topic=posts&exactly_once=true").unwrap();
        insta::assert_snapshot!(commands(&config).join("\n"), @r#"
        gcloud pubsub topics create projects/demo/topics/posts
        gcloud pubsub topics create projects/demo/topics/posts-dead-letters
        gcloud pubsub subscriptions create projects/demo/subscriptions/posts-dead-letters-inspect --topic=projects/demo/topics/posts-dead-letters --ack-deadline=60 --message-retention-duration=31d --expiration-period=never
        gcloud pubsub subscriptions create projects/demo/subscriptions/likes --topic=projects/demo/topics/posts --ack-deadline=60 --message-retention-duration=7d --expiration-period=never --min-retry-delay=10s --max-retry-delay=600s --dead-letter-topic=projects/demo/topics/posts-dead-letters --max-delivery-attempts=100 --enable-exactly-once-delivery
        gcloud pubsub topics add-iam-policy-binding projects/demo/topics/posts-dead-letters --member="serviceAccount:service-$(gcloud projects describe demo --format='value(projectNumber)')@gcp-sa-pubsub.iam.gserviceaccount.com" --role=roles/pubsub.publisher
        gcloud pubsub subscriptions add-iam-policy-binding projects/demo/subscriptions/likes --member="serviceAccount:service-$(gcloud projects describe demo --format='value(projectNumber)')@gcp-sa-pubsub.iam.gserviceaccount.com" --role=roles/pubsub.subscriber
        "#);
    }

    #[test]
    fn a_topic_is_called_as_the_subscription_unless_the_url_names_it() {
        let topic = |url: &str| Config::from_url(url).unwrap().topic();
        assert_eq!(topic("pubsub://demo/likes"), "projects/demo/topics/likes");
        assert_eq!(topic("pubsub://demo/likes?topic=posts"), "projects/demo/topics/posts");
        assert_eq!(topic("pubsub://demo/likes?topic=projects/other/topics/posts"), "projects/other/topics/posts");
    }
}
