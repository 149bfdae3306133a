//! A Pub/Sub topic. The client library gathers messages into publish requests of its own.

use super::{Accepted, Batch, ConnectError, SendError, Target};
use crate::common::adapter_url::{AdapterUrl, Known, UrlError};
use crate::source::pubsub::Access;
use async_trait::async_trait;
use futures::future::join_all;
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::error::PublishError;
use google_cloud_pubsub::model::Message;
use std::time::Duration;

/// Messages published at once: ten requests of the library's hundred.
const BATCH_MESSAGES: usize = 1_000;

/// How long one batch may take before what is not answered counts as not accepted. The library tries again by itself
/// for ten minutes, and says nothing meanwhile. What it still holds then is bounded by the driver's retries.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A topic.
pub struct PubSub {
    publisher: Publisher,
    name: String,
    access: Access,
}

impl PubSub {
    /// Reads `pubsub://PROJECT/TOPIC[?emulator=HOST:PORT]` and makes a client. Whether the topic exists shows when
    /// something is sent.
    ///
    /// # Errors
    /// When the URL is not understood or there are no credentials.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let (project, topic, emulator) = parse(url)?;
        let name = format!("pubsub://{project}/{topic}");
        let access = Access::new(emulator.as_deref());
        let path = format!("projects/{project}/topics/{topic}");
        let publisher = access.publisher(&path).await.map_err(|error| {
            let problem = format!(
                "there is no client for {}: run `gcloud auth application-default login`, or set PUBSUB_EMULATOR_HOST \
                 to use an emulator ({error})",
                access.place()
            );
            ConnectError { url: name.clone(), problem }
        })?;
        Ok(Self { publisher, name, access })
    }

    fn missing(&self) -> String {
        format!("there is no topic {} at {}", self.name, self.access.place())
    }

    /// What to do when there is no topic of the name: perhaps it is a subscription's, whose topic has another one.
    async fn advice(&self) -> String {
        let (project, id) = self.place();
        let make = format!("make it with `hotcount setup --source {} --store URL`", self.name);
        let Ok(admin) = self.access.subscriptions().await else { return make };
        let path = format!("projects/{project}/subscriptions/{id}");
        let Ok(subscription) = admin.get_subscription().set_subscription(path).send().await else { return make };
        match subscription.topic.strip_prefix("projects/").and_then(|path| path.split_once("/topics/")) {
            Some((project, topic)) => {
                format!("the subscription {id} has another topic: send to pubsub://{project}/{topic}")
            }
            None => format!(
                "the topic of the subscription {id} was deleted: delete the subscription when it is empty, and run \
                 `hotcount setup --source {} --store URL`",
                self.name
            ),
        }
    }

    /// Project and topic.
    fn place(&self) -> (&str, &str) {
        self.name.trim_start_matches("pubsub://").split_once('/').unwrap_or_default()
    }

    fn failed(&self, error: &PublishError) -> (bool, String) {
        let PublishError::Rpc(error) = error else {
            return (true, format!("{} did not take a message ({error})", self.name));
        };
        let said = error.status().map_or_else(|| error.to_string(), |status| status.message.clone());
        match error.status().map(|status| status.code) {
            Some(Code::NotFound) => (false, format!("{} ({said})", self.missing())),
            Some(Code::PermissionDenied | Code::Unauthenticated) => (
                false,
                format!("this account may not publish to {}: grant it roles/pubsub.publisher ({said})", self.name),
            ),
            Some(Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::Unimplemented) => {
                (false, format!("{} refuses a message ({said})", self.name))
            }
            _ => (true, format!("{} does not answer ({said})", self.access.place())),
        }
    }
}

const EXPECTED: &str = "write pubsub://PROJECT/TOPIC";

const KNOWN: &[Known] = &[Known::new("emulator", "HOST:PORT")];

/// Project, topic and emulator of a URL.
fn parse(url: &str) -> Result<(String, String, Option<String>), UrlError> {
    let url = AdapterUrl::parse(url)?;
    let names = url.names(EXPECTED)?;
    let [project, topic] = &names[..] else { return Err(url.refused(EXPECTED)) };
    if project.is_empty() || topic.is_empty() || names.iter().any(|name| name.contains(['/', '@'])) {
        return Err(url.refused(EXPECTED));
    }
    let options = url.options(KNOWN)?;
    Ok((project.clone(), topic.clone(), options.host_port("emulator")?))
}

#[async_trait]
impl Target for PubSub {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn batch_messages(&self) -> usize {
        BATCH_MESSAGES
    }

    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError> {
        let sent = batch.messages().map(|message| {
            let sent = self.publisher.publish(Message::new().set_data(message));
            async move { tokio::time::timeout(ANSWER_TIMEOUT, sent).await }
        });
        let mut error: Option<SendError> = None;
        for (place, answer) in join_all(sent).await.into_iter().enumerate() {
            let (transient, message) = match &answer {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => self.failed(error),
                Err(_) => {
                    (true, format!("{} did not answer within {} s", self.access.place(), ANSWER_TIMEOUT.as_secs()))
                }
            };
            match &mut error {
                // One message that can never be accepted is enough to give up.
                Some(error) => {
                    error.left.get_or_insert_default().push(place);
                    if error.transient && !transient {
                        (error.transient, error.message) = (false, message);
                    }
                }
                None => error = Some(SendError { transient, message, left: Some(vec![place]) }),
            }
        }
        if let Some(error) = &mut error
            && error.message.starts_with(&self.missing())
        {
            error.message += &format!(": {}", self.advice().await);
        }
        error.map_or_else(|| Ok(Accepted::default()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_project_and_a_topic() {
        let parsed = parse("pubsub://demo/likes?emulator=127.0.0.1:9").expect("a topic");
        assert_eq!(parsed, ("demo".to_owned(), "likes".to_owned(), Some("127.0.0.1:9".to_owned())));
        for url in ["pubsub:likes", "pubsub://demo", "pubsub://demo/", "pubsub://demo/a/b", "pubsub://demo/likes?x=1"] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
