//! What the Pub/Sub source does beyond the port's conformance suite, on the emulator.

use crate::support::publish::{Topic, with_attempts};
use hotcount::source::ack::Settlement;
use hotcount::source::pubsub::PubSub;
use hotcount::source::{Delivery, Source, SourceError, Stream};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Many leases; see the conformance suite.
const WITHIN: Duration = Duration::from_secs(180);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WITHIN, future).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

async fn open(url: &str) -> (PubSub, Box<dyn Stream>) {
    let source = PubSub::connect(url).await.unwrap();
    let stream = source.open(0).await.unwrap();
    (source, stream)
}

async fn pull(stream: &mut Box<dyn Stream>, max: usize) -> Vec<Delivery> {
    within("a pull", stream.pull(max)).await.unwrap()
}

#[tokio::test]
async fn a_delivery_carries_what_the_broker_says_about_it() {
    let Some(topic) = Topic::new(with_attempts).await else { return };
    let before = SystemTime::now();
    let id = topic.publish(b"{}", &[("b", "2"), ("a", "1")]).await;
    let (source, mut stream) = open(&topic.url("streams=1&max_lease_s=99")).await;
    assert_eq!(source.name(), format!("pubsub://demo/{}", topic.subscription));
    assert_eq!((source.streams(), source.max_lease()), (1, Some(Duration::from_secs(99))));

    let delivery = pull(&mut stream, 1).await.remove(0);
    let meta = delivery.meta.as_deref().unwrap();
    assert_eq!(meta.message_id.as_deref(), Some(&*id));
    assert_eq!(meta.attributes, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    assert_eq!(meta.attempt, Some(1));
    // The emulator's clock is this machine's, in milliseconds.
    let published_at = meta.published_at.unwrap();
    assert!(published_at + Duration::from_millis(1) >= before && published_at <= SystemTime::now());
    assert!(delivery.received_at >= before);
}

#[tokio::test]
async fn exactly_once_delivery_confirms_acknowledgements_and_at_least_once_does_not() {
    let Some(topic) = Topic::new(|s| s.set_enable_exactly_once_delivery(true)).await else { return };
    topic.publish(b"once", &[]).await;
    let (_source, mut stream) = open(&topic.url("streams=1&exactly_once=true")).await;
    let ack = pull(&mut stream, 1).await.remove(0).ack;
    let confirmation = ack.settle(&Settlement::Counted).expect("the broker answers");
    within("a confirmation", confirmation).await.unwrap();

    let Some(topic) = Topic::new(|s| s).await else { return };
    topic.publish(b"at least once", &[]).await;
    let (_source, mut stream) = open(&topic.url("streams=1")).await;
    assert!(pull(&mut stream, 1).await.remove(0).ack.settle(&Settlement::Counted).is_none());
}

#[tokio::test]
async fn an_acknowledgement_is_sent_before_anybody_awaits_its_confirmation() {
    let Some(topic) = Topic::new(|s| s.set_enable_exactly_once_delivery(true)).await else { return };
    topic.publish(b"once", &[]).await;
    let (source, mut stream) = open(&topic.url("streams=1&extension_s=10")).await;
    let ack = pull(&mut stream, 1).await.remove(0).ack;
    let confirmation = ack.settle(&Settlement::Counted).expect("the broker answers");
    drop(stream);
    assert!(topic.left().await.is_empty());
    within("a confirmation", confirmation).await.unwrap();
    within("closing", source.close()).await;
}

#[tokio::test]
async fn a_late_acknowledgement_is_an_error_and_the_message_comes_back() {
    let Some(topic) = Topic::new(|s| s.set_enable_exactly_once_delivery(true)).await else { return };
    topic.publish(b"late", &[]).await;
    let (_source, mut stream) = open(&topic.url("streams=1&extension_s=10&max_lease_s=10")).await;
    let first = pull(&mut stream, 1).await.remove(0);
    // Only the end of its lease lets it be delivered again.
    let second = pull(&mut stream, 1).await.remove(0);
    let late = within("a confirmation", first.ack.settle(&Settlement::Counted).unwrap()).await;
    assert!(late.is_err(), "the lease was lost");
    within("a confirmation", second.ack.settle(&Settlement::Counted).unwrap()).await.unwrap();
}

/// The emulator sends a hundred messages at a time: some are held here, some were received and not pulled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_shuts_down_gives_back_what_it_holds() {
    const MESSAGES: usize = 150;
    let Some(topic) = Topic::new(|s| s).await else { return };
    topic.publish_all((0..MESSAGES).map(|n| n.to_string())).await;
    let (source, mut stream) = open(&topic.url("streams=1&extension_s=10")).await;
    let mut held = pull(&mut stream, MESSAGES).await;
    while held.len() <= 100 {
        held.extend(pull(&mut stream, 1).await);
    }
    drop(stream);
    drop(held);
    within("closing", source.close()).await;

    let (_next, mut next) = open(&topic.url("streams=1&extension_s=10")).await;
    let mut seen = BTreeSet::new();
    while seen.len() < MESSAGES {
        for delivery in pull(&mut next, 1_000).await {
            seen.insert(delivery.payload.clone());
            delivery.ack.settle(&Settlement::Counted);
        }
    }
}

/// The emulator sends a hundred messages at a time; a pull must not end where a response ends. They get more and more time
/// to arrive: that of so many other requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_takes_all_that_is_ready() {
    const MESSAGES: usize = 1_000;
    let Some(topic) = Topic::new(|s| s).await else { return };
    let (_source, mut stream) = open(&topic.url("streams=1")).await;
    let mut requests = 8;
    let mut largest = 0;
    while largest <= 100 {
        topic.publish_all((0..MESSAGES).map(|n| n.to_string())).await;
        let mut settled = 0;
        while settled < MESSAGES {
            let pulled = pull(&mut stream, MESSAGES).await;
            largest = largest.max(pulled.len());
            settled += pulled.len();
            pulled.into_iter().for_each(|d| drop(d.ack.settle(&Settlement::Counted)));
            for _ in 0..requests {
                topic.admin.get_subscription().set_subscription(&topic.subscription_path).send().await.unwrap();
            }
        }
        requests *= 2;
        assert!(requests <= 1_024, "no pull delivered more than {largest}");
    }
}

#[tokio::test]
async fn a_subscription_that_is_deleted_stops_the_worker_at_the_second_refusal() {
    let Some(topic) = Topic::new(|s| s).await else { return };
    topic.publish(b"last", &[]).await;
    let (source, mut stream) = open(&topic.url("streams=1")).await;
    pull(&mut stream, 1).await.remove(0).ack.settle(&Settlement::Counted);
    topic.admin.delete_subscription().set_subscription(&topic.subscription_path).send().await.unwrap();

    let first = failure(&mut stream).await;
    assert!(first.transient, "{first}");
    let mut stream = source.open(0).await.unwrap();
    let second = failure(&mut stream).await;
    assert!(!second.transient, "{second}");
    assert!(second.to_string().contains("hotcount setup --source"), "{second}");
}

async fn failure(stream: &mut Box<dyn Stream>) -> SourceError {
    within("a refusal", async {
        loop {
            if let Err(error) = stream.pull(1).await {
                break error;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_closed_source_ends_its_streams_and_opens_no_more() {
    let Some(topic) = Topic::new(|s| s).await else { return };
    let (source, mut stream) = open(&topic.url("streams=1")).await;
    within("closing", source.close()).await;
    assert!(pull(&mut stream, 1).await.is_empty());
    assert!(!source.open(0).await.err().expect("it is closed").transient);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_went_dead_is_replaced() {
    let Some(topic) = Topic::new(|s| s).await else { return };
    let path = DeadEnd::to(&topic.host);
    let url =
        format!("pubsub://demo/{}?emulator={}&streams=1&extension_s=10&idle_s=10", topic.subscription, path.address);
    let (source, mut stream) = open(&url).await;
    topic.publish(b"before", &[]).await;
    pull(&mut stream, 1).await.remove(0).ack.settle(&Settlement::Counted);

    path.go_dead();
    topic.publish(b"after", &[]).await;
    loop {
        // "before" may come again: its acknowledgement may have been lost.
        if pull(&mut stream, 1).await[0].payload == "after" {
            break;
        }
    }
    drop(source);
}

/// Forwards connections to an emulator until they go dead: then they stay open and carry nothing any more, as when a
/// firewall forgets them. Later ones work.
struct DeadEnd {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl DeadEnd {
    fn to(host: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, host) = (listener.local_addr().unwrap(), host.to_owned());
        let connections: Arc<Mutex<Vec<Arc<AtomicBool>>>> = Arc::default();
        let known = connections.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&host).unwrap());
                let dead = Arc::new(AtomicBool::new(false));
                known.lock().unwrap().push(dead.clone());
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to, dead) = (from.try_clone().unwrap(), to.try_clone().unwrap(), dead.clone());
                    std::thread::spawn(move || forward(from, to, &dead));
                }
            }
        });
        Self { address, connections }
    }

    fn go_dead(&self) {
        self.connections.lock().unwrap().iter().for_each(|dead| dead.store(true, Ordering::SeqCst));
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, dead: &AtomicBool) {
    let mut buffer = [0_u8; 16 << 10];
    while let Ok(read) = from.read(&mut buffer) {
        if dead.load(Ordering::SeqCst) {
            // Never closed, or the other side would notice.
            std::mem::forget((from, to));
            return;
        }
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}
