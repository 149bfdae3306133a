use super::*;
use futures::FutureExt;
use std::pin::pin;

fn held(deliveries: usize, bytes: usize) -> Arc<InFlight> {
    InFlight::new(Budget::new(deliveries, bytes))
}

/// Whether a future answers now.
macro_rules! now {
    ($future:expr) => {
        $future.as_mut().now_or_never()
    };
}

#[test]
fn whoever_waits_gets_the_room_that_is_given_back_and_leaves_the_rest_to_the_next() {
    let held = held(2, 1 << 20);
    let full = held.reserve(2).now_or_never().expect("room");
    let (mut first, mut second) = (pin!(held.reserve(1)), pin!(held.reserve(1)));
    assert!(now!(first).is_none() && now!(second).is_none());
    drop(full);
    let _one = now!(first).expect("room for one");
    assert!(now!(second).is_some(), "woken by the one before, who still has its room");
}

#[test]
fn a_waiter_who_gives_up_passes_its_wake_on() {
    let held = held(1, 1 << 20);
    let share = Share::new(&held, 10);
    let mut gives_up = Box::pin(held.reserve(1));
    let mut stays = pin!(held.reserve(1));
    assert!(now!(gives_up).is_none() && now!(stays).is_none());
    drop(share);
    drop(gives_up);
    assert!(now!(stays).is_some());
}

#[test]
fn bytes_are_granted_one_waiter_after_the_other_as_long_as_there_are_some() {
    let held = held(0, 100);
    let mut page = held.take(100).now_or_never().expect("room");
    let (mut first, mut second) = (pin!(held.take(40)), pin!(held.take(40)));
    assert!(now!(first).is_none() && now!(second).is_none());
    page.set(10);
    let first = now!(first).expect("room for bytes, where there is none for a delivery");
    let second = now!(second).expect("and some were left");
    assert_eq!(held.budget().bytes(), 90);
    drop((page, first, second));
    assert_eq!(held.budget().bytes(), 0);
}

#[test]
fn a_delivery_waits_for_bytes_that_are_none_of_a_delivery() {
    let held = held(10, 100);
    let body = held.take(200).now_or_never().expect("what is larger than the budget passes alone");
    let mut puller = pin!(held.reserve(3));
    assert!(now!(puller).is_none());
    drop(body);
    assert_eq!(now!(puller).expect("room").deliveries(), 3);
}
