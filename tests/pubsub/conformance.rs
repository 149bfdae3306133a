//! The conformance suite of the source port, run for every adapter.
//!
//! To add an adapter, implement [`Bench`] for it and give it to [`conformance!`] at the foot of this file.

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use hotcount::source::ack::Settlement;
use hotcount::source::{Delivery, Meta, Source, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a step may take before the test fails: many leases (10 s on the benches), for the emulator gives some messages
/// to streams that were cancelled, and then they are out for a lease each time.
const WITHIN: Duration = Duration::from_secs(180);

/// An adapter on the test bench, with messages of its own.
#[async_trait]
trait Bench: Send + Sync {
    /// A source on the messages of this bench. Called again, another one on the same messages, as after a restart.
    async fn source(&self) -> Arc<dyn Source>;

    /// Hands a message over, without waiting for it to be settled. An adapter without a broker behind it must send
    /// again what comes back, as its clients would.
    async fn publish(&self, payload: &[u8]);

    /// What is delivered, sorted, while every lease that nobody extends runs out. Called when every source of the bench
    /// was closed and everything was settled: it finds what was not acknowledged for all that.
    async fn left(&self) -> Vec<Bytes>;
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WITHIN, future).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

async fn pull(stream: &mut Box<dyn Stream>, max: usize) -> Vec<Delivery> {
    let deliveries = within("a pull", stream.pull(max)).await.unwrap();
    assert!(!deliveries.is_empty(), "only a source that has ended delivers nothing");
    assert!(deliveries.len() <= max);
    deliveries
}

async fn pull_count(stream: &mut Box<dyn Stream>, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(pull(stream, count - all.len()).await);
    }
    all
}

fn sorted(deliveries: &[Delivery]) -> Vec<Bytes> {
    let mut payloads: Vec<Bytes> = deliveries.iter().map(|d| d.payload.clone()).collect();
    payloads.sort();
    payloads
}

fn bytes_of<const N: usize>(payloads: [&str; N]) -> Vec<Bytes> {
    payloads.iter().map(|p| Bytes::copy_from_slice(p.as_bytes())).collect()
}

/// Settles, and waits for the broker's word where it gives one.
async fn settle(deliveries: Vec<Delivery>) {
    let confirmations: Vec<_> = deliveries.into_iter().filter_map(|d| d.ack.settle(&Settlement::Counted)).collect();
    for confirmation in confirmations {
        within("a confirmation", confirmation).await.unwrap();
    }
}

async fn close(source: &dyn Source) {
    within("closing", source.close()).await;
}

async fn delivers_what_was_published_with_the_payload_intact(bench: &dyn Bench) {
    let large = vec![b'x'; 200_000];
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads = [&b"{}"[..], "ein \u{1f44d}".as_bytes(), &every_byte, &large];
    for payload in payloads {
        bench.publish(payload).await;
    }
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    let deliveries = pull_count(&mut stream, payloads.len()).await;
    let mut expected = payloads.map(Bytes::copy_from_slice);
    expected.sort();
    assert_eq!(sorted(&deliveries), expected);
}

async fn a_dropped_token_comes_back(bench: &dyn Bench) {
    bench.publish(b"again").await;
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    for attempt in 1..=3 {
        let delivery = pull(&mut stream, 1).await.remove(0);
        assert_eq!(delivery.payload, "again");
        if let Some(counted) = delivery.meta.and_then(|meta| meta.attempt) {
            assert_eq!(counted, attempt);
        }
    }
}

async fn a_settled_token_does_not_come_back(bench: &dyn Bench) {
    for payload in ["one", "two", "three"] {
        bench.publish(payload.as_bytes()).await;
    }
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    settle(pull_count(&mut stream, 3).await).await;
    bench.publish(b"later").await;
    let later = pull(&mut stream, 10).await;
    assert_eq!(sorted(&later), bytes_of(["later"]));
    settle(later).await;
    drop(stream);
    close(&*source).await;
    assert_eq!(bench.left().await, Vec::<Bytes>::new());
}

async fn a_pull_delivers_no_more_than_it_was_asked_for(bench: &dyn Bench) {
    for number in 0..10_u8 {
        bench.publish(&[b'0' + number]).await;
    }
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 10 {
        seen.extend(pull(&mut stream, 3).await);
    }
    let expected: Vec<Bytes> = (b'0'..=b'9').map(|digit| Bytes::copy_from_slice(&[digit])).collect();
    assert_eq!(sorted(&seen), expected);
}

async fn a_pull_takes_what_is_ready_without_waiting_for_more(bench: &dyn Bench) {
    bench.publish(b"alone").await;
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    assert_eq!(sorted(&pull(&mut stream, 1_000).await), bytes_of(["alone"]));
}

/// Each pull is polled once and dropped if it has no answer, as by a caller that selects over it and a timer.
async fn a_pull_that_is_cancelled_loses_no_delivery(bench: &dyn Bench) {
    const MESSAGES: usize = 60;
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    let mut held = BTreeMap::new();
    let mut keep = |deliveries: Vec<Delivery>| {
        for delivery in deliveries {
            // What was lost would come back as a second attempt, once its lease has run out.
            if let Some(attempt) = delivery.meta.as_ref().and_then(|meta| meta.attempt) {
                assert_eq!(attempt, 1);
            }
            assert!(held.insert(delivery.payload.clone(), delivery).is_none(), "delivered twice");
        }
        held.len()
    };
    for number in 0..MESSAGES {
        if let Some(answer) = stream.pull(7).now_or_never() {
            keep(answer.unwrap());
        }
        bench.publish(number.to_string().as_bytes()).await;
    }
    within("every delivery", async {
        loop {
            let seen = match stream.pull(7).now_or_never() {
                Some(answer) => keep(answer.unwrap()),
                None => keep(Vec::new()),
            };
            if seen == MESSAGES {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn a_stream_can_be_opened_again(bench: &dyn Bench) {
    bench.publish(b"first").await;
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    settle(pull(&mut stream, 1).await).await;
    drop(stream);
    let mut stream = source.open(0).await.unwrap();
    bench.publish(b"second").await;
    assert_eq!(sorted(&pull(&mut stream, 10).await), bytes_of(["second"]));
}

async fn a_token_outlives_its_stream(bench: &dyn Bench) {
    for payload in ["one", "two", "three", "four"] {
        bench.publish(payload.as_bytes()).await;
    }
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    let mut held = pull_count(&mut stream, 4).await;
    held.sort_by(|a, b| a.payload.cmp(&b.payload));
    drop(stream);
    // Opening another one must not matter to them either.
    let again = source.open(0).await.unwrap();
    settle(held.drain(1..).collect()).await;
    drop(held);
    drop(again);
    close(&*source).await;
    let next = bench.source().await;
    let mut stream = next.open(0).await.unwrap();
    let back = pull(&mut stream, 10).await;
    assert_eq!(sorted(&back), bytes_of(["four"]));
    settle(back).await;
    drop(stream);
    close(&*next).await;
    assert_eq!(bench.left().await, Vec::<Bytes>::new());
}

/// The source runs on a runtime of its own that ends right after `close`, as a process does: what is not sent by then is
/// never sent.
async fn close_returns_when_what_was_settled_is_acknowledged(bench: &dyn Bench) {
    const MESSAGES: usize = 300;
    for number in 0..MESSAGES {
        bench.publish(number.to_string().as_bytes()).await;
    }
    let life_of_a_process = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let source = bench.source().await;
            let mut stream = source.open(0).await.unwrap();
            let held = pull_count(&mut stream, MESSAGES).await;
            drop(stream);
            settle(held).await;
            close(&*source).await;
        });
        runtime.shutdown_background();
    };
    std::thread::scope(|scope| scope.spawn(life_of_a_process).join().unwrap());
    assert_eq!(bench.left().await, Vec::<Bytes>::new());
}

async fn what_was_dropped_before_close_is_delivered_by_the_next_source(bench: &dyn Bench) {
    bench.publish(b"unfinished").await;
    let source = bench.source().await;
    let mut stream = source.open(0).await.unwrap();
    drop(pull(&mut stream, 1).await);
    drop(stream);
    close(&*source).await;
    let next = bench.source().await;
    let mut stream = next.open(0).await.unwrap();
    let delivery = pull(&mut stream, 1).await;
    assert_eq!(sorted(&delivery), bytes_of(["unfinished"]));
    settle(delivery).await;
}

/// Runs the suite for an adapter: a module with `async fn bench() -> Option<impl Bench>`, `None` to skip.
macro_rules! conformance {
    ($adapter:ident: $($test:ident)*) => {
        mod $adapter {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    if let Some(bench) = super::adapters::$adapter::bench().await {
                        super::$test(&bench).await;
                    }
                }
            )*
        }
    };
    ($adapter:ident) => {
        conformance! { $adapter:
            delivers_what_was_published_with_the_payload_intact
            a_dropped_token_comes_back
            a_settled_token_does_not_come_back
            a_pull_delivers_no_more_than_it_was_asked_for
            a_pull_takes_what_is_ready_without_waiting_for_more
            a_pull_that_is_cancelled_loses_no_delivery
            a_stream_can_be_opened_again
            a_token_outlives_its_stream
            close_returns_when_what_was_settled_is_acknowledged
            what_was_dropped_before_close_is_delivered_by_the_next_source
        }
    };
}

conformance!(memory);
#[cfg(feature = "pubsub")]
conformance!(pubsub);
#[cfg(feature = "pubsub")]
conformance!(pubsub_exactly_once);

mod adapters {
    use super::*;

    pub(crate) mod memory {
        use super::*;
        use hotcount::source::memory::Memory;

        pub(crate) async fn bench() -> Option<impl Bench> {
            Some(Memory::default())
        }

        #[async_trait]
        impl Bench for Memory {
            async fn source(&self) -> Arc<dyn Source> {
                Arc::new(self.clone())
            }

            async fn publish(&self, payload: &[u8]) {
                self.publish_with(Bytes::copy_from_slice(payload), Meta::default()).unwrap();
            }

            async fn left(&self) -> Vec<Bytes> {
                let answer = self.open(0).await.unwrap().pull(usize::MAX).now_or_never();
                answer.map_or(Vec::new(), |deliveries| sorted(&deliveries.unwrap()))
            }
        }
    }

    #[cfg(feature = "pubsub")]
    pub(crate) mod pubsub {
        use super::*;
        use crate::support::publish::{Topic, with_attempts};

        pub(crate) async fn bench() -> Option<impl Bench> {
            Topic::new(with_attempts).await
        }

        #[async_trait]
        impl Bench for Topic {
            async fn source(&self) -> Arc<dyn Source> {
                hotcount::connect::source(&self.url("streams=1&extension_s=10")).await.unwrap()
            }

            async fn publish(&self, payload: &[u8]) {
                Topic::publish(self, payload, &[]).await;
            }

            async fn left(&self) -> Vec<Bytes> {
                within("every lease", Topic::left(self)).await
            }
        }
    }

    #[cfg(feature = "pubsub")]
    pub(crate) mod pubsub_exactly_once {
        use super::*;
        use crate::support::publish::{Topic, with_attempts};

        pub(crate) async fn bench() -> Option<impl Bench> {
            Topic::new(|s| with_attempts(s).set_enable_exactly_once_delivery(true)).await
        }
    }
}
