//! What a buffered like weighs, counted by the allocator.
//!
//! `cargo bench --bench memory --no-default-features`

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a benchmark whose parts cannot be set up has nothing to say"
)]

use hotcount::engine::aggregate::{Aggregator, Config};
use hotcount::like::event::Like;
use std::hint::black_box;
use std::time::{Instant, SystemTime};

#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// A million likes of distinct users on one post, buffered.
fn main() {
    let million = 1_000_000;
    let bare = weight(million, |_| ());
    println!("\n{million} buffered likes, bytes a like, counted by the allocator");
    println!("like, map and line                   {bare:>7.1}   {:.0} MB in all", bare * million as f64 / 1e6);
    let with = |name: &str, bytes: f64| println!("{name:<36} {:>+7.1}", bytes - bare);
    with("with a shared token", weight(million, |_| token()));
    with("with a token of its own", weight(million, |_| own_token()));
    with("with a payload of 150 bytes", weight(million, |_| bytes::Bytes::from(vec![0_u8; 150])));
    let held =
        hotcount::source::in_flight::InFlight::new(hotcount::common::budget::Budget::new(usize::MAX, usize::MAX));
    with("with a whole receipt, payload too", weight(million, |n| receipt(n, &held)));
}

fn weight<R>(likes: usize, mut receipt: impl FnMut(usize) -> R) -> f64 {
    let buffer: Aggregator<R> = Aggregator::new(Config::default());
    let (before, now) = (ALLOCATOR.current_usage(), Instant::now());
    for n in 0..likes {
        let like = Like::new("post-000042", &format!("user-{n:08}"), &format!("{n:032x}"), true, n as i64);
        buffer.add(like, receipt(n), now);
    }
    let weight = (ALLOCATOR.current_usage() - before) as f64 / likes as f64;
    black_box(&buffer);
    weight
}

struct Nobody;

impl hotcount::source::ack::SettleMany for Nobody {
    fn settled(&self, _: u32, _: &hotcount::source::ack::Settlement) {}
    fn dropped(&self, _: u32) {}
}

fn token() -> hotcount::source::ack::Ack {
    static NOBODY: std::sync::LazyLock<std::sync::Arc<Nobody>> = std::sync::LazyLock::new(|| Nobody.into());
    hotcount::source::ack::Ack::of_many(NOBODY.clone(), 0)
}

/// As Pub/Sub's: an ack id of some 180 bytes behind a box.
fn own_token() -> hotcount::source::ack::Ack {
    struct Own(#[expect(dead_code, reason = "it is here to be weighed")] String);
    impl hotcount::source::ack::Settle for Own {
        fn settle(
            self: Box<Self>,
            _: &hotcount::source::ack::Settlement,
        ) -> Option<hotcount::source::ack::Confirmation> {
            None
        }
    }
    hotcount::source::ack::Ack::one(Box::new(Own("x".repeat(180))))
}

fn receipt(
    n: usize,
    held: &std::sync::Arc<hotcount::source::in_flight::InFlight>,
) -> hotcount::engine::receipt::Receipt {
    let meta = hotcount::source::Meta { message_id: Some(n.to_string()), ..Default::default() };
    let delivery = hotcount::source::Delivery {
        payload: vec![0_u8; 150].into(),
        received_at: SystemTime::UNIX_EPOCH,
        meta: Some(Box::new(meta)),
        ack: own_token(),
        share: None,
    };
    hotcount::engine::receipt::Receipt::new(delivery, held)
}
