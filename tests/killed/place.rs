//! Where a round happens: a project of its own on the emulators with a wire before each, or a directory.

use crate::process::{run, stderr, stdout};
use crate::support::emulators::{firestore, pubsub, unique};
use crate::support::proxy::{Call, Proxy, Status, Verdict};
use crate::trap::Trap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tempfile::TempDir;

/// Messages in one request to publish.
const PUBLISHED_AT_ONCE: usize = 50;

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    PubSubToFirestore,
    HttpToEmbedded,
    PubSubToEmbedded,
    HttpToFirestore,
}

impl Way {
    pub(crate) const ALL: [Self; 4] =
        [Self::PubSubToFirestore, Self::HttpToEmbedded, Self::PubSubToEmbedded, Self::HttpToFirestore];

    pub(crate) fn pulls_pubsub(self) -> bool {
        matches!(self, Self::PubSubToFirestore | Self::PubSubToEmbedded)
    }

    pub(crate) fn writes_firestore(self) -> bool {
        matches!(self, Self::PubSubToFirestore | Self::HttpToFirestore)
    }
}

/// How the subscription is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Without a retry policy: a killed worker's messages come back when their lease ends, not after a backoff that grows
    /// each time the emulator gives them to a stream that is gone.
    Plain,
    /// As `hotcount setup` makes it.
    BySetup,
    /// As `hotcount setup` makes it, and then as `Plain`.
    BySetupWithoutBackoff,
}

struct Wire {
    /// `host:port` of the emulator itself.
    emulator: String,
    proxy: Proxy,
}

impl Wire {
    async fn new(emulator: String, rule: impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        let proxy = Proxy::start(&emulator, rule).await;
        Self { emulator, proxy }
    }
}

pub(crate) struct Place {
    pub(crate) way: Way,
    pub(crate) trap: Arc<Trap>,
    project: String,
    source: Option<Wire>,
    store: Option<Wire>,
    directory: TempDir,
    /// Bytes of one generation of the embedded store.
    pub(crate) memory_bytes: Option<u64>,
    /// For how long a worker extends a lease at a time.
    pub(crate) extension_s: u32,
}

impl Place {
    /// `None` where an emulator that it needs is not installed.
    pub(crate) async fn new(way: Way, made: Made) -> Option<Self> {
        let trap = Arc::new(Trap::default());
        let (at_source, at_store) = (Arc::clone(&trap), Arc::clone(&trap));
        let source = match way.pulls_pubsub() {
            true => Some(Wire::new(pubsub()?, move |call| at_source.verdict(call)).await),
            false => None,
        };
        let store = match way.writes_firestore() {
            true => Some(Wire::new(firestore()?, move |call| at_store.verdict_of_the_store(call)).await),
            false => None,
        };
        let directory = TempDir::new().unwrap();
        let project = unique("killed");
        let place = Self {
            way,
            trap: Arc::clone(&trap),
            project,
            source,
            store,
            directory,
            memory_bytes: None,
            extension_s: 10,
        };
        match made {
            _ if !way.pulls_pubsub() => {}
            Made::BySetup | Made::BySetupWithoutBackoff => {
                let output = run(&["setup", "--source", &place.source(1), "--store", &place.store()]);
                assert!(output.status.success(), "{}", stderr(&output));
                if made == Made::BySetupWithoutBackoff {
                    place.drop_the_retry_policy().await;
                }
            }
            Made::Plain => {
                let topic = format!("projects/{}/topics/likes", place.project);
                place.put("topics/likes", json!({})).await;
                place.put("subscriptions/likes", json!({"topic": topic, "ackDeadlineSeconds": 10})).await;
            }
        }
        Some(place)
    }

    /// The source for a worker. One that follows others has more streams than they: the emulator may give a message to a
    /// stream that is gone, for one lease each time, and many live streams make that rare.
    pub(crate) fn source(&self, streams: usize) -> String {
        match &self.source {
            Some(wire) => self.source_at(wire.proxy.host(), streams),
            None => "http:".to_owned(),
        }
    }

    fn source_at(&self, host: &str, streams: usize) -> String {
        let (project, extension_s) = (&self.project, self.extension_s);
        format!("pubsub://{project}/likes?emulator={host}&streams={streams}&extension_s={extension_s}")
    }

    /// The store for a worker.
    pub(crate) fn store(&self) -> String {
        self.store.as_ref().map_or_else(|| self.embedded(), |wire| self.firestore_at(wire.proxy.host()))
    }

    /// The store for whoever looks when no worker runs.
    pub(crate) fn store_itself(&self) -> String {
        self.store.as_ref().map_or_else(|| self.embedded(), |wire| self.firestore_at(&wire.emulator))
    }

    fn embedded(&self) -> String {
        let memory = self.memory_bytes.map_or_else(String::new, |bytes| format!("?memory_bytes={bytes}"));
        format!("embedded:{}{memory}", self.directory.path().display())
    }

    fn firestore_at(&self, host: &str) -> String {
        format!("firestore://{}?emulator={host}", self.project)
    }

    /// From now on the store refuses every call.
    pub(crate) fn refuse_all(&self) {
        self.trap.take_the_store_away(Verdict::Refuse(Status::new(14, "the store is away")));
    }

    /// From now on the store answers nothing, and the connections to it are dead.
    pub(crate) fn silence_all(&self) {
        self.trap.take_the_store_away(Verdict::HoldRequest);
        if let Some(wire) = &self.store {
            wire.proxy.freeze();
        }
    }

    fn admin(&self) -> String {
        let wire = self.source.as_ref().expect("a place with Pub/Sub");
        format!("http://{}/v1/projects/{}", wire.emulator, self.project)
    }

    async fn put(&self, path: &str, body: Value) {
        let request = reqwest::Client::new().put(format!("{}/{path}", self.admin())).body(body.to_string());
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    async fn drop_the_retry_policy(&self) {
        let name = format!("projects/{}/subscriptions/likes", self.project);
        let body = json!({"subscription": {"name": name}, "updateMask": "retryPolicy"}).to_string();
        let request = reqwest::Client::new().patch(format!("{}/subscriptions/likes", self.admin())).body(body);
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success() && !text.contains("retryPolicy"), "{text}");
        assert!(text.contains("\"maxDeliveryAttempts\": 100"), "{text}");
    }

    /// Publishes, and returns the message ids.
    pub(crate) async fn publish(&self, payloads: &[String]) -> Vec<String> {
        let mut ids = Vec::new();
        for payloads in payloads.chunks(PUBLISHED_AT_ONCE) {
            let messages: Vec<_> = payloads.iter().map(|p| json!({"data": BASE64.encode(p)})).collect();
            let request = reqwest::Client::new().post(format!("{}/topics/likes:publish", self.admin()));
            let answer = request.body(json!({"messages": messages}).to_string()).send().await.unwrap();
            let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
            let published = answer["messageIds"].as_array().unwrap_or_else(|| panic!("{answer}"));
            ids.extend(published.iter().map(|id| id.as_str().unwrap().to_owned()));
        }
        ids
    }

    /// Whether Firestore has a document, such as a batch key.
    pub(crate) async fn has(&self, document: &str) -> bool {
        let wire = self.store.as_ref().expect("a place with Firestore");
        let all = format!("projects/{}/databases/(default)/documents", self.project);
        let answer = reqwest::get(format!("http://{}/v1/{all}/{document}", wire.emulator)).await.unwrap();
        match answer.status().as_u16() {
            200 => true,
            404 => false,
            other => panic!("{other} for {document}"),
        }
    }

    /// What every post counts, by its shards and by its members, also posts that no event names.
    pub(crate) fn counts(&self) -> Counted {
        let output = run(&["verify", "--deep", "--json", "--store", &self.store_itself()]);
        let text = stdout(&output);
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows: Vec<Value> = rows.filter(|row| row["post"].is_string()).collect();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
        let number = |row: &Value, name: &str| row[name].as_i64().unwrap_or_else(|| panic!("{name} in {row}"));
        let post = |row: &Value| row["post"].as_str().unwrap().to_owned();
        let counts = rows.iter().map(|row| (post(row), number(row, "count"))).collect();
        let drifting = rows.iter().filter(|row| number(row, "count") != number(row, "members"));
        Counted { counts, drifting: drifting.map(Value::to_string).collect() }
    }

    /// The quarantine: message ids, or payloads of what came by HTTP; and how many entries there are.
    pub(crate) fn quarantine(&self) -> (BTreeSet<String>, usize) {
        let output = run(&["quarantine", "list", "--json", "--store", &self.store_itself()]);
        assert!(output.status.success(), "{}", stderr(&output));
        let entries: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let name = |entry: &Value| match entry["message_id"].as_str() {
            Some(id) => id.to_owned(),
            None => String::from_utf8(BASE64.decode(entry["data"].as_str().unwrap()).unwrap()).unwrap(),
        };
        (entries.iter().map(name).collect(), entries.len())
    }

    /// The delivery attempts of what is in the quarantine, where the broker counts them.
    pub(crate) fn attempts(&self) -> Vec<u64> {
        let output = run(&["quarantine", "list", "--json", "--store", &self.store_itself()]);
        let entries = stdout(&output);
        let entries = entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter_map(|entry| entry["delivery_attempt"].as_u64()).collect()
    }

    /// What the broker gave up on.
    pub(crate) fn dead_letters(&self) -> String {
        let wire = self.source.as_ref().expect("a place with Pub/Sub");
        let source = self.source_at(&wire.emulator, 4);
        let output = run(&["dead-letters", "list", "--json", "--wait-s", "15", "--source", &source]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }
}

/// What a store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) counts: BTreeMap<String, i64>,
    /// Posts whose shards and members differ.
    pub(crate) drifting: Vec<String>,
}
