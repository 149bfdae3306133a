//! What the broker gave up on: looking at it, and sending it again.
//!
//! A dead letter is a new message on another topic: its own id and publish time, the old payload and attributes, and
//! attributes of the broker's that say where it comes from. Sending it again is safe, because counting is idempotent; so
//! it is published first and acknowledged after the broker has confirmed that, never the other way round.

use super::setup::inspect_subscription_of;
use super::{Access, Options, PubSub, failure};
use crate::source::ack::{Ack, Settlement};
use crate::source::{ConnectError, Delivery, Source, SourceError, Stream};
use bytes::Bytes;
use futures::future::join_all;
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::model::Message;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What the names of the broker's own attributes begin with. The likes' own stay.
const MARK: &str = "CloudPubSubDeadLetterSource";

/// How long one publish may take. The library tries again by itself for ten minutes and says nothing meanwhile; a letter
/// that is not confirmed in time stays where it is, and perhaps goes out twice.
const PUBLISH_WITHIN: Duration = Duration::from_secs(30);

/// The subscription that keeps dead letters, and the topic that they came from.
pub struct DeadLetters {
    source: PubSub,
    stream: Option<Box<dyn Stream>>,
    publisher: Publisher,
    topic: String,
}

/// One message that the broker gave up on. Dropping it gives it back.
#[derive(Debug)]
pub struct DeadLetter {
    /// Its id as a dead letter.
    pub message_id: String,
    /// The subscription that gave up on it.
    pub subscription: Option<String>,
    /// How often it was delivered there.
    pub attempts: Option<u32>,
    /// When it was published first.
    pub published_at: Option<SystemTime>,
    /// When it became a dead letter.
    pub dead_since: Option<SystemTime>,
    /// The payload.
    pub payload: Bytes,
    /// The message's own attributes.
    pub attributes: Vec<(String, String)>,
    /// The right to acknowledge it.
    pub ack: Ack,
}

impl DeadLetters {
    /// The dead letters of the source that `url` names. They are looked for where `hotcount setup` makes them wait,
    /// unless `subscription` names another one.
    ///
    /// # Errors
    /// When the URL is not understood, the source has no dead letters, or Pub/Sub does not answer. The text says what to
    /// do.
    pub async fn open(url: &str, subscription: Option<&str>, at_once: u32) -> Result<Self, ConnectError> {
        let options = Options::parse(url)?;
        let access = Access::new(options.emulator.as_deref());
        let unavailable = |problem| ConnectError::Unavailable { url: options.name(), problem };
        let no_client = |e| unavailable(failure::no_client(&e, &access));
        let admin = access.subscriptions().await.map_err(no_client)?;
        let likes = admin.get_subscription().set_subscription(options.subscription_path()).send().await;
        let likes = likes.map_err(|error| unavailable(failure::sentence(&error, &options, &access)))?;
        let set_up = format!("run `hotcount setup --source {}`", options.name());
        if likes.dead_letter_policy.is_none() {
            return Err(unavailable(format!("the subscription has no dead letters, so nothing is given up: {set_up}")));
        }
        if !likes.topic.starts_with("projects/") {
            return Err(unavailable(format!("its topic was deleted, so nothing can be sent there again: {set_up}")));
        }
        let kept = subscription.map_or_else(|| inspect_subscription_of(&options.project, &likes.topic), str::to_owned);
        let id = kept.rsplit('/').next().unwrap_or(&kept).to_owned();
        let inspect =
            Options { subscription: id, streams: 1, outstanding: at_once, exactly_once: None, ..options.clone() };
        if let Err(error) = admin.get_subscription().set_subscription(inspect.subscription_path()).send().await
            && error.status().is_some_and(|status| status.code == Code::NotFound)
        {
            let missing = inspect.subscription_path();
            return Err(unavailable(format!(
                "there is no subscription {missing}, without which dead letters are lost on arrival: {set_up}, or name \
                 the one that keeps them with --subscription"
            )));
        }
        let publisher = access.publisher(&likes.topic).await.map_err(no_client)?;
        Ok(Self { source: PubSub::open(inspect).await?, stream: None, publisher, topic: likes.topic })
    }

    /// Where they wait: `pubsub://PROJECT/SUBSCRIPTION`.
    #[must_use]
    pub fn name(&self) -> String {
        self.source.name()
    }

    /// Where they are published again: `projects/PROJECT/topics/TOPIC`.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The next dead letters, up to `max`; none when nothing came for `wait`. The broker never says that there are no
    /// more.
    ///
    /// # Errors
    /// When Pub/Sub refuses to deliver, or does not answer.
    pub async fn pull(&mut self, max: usize, wait: Duration) -> Result<Vec<DeadLetter>, SourceError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(self.source.open(0).await?),
        };
        match tokio::time::timeout(wait, stream.pull(max)).await {
            Ok(deliveries) => Ok(deliveries?.into_iter().map(DeadLetter::from).collect()),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Publishes letters to the topic that they came from, each with its own attributes, and acknowledges those that
    /// were confirmed. Answers, in their order, the new message's id or why a letter stays.
    pub async fn redrive(&self, letters: Vec<DeadLetter>) -> Vec<Result<String, String>> {
        let sent: Vec<_> = letters
            .into_iter()
            .map(|letter| {
                let message = Message::new().set_data(letter.payload).set_attributes(letter.attributes);
                (letter.ack, self.publisher.publish(message))
            })
            .collect();
        let answers = sent.into_iter().map(|(ack, answer)| async move {
            let id = match tokio::time::timeout(PUBLISH_WITHIN, answer).await {
                Ok(Ok(id)) => id,
                Ok(Err(error)) => return Err(format!("{} does not take it ({error})", self.topic)),
                Err(_) => return Err(format!("{} did not answer within {} s", self.topic, PUBLISH_WITHIN.as_secs())),
            };
            // Durable, if not counted yet: the topic has it.
            if let Some(confirmation) = ack.settle(&Settlement::Counted)
                && let Err(error) = confirmation.await
            {
                return Err(format!("it was sent again as {id}, and stays here too ({error})"));
            }
            Ok(id)
        });
        join_all(answers).await
    }

    /// Gives back what was received and not redriven, and returns when the broker has been told.
    pub async fn close(mut self) {
        drop(self.stream.take());
        self.source.close().await;
    }
}

impl From<Delivery> for DeadLetter {
    fn from(delivery: Delivery) -> Self {
        let meta = delivery.meta.map(|meta| *meta).unwrap_or_default();
        let (marks, attributes): (Vec<_>, Vec<_>) =
            meta.attributes.into_iter().partition(|(name, _)| name.starts_with(MARK));
        let mark = |name: &str| {
            let of_name = |(key, _): &&(String, String)| key.strip_prefix(MARK) == Some(name);
            marks.iter().find(of_name).map(|(_, value)| value.clone())
        };
        Self {
            message_id: meta.message_id.unwrap_or_default(),
            subscription: mark("Subscription"),
            attempts: mark("DeliveryCount").and_then(|count| count.parse().ok()),
            published_at: mark("TopicPublishTime")
                .and_then(|time| OffsetDateTime::parse(&time, &Rfc3339).map(SystemTime::from).ok()),
            dead_since: meta.published_at,
            payload: delivery.payload,
            attributes,
            ack: delivery.ack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Meta;
    use crate::source::ack::SettleMany;
    use std::sync::Arc;

    struct Nobody;

    impl SettleMany for Nobody {
        fn settled(&self, _: u32, _: &Settlement) {}
        fn dropped(&self, _: u32) {}
    }

    #[test]
    fn the_marks_of_the_broker_are_read_and_do_not_go_out_again() {
        let attributes = [
            ("CloudPubSubDeadLetterSourceDeliveryCount", "5"),
            ("CloudPubSubDeadLetterSourceSubscription", "likes"),
            ("CloudPubSubDeadLetterSourceSubscriptionProject", "demo"),
            ("CloudPubSubDeadLetterSourceTopicPublishTime", "2026-01-01T00:00:00.5+00:00"),
            ("trace", "7"),
        ];
        let meta = Meta {
            message_id: Some("9".to_owned()),
            attributes: attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
            published_at: Some(SystemTime::UNIX_EPOCH),
            attempt: Some(2),
        };
        let letter = DeadLetter::from(Delivery {
            payload: Bytes::from_static(b"like"),
            received_at: SystemTime::UNIX_EPOCH,
            meta: Some(Box::new(meta)),
            ack: Ack::of_many(Arc::new(Nobody), 0),
            share: None,
        });
        assert_eq!((letter.message_id.as_str(), letter.subscription.as_deref()), ("9", Some("likes")));
        assert_eq!((letter.attempts, letter.dead_since), (Some(5), Some(SystemTime::UNIX_EPOCH)));
        let published = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_225_600_500);
        assert_eq!(letter.published_at, Some(published));
        assert_eq!(letter.attributes, [("trace".to_owned(), "7".to_owned())]);
    }
}
