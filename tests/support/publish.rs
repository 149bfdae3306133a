//! A topic and a subscription of one test on the Pub/Sub emulator, and publishing to it.

use super::emulators;
use bytes::Bytes;
use futures::future::select_all;
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::client::{Publisher, SubscriptionAdmin};
use google_cloud_pubsub::model::{DeadLetterPolicy, Message, Subscription};
use hotcount::source::pubsub::{Access, PubSub};
use hotcount::source::{Delivery, Source};
use std::collections::BTreeMap;

/// The project of all tests. The emulator makes no difference between projects that exist and those that do not.
pub const PROJECT: &str = "demo";

/// A topic and a subscription that no other test uses.
pub struct Topic {
    /// `HOST:PORT` of the emulator.
    pub host: String,
    /// The subscription's id.
    pub subscription: String,
    /// The subscription's path.
    pub subscription_path: String,
    pub admin: SubscriptionAdmin,
    publisher: Publisher,
}

impl Topic {
    /// A subscription that `change` finishes. Unless it says otherwise, a dropped message comes back at once. `None`
    /// where there is no emulator.
    pub async fn new(change: impl FnOnce(Subscription) -> Subscription) -> Option<Self> {
        let host = emulators::pubsub()?;
        let access = Access::new(Some(&host));
        let (topic, subscription) = (emulators::unique("topic"), emulators::unique("likes"));
        let topic = format!("projects/{PROJECT}/topics/{topic}");
        let subscription_path = format!("projects/{PROJECT}/subscriptions/{subscription}");
        made(access.topics().await.unwrap().create_topic().set_name(&topic).send().await);
        let admin = access.subscriptions().await.unwrap();
        let request = Subscription::new().set_name(&subscription_path).set_topic(&topic).set_ack_deadline_seconds(10);
        made(admin.create_subscription().with_request(change(request)).send().await);
        let publisher = access.publisher(&topic).await.unwrap();
        Some(Self { host, subscription, subscription_path, admin, publisher })
    }

    /// The source's URL, with `options` such as `streams=1` in its query.
    pub fn url(&self, options: &str) -> String {
        format!("pubsub://{PROJECT}/{}?emulator={}&{options}", self.subscription, self.host)
    }

    /// Publishes one message, and returns its id once the emulator has it.
    pub async fn publish(&self, payload: &[u8], attributes: &[(&str, &str)]) -> String {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let message = Message::new().set_data(payload.to_vec()).set_attributes(attributes);
        let sent = self.publisher.publish(message);
        self.publisher.flush().await;
        sent.await.unwrap()
    }

    /// Publishes many messages.
    pub async fn publish_all(&self, payloads: impl IntoIterator<Item = String>) {
        let sent: Vec<_> =
            payloads.into_iter().map(|p| self.publisher.publish(Message::new().set_data(p.into_bytes()))).collect();
        self.publisher.flush().await;
        for one in sent {
            one.await.unwrap();
        }
    }

    /// What is delivered, sorted, while every lease that nobody extends runs out: empty if all was acknowledged.
    ///
    /// Only the broker's clock is trusted: a message is held through its max lease until it comes back, and by then
    /// every lease that began before has run out too. Several streams, for the emulator goes on for a while giving some
    /// messages to streams that were cancelled, a lease at a time: the more streams live, the fewer go there.
    pub async fn left(&self) -> Vec<Bytes> {
        const STREAMS: usize = 8;
        let source = PubSub::connect(&self.url("streams=8&extension_s=10&max_lease_s=10")).await.unwrap();
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            streams.push(source.open(number).await.unwrap());
        }
        let marker = self.publish(b"marker", &[]).await;
        let mut held = Vec::new();
        while held.iter().filter(|d| id(d) == marker).count() < 2 {
            // A pull that is cancelled loses nothing, which the conformance suite tests by itself.
            let (pulled, _, _) = select_all(streams.iter_mut().map(|stream| stream.pull(1_000))).await;
            held.extend(pulled.unwrap());
        }
        let left: BTreeMap<&str, Bytes> = held.iter().map(|d| (id(d), d.payload.clone())).collect();
        let mut left: Vec<Bytes> = left.into_iter().filter(|(id, _)| *id != marker).map(|(_, data)| data).collect();
        left.sort();
        left
    }
}

/// The client asks again when an answer takes long, as of an emulator that has just started, and then hears that it is there.
pub fn made<T>(answer: google_cloud_pubsub::Result<T>) {
    if let Err(error) = answer {
        let there = error.status().is_some_and(|status| status.code == Code::AlreadyExists);
        assert!(there, "{error}");
    }
}

fn id(delivery: &Delivery) -> &str {
    delivery.meta.as_ref().and_then(|meta| meta.message_id.as_deref()).unwrap_or_default()
}

/// `subscription` with a count of delivery attempts, which there is only with a dead-letter topic. Nobody listens to
/// the topic named here, and no test makes 100 attempts.
pub fn with_attempts(subscription: Subscription) -> Subscription {
    let topic = subscription.topic.clone();
    subscription
        .set_dead_letter_policy(DeadLetterPolicy::new().set_dead_letter_topic(topic).set_max_delivery_attempts(100))
}
