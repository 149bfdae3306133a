use super::*;
use crate::like::event::Poison;
use crate::source::Source;
use futures::FutureExt;

fn memory(change: impl FnOnce(&mut Config)) -> Memory {
    let mut config = Config::default();
    change(&mut config);
    Memory::new(config)
}

fn payloads(deliveries: &[Delivery]) -> Vec<&[u8]> {
    deliveries.iter().map(|d| &d.payload[..]).collect()
}

fn settle(deliveries: Vec<Delivery>) {
    deliveries.into_iter().for_each(|d| assert!(d.ack.settle(&Settlement::Counted).is_none()));
}

#[tokio::test]
async fn deliveries_come_in_order_and_a_dropped_one_goes_to_the_end_with_its_attempt_counted() {
    let source = memory(|_| ());
    for payload in ["a", "b", "c"] {
        source.publish_with(payload, Meta::default()).unwrap();
    }
    let mut stream = source.open(0).await.unwrap();
    let mut first = stream.pull(2).await.unwrap();
    assert_eq!(payloads(&first), [b"a", b"b"]);
    drop(first.remove(0));
    settle(first);
    let rest = stream.pull(9).await.unwrap();
    assert_eq!(payloads(&rest), [b"c", b"a"]);
    let attempts: Vec<_> = rest.iter().map(|d| d.meta.as_ref().unwrap().attempt.unwrap()).collect();
    assert_eq!(attempts, [1, 2]);
}

#[tokio::test]
async fn streams_share_one_line_and_none_gets_what_another_holds() {
    let source = memory(|c| c.streams = 2);
    let (mut one, mut two) = (source.open(0).await.unwrap(), source.open(1).await.unwrap());
    source.publish("a").unwrap();
    source.publish("b").unwrap();
    let held = one.pull(1).await.unwrap();
    assert_eq!(payloads(&held), [b"a"]);
    assert_eq!(payloads(&two.pull(5).await.unwrap()), [b"b"]);
}

#[tokio::test]
async fn a_stream_that_waits_is_woken_by_a_message_published_later() {
    let source = memory(|_| ());
    let mut stream = source.open(0).await.unwrap();
    let mut pull = stream.pull(1);
    assert!((&mut pull).now_or_never().is_none());
    source.publish("late").unwrap();
    assert_eq!(payloads(&pull.await.unwrap()), [b"late"]);
}

#[tokio::test]
async fn a_source_that_finishes_when_settled_ends_only_after_the_last_token() {
    let source = memory(|_| ());
    source.publish("a").unwrap();
    let mut stream = source.open(0).await.unwrap();
    let held = stream.pull(1).await.unwrap();
    source.finish(Finish::WhenSettled);
    assert!(stream.pull(1).now_or_never().is_none(), "a token is still out");
    drop(held);
    let again = stream.pull(1).await.unwrap();
    let mut end = stream.pull(1);
    assert!((&mut end).now_or_never().is_none());
    settle(again);
    assert!(end.await.unwrap().is_empty());
}

#[tokio::test]
async fn a_source_that_finishes_at_once_delivers_nothing_more() {
    let source = memory(|_| ());
    source.publish("a").unwrap();
    source.finish(Finish::AtOnce);
    assert!(source.open(0).await.unwrap().pull(1).await.unwrap().is_empty());
    assert_eq!(source.totals().waiting, 1);
}

#[tokio::test]
async fn a_full_line_refuses_and_makes_room_only_by_settling() {
    let source = memory(|c| (c.max_messages, c.max_bytes) = (3, 4));
    source.publish("aaa").unwrap();
    assert_eq!(source.publish("bb").unwrap_err().0, "bb", "too many bytes");
    source.publish("c").unwrap();
    let mut stream = source.open(0).await.unwrap();
    let mut held = stream.pull(2).await.unwrap();
    assert!(source.publish("d").is_err(), "held messages count");
    settle(held.drain(..1).collect());
    source.publish("d").unwrap();
    source.publish("e").unwrap();
    assert!(source.publish("").is_err(), "too many messages");
}

#[tokio::test]
async fn every_message_is_in_one_place() {
    let source = memory(|c| c.max_remembered = 1);
    for number in 0..5_u64 {
        assert_eq!(source.publish(number.to_string()).unwrap(), number);
    }
    let mut stream = source.open(0).await.unwrap();
    let mut held = stream.pull(4).await.unwrap();
    let how = Settlement::Quarantined(Poison { field: "payload", problem: "not JSON".to_owned() });
    held.remove(3).ack.settle(&how);
    settle(held.drain(..1).collect());
    drop(held.remove(0));
    let expected = Totals { published: 5, delivered: 4, dropped: 1, counted: 1, quarantined: 1, waiting: 2, held: 1 };
    assert_eq!(source.totals(), expected);
    assert_eq!(source.settled(), [Settled { number: 0, how: Settlement::Counted }], "the newest only");
}

#[tokio::test]
async fn receipt_times_come_from_the_configured_clock() {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let source = memory(|c| c.received_at = Arc::new(move || time));
    source.publish("a").unwrap();
    assert_eq!(source.open(0).await.unwrap().pull(1).await.unwrap()[0].received_at, time);
}
