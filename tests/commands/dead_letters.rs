//! The real binary and a message that Google's emulator has given up on: shown, given back, sent again, counted.

use crate::process::{Worker, run, stderr, stdout, until};
use crate::support::emulators::{pubsub, unique};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hotcount::source::Source;
use hotcount::source::pubsub::PubSub;
use hotcount::source::pubsub::dead_letters::DeadLetters;
use serde_json::{Value, json};
use std::process::Output;
use std::time::Duration;
use tempfile::TempDir;

/// Two of the emulator's leases. It may give a message to a stream that is gone, and may keep it from an open one for
/// longer; so whoever misses one looks again through a new stream.
const WAIT_S: &str = "20";

/// A project of the test's own, with the names that `hotcount setup` gives, and five delivery attempts, the fewest there
/// are.
struct Place {
    source: String,
    admin: String,
}

impl Place {
    async fn new(name: &str) -> Option<Self> {
        let (host, project) = (pubsub()?, unique(name));
        let place = Self {
            source: format!("pubsub://{project}/likes?emulator={host}&streams=1&extension_s=10"),
            admin: format!("http://{host}/v1/projects/{project}"),
        };
        let topic = |id: &str| format!("projects/{project}/topics/{id}");
        let policy = json!({"deadLetterTopic": topic("likes-dead-letters"), "maxDeliveryAttempts": 5});
        let likes = json!({"topic": topic("likes"), "ackDeadlineSeconds": 10, "deadLetterPolicy": policy});
        let inspect = json!({"topic": topic("likes-dead-letters"), "ackDeadlineSeconds": 10});
        for (path, body) in [
            ("topics/likes", json!({})),
            ("topics/likes-dead-letters", json!({})),
            ("subscriptions/likes-dead-letters-inspect", inspect),
            ("subscriptions/likes", likes),
        ] {
            place.send(reqwest::Client::new().put(format!("{}/{path}", place.admin)), body).await;
        }
        Some(place)
    }

    async fn send(&self, request: reqwest::RequestBuilder, body: Value) {
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    async fn publish(&self, topic: &str, payloads: &[&str]) {
        let message = |p: &&str| json!({"data": BASE64.encode(p), "attributes": {"trace": "7"}});
        let messages: Vec<Value> = payloads.iter().map(message).collect();
        let request = reqwest::Client::new().post(format!("{}/topics/{topic}:publish", self.admin));
        self.send(request, json!({"messages": messages})).await;
    }

    /// Runs a `dead-letters` command while every delivery of the source is refused.
    async fn while_refusing(&self, arguments: &[&str]) -> Output {
        let source = PubSub::connect(&self.source).await.unwrap();
        let mut stream = source.open(0).await.unwrap();
        let command = self.command(arguments);
        let run = tokio::task::spawn_blocking(move || run(&command.iter().map(String::as_str).collect::<Vec<_>>()));
        tokio::pin!(run);
        let output = loop {
            tokio::select! {
                output = &mut run => break output.unwrap(),
                // Dropped: a delivery attempt.
                pulled = stream.pull(10) => drop(pulled.unwrap()),
            }
        };
        drop(stream);
        source.close().await;
        output
    }

    fn command(&self, arguments: &[&str]) -> Vec<String> {
        let all = [&["dead-letters"], arguments, &["--json", "--source", &self.source]].concat();
        all.into_iter().map(str::to_owned).collect()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run(&self.command(arguments).iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn ids(rows: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = rows.iter().filter_map(|row| Some(row["message_id"].as_str()?.to_owned())).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_shown_given_back_sent_again_and_counted_once() {
    let Some(place) = Place::new("dead-letters").await else { return };
    let like = r#"{"eventId":"e","type":"like.added","postId":"p","userId":"u","occurredAt":"2026-01-01T00:00:00Z"}"#;
    place.publish("likes", &[like, "rubbish"]).await;
    let first = loop {
        let listed = lines(&place.while_refusing(&["list", "--limit", "2", "--wait-s", WAIT_S]).await);
        if listed.len() == 2 {
            break listed;
        }
    };
    for row in &first {
        assert_eq!((&row["subscription"], &row["delivery_attempts"]), (&"likes".into(), &5.into()), "{row}");
        assert_eq!(row["attributes"], json!([{"key": "trace", "value": "7"}]), "the broker's own are shown apart");
        assert!(row["published_at"].is_string() && row["dead_since"].is_string(), "{row}");
    }
    let mut payloads: Vec<_> = first.iter().map(|row| BASE64.decode(row["data"].as_str().unwrap()).unwrap()).collect();
    payloads.sort();
    assert_eq!(payloads, ["rubbish".as_bytes(), like.as_bytes()]);

    // A look takes nothing away, and neither does a dry run or a question that nobody answers.
    let unasked = place.run(&["redrive"]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(stderr(&unasked).contains("give --yes"), "{}", stderr(&unasked));
    until("a dry run shows both", (ids(&first), json!({"would_redrive": 2})), || {
        let dry = lines(&place.run(&["redrive", "--dry-run", "--limit", "2", "--wait-s", WAIT_S]));
        (ids(&dry), dry.last().unwrap().clone())
    });

    let mut redriven = Vec::new();
    until("both are sent again", ids(&first), || {
        let limit = (2 - redriven.len()).to_string();
        let mut rows = lines(&place.run(&["redrive", "--yes", "--limit", &limit, "--wait-s", WAIT_S]));
        assert_eq!(rows.pop().unwrap(), json!({"redriven": rows.len(), "left": 0}));
        assert!(rows.iter().all(|row| row["new_message_id"].is_string()), "{rows:?}");
        redriven.extend(rows);
        ids(&redriven)
    });

    let directory = TempDir::new().unwrap();
    let store = format!("embedded:{}", directory.path().display());
    let source = place.source.replace("streams=1", "streams=16");
    let worker = Worker::start(&["--source", &source, "--store", &store]);
    let counted = || stdout(&run(&["count", "p", "--store", &worker.address, "--json"])).contains(r#""count":1"#);
    until("the like is counted", true, counted);
    let quarantined = || lines(&run(&["quarantine", "list", "--store", &worker.address, "--json"]));
    until("the rubbish is quarantined", 1, || quarantined().len());
    assert_eq!(quarantined()[0]["attributes"], json!([{"key": "trace", "value": "7"}]), "its own went out again");
    assert!(lines(&place.run(&["list", "--wait-s", "3"])).is_empty(), "what was sent again is acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_the_topic_does_not_take_stays_with_its_reason() {
    let Some(place) = Place::new("refused-letters").await else { return };
    let letters = "likes-dead-letters";
    place.publish(letters, &["given up"]).await;
    let mut open = DeadLetters::open(&place.source, None, 10).await.unwrap();
    // The first stream there is: nothing keeps the letter from it.
    let pulled = open.pull(10, Duration::from_secs(120)).await.unwrap();
    assert_eq!(pulled.len(), 1);
    place.send(reqwest::Client::new().delete(format!("{}/topics/likes", place.admin)), json!({})).await;
    let refused = open.redrive(pulled).await.remove(0).expect_err("the topic is gone");
    assert!(refused.contains("/topics/likes does not take it"), "{refused}");
    open.close().await;
    let kept = PubSub::connect(&place.source.replace("/likes?", &format!("/{letters}-inspect?"))).await.unwrap();
    let delivered = kept.open(0).await.unwrap().pull(10).await.unwrap();
    assert_eq!(delivered[0].payload, "given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_dead_letters_is_a_sentence_that_says_what_to_do() {
    let http = run(&["dead-letters", "list", "--source", "http:"]);
    assert_eq!(http.status.code(), Some(2));
    assert!(stderr(&http).contains("use pubsub://PROJECT/SUBSCRIPTION"), "{}", stderr(&http));
    assert_eq!(run(&["dead-letters", "list"]).status.code(), Some(2), "whose?");

    let Some(place) = Place::new("no-dead-letters").await else { return };
    let missing = place.run(&["list", "--subscription", "elsewhere"]);
    assert_eq!(missing.status.code(), Some(2));
    for words in ["/subscriptions/elsewhere", "run `hotcount setup --source pubsub://", "with --subscription"] {
        assert!(stderr(&missing).contains(words), "{}", stderr(&missing));
    }
    let topic = place.admin.split_once("/v1/").unwrap().1.to_owned() + "/topics/likes";
    let plain = reqwest::Client::new().put(format!("{}/subscriptions/plain", place.admin));
    place.send(plain, json!({"topic": topic})).await;
    let without = run(&["dead-letters", "list", "--source", &place.source.replace("/likes?", "/plain?")]);
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("has no dead letters"), "{}", stderr(&without));
    let nowhere = run(&["dead-letters", "list", "--source", &place.source.replace("/likes?", "/nowhere?")]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("there is no subscription 'nowhere'"), "{}", stderr(&nowhere));
}
