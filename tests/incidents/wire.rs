//! A subscription of a test's own on Google's emulator, behind a wire that the test can spoil.

use super::*;
use google_cloud_pubsub::model::Subscription;
use hotcount::source::pubsub::PubSub;
use prost::Message;
use std::collections::BTreeMap;

pub(crate) struct Wire {
    pub(crate) topic: Topic,
    pub(crate) proxy: Proxy,
}

impl Wire {
    /// `None` where there is no emulator. `rule` decides about every call of the source; publishing goes past the wire.
    pub(crate) async fn spoiled(
        change: impl FnOnce(Subscription) -> Subscription,
        rule: impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static,
    ) -> Option<Self> {
        let topic = Topic::new(change).await?;
        let proxy = Proxy::start(&topic.host, rule).await;
        Some(Self { topic, proxy })
    }

    /// The same with exactly-once delivery.
    pub(crate) async fn exactly_once(rule: impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static) -> Option<Self> {
        Self::spoiled(|s| s.set_enable_exactly_once_delivery(true), rule).await
    }

    /// A source behind the wire with short leases.
    pub(crate) async fn source(&self, options: &str) -> PubSub {
        let host = self.proxy.host();
        let url = self.topic.url(&format!("extension_s=10&{options}")).replace(&self.topic.host, host);
        PubSub::connect(&url).await.unwrap()
    }

    /// A worker that is given `likes`, until each has been written.
    pub(crate) async fn worker(&self, likes: usize, store: Arc<dyn Store>) -> Worker {
        let worker = Worker::start(self.source("streams=2").await, store, config());
        self.topic.publish_all((0..likes).map(like)).await;
        soon("each like is written", || worker.progress.counted().applied == likes as u64).await;
        worker
    }

    /// Nothing comes any more.
    pub(crate) async fn assert_empty(&self) {
        assert_eq!(self.topic.left().await, Vec::<bytes::Bytes>::new());
    }
}

/// The part of `AcknowledgeRequest` and of `ModifyAckDeadlineRequest` that rules look at.
#[derive(Clone, PartialEq, Message)]
struct AckIds {
    #[prost(string, repeated, tag = "2")]
    acknowledge: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Extension {
    #[prost(int32, tag = "3")]
    deadline_seconds: i32,
}

/// `google.rpc.Status`, `google.protobuf.Any` and `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

/// How many ids an `Acknowledge` names.
pub(crate) fn ack_ids(call: &Call<'_>) -> Vec<String> {
    AckIds::decode(call.message).unwrap().acknowledge
}

/// Whether a `ModifyAckDeadline` extends a lease, rather than ends it.
pub(crate) fn extends(call: &Call<'_>) -> bool {
    call.method == "ModifyAckDeadline" && Extension::decode(call.message).unwrap().deadline_seconds > 0
}

/// What the service answers to an `Acknowledge` of which each id failed for `reason`.
pub(crate) fn each_failed(call: &Call<'_>, reason: &str) -> Status {
    const FAILED_PRECONDITION: u16 = 9;
    let metadata = ack_ids(call).into_iter().map(|id| (id, reason.to_owned())).collect();
    let info = Any {
        type_url: "type.googleapis.com/google.rpc.ErrorInfo".to_owned(),
        value: ErrorInfo { metadata }.encode_to_vec(),
    };
    let status = RpcStatus { code: FAILED_PRECONDITION.into(), details: vec![info] };
    Status::new(FAILED_PRECONDITION, "some acknowledgement ids failed").with_details(status.encode_to_vec())
}
