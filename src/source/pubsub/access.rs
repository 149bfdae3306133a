//! How to reach Pub/Sub: the service, or an emulator. The client library does not read `PUBSUB_EMULATOR_HOST`; this does.

use crate::common::adapter_url::emulator_of;
use google_cloud_auth::credentials::anonymous;
use google_cloud_gax::client_builder;
use google_cloud_gax::retry_policy::RetryPolicyExt;
use google_cloud_pubsub::client::{Publisher, Subscriber, SubscriptionAdmin, TopicAdmin};
use google_cloud_pubsub::retry_policy::RetryableErrors;
use std::time::Duration;

/// How long an administrative call is tried. Long enough to fetch a token or for an emulator to come up beside the
/// worker, short enough that a wrong host name is not mistaken for a quiet topic.
pub(super) const ADMIN_WITHIN: Duration = Duration::from_secs(10);

/// One client call has at most this long, so that a black hole leaves time for a second try.
const ADMIN_ATTEMPT: Duration = Duration::from_secs(4);

/// Streams a connection. Servers allow 100 requests at once on one, and acks and lease extensions travel there too.
const STREAMS_PER_CONNECTION: usize = 32;

/// Where Pub/Sub is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The URL of an emulator; `None` for the service.
    emulator: Option<String>,
}

impl Access {
    /// The emulator at `host_port` where one is given, else the one that `PUBSUB_EMULATOR_HOST` names, else the service.
    #[must_use]
    pub fn new(host_port: Option<&str>) -> Self {
        let from_environment = || emulator_of(std::env::var("PUBSUB_EMULATOR_HOST").ok());
        let host = host_port.map(str::to_owned).or_else(from_environment);
        Self { emulator: host.map(|h| if h.contains("://") { h } else { format!("http://{h}") }) }
    }

    /// Whether it is an emulator, which has no IAM.
    #[must_use]
    pub fn is_emulator(&self) -> bool {
        self.emulator.is_some()
    }

    /// What people know it as.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.emulator {
            Some(url) => format!("the Pub/Sub emulator at {url}"),
            None => "Pub/Sub".to_owned(),
        }
    }

    /// A client that publishes to `topic`, `projects/PROJECT/topics/TOPIC`.
    ///
    /// # Errors
    /// When there are no credentials.
    pub async fn publisher(&self, topic: &str) -> Result<Publisher, client_builder::Error> {
        let mut builder = Publisher::builder(topic);
        if let Some(url) = &self.emulator {
            builder = builder.with_endpoint(url).with_credentials(anonymous::Builder::new().build());
        }
        builder.build().await
    }

    /// A client that pulls `streams` streams. It connects anew: two clients share no connection.
    pub(super) async fn subscriber(&self, streams: usize) -> Result<Subscriber, client_builder::Error> {
        let mut builder = Subscriber::builder().with_grpc_subchannel_count(streams.div_ceil(STREAMS_PER_CONNECTION));
        if let Some(url) = &self.emulator {
            builder = builder.with_endpoint(url).with_credentials(anonymous::Builder::new().build());
        }
        builder.build().await
    }

    /// A client that manages topics.
    ///
    /// # Errors
    /// When there are no credentials.
    pub async fn topics(&self) -> Result<TopicAdmin, client_builder::Error> {
        let mut builder = TopicAdmin::builder()
            .with_retry_policy(RetryableErrors.with_time_limit(ADMIN_WITHIN))
            .with_attempt_timeout(ADMIN_ATTEMPT);
        if let Some(url) = &self.emulator {
            builder = builder.with_endpoint(url).with_credentials(anonymous::Builder::new().build());
        }
        builder.build().await
    }

    /// A client that manages subscriptions.
    ///
    /// # Errors
    /// When there are no credentials.
    pub async fn subscriptions(&self) -> Result<SubscriptionAdmin, client_builder::Error> {
        let mut builder = SubscriptionAdmin::builder()
            .with_retry_policy(RetryableErrors.with_time_limit(ADMIN_WITHIN))
            .with_attempt_timeout(ADMIN_ATTEMPT);
        if let Some(url) = &self.emulator {
            builder = builder.with_endpoint(url).with_credentials(anonymous::Builder::new().build());
        }
        builder.build().await
    }
}
