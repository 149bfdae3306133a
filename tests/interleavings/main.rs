//! A model checker over what the threads of the buffer share. It compiles the sources of `src/engine/aggregate.rs` and `src/common/budget.rs` over locks
//! and counters of its own, runs small scenes in every order that their steps can take, and larger ones in many.
//!
//! `cargo test --test interleavings` runs all; after `--`, a part of a name chooses, and `--list` lists.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a check that cannot go on fails")]

mod budget;
mod buffer;
mod mutants;
mod sync;

/// The sources under check. What they name beside `sync` is the real thing.
#[path = "../../src"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "a worker uses more of it than the checks do")]
mod buffer_sources {
    pub(crate) mod common {
        pub(crate) mod budget;
    }
    pub(crate) mod engine {
        pub(crate) mod aggregate;
    }
}

/// Where the sources under check find their locks.
mod common {
    pub(crate) use crate::sync;
}

use hotcount::like;
use mutants::Mutant;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

/// In which orders the steps of a scene are tried.
#[derive(Clone, Copy, Debug)]
enum Orders {
    /// All there are; more than this many are too many.
    All(usize),
    /// So many at random, and as many again with few and well chosen changes of thread.
    Some(usize),
}

/// A scene of the name, which holds in these orders.
type Check = (&'static str, fn(), Orders);

/// Most scenes have more than a hundred thousand orders.
const MANY: Orders = Orders::Some(5_000);

const CHECKS: &[Check] = &[
    ("twins_added_while_a_lane_seals_come_out_once", buffer::twins_while_one_seals, Orders::All(100_000)),
    ("likes_that_arrived_together_come_out_once", buffer::likes_together_while_one_seals_twice, MANY),
    ("what_is_set_aside_comes_out_once", buffer::a_twin_while_one_is_set_aside, MANY),
    ("a_like_on_its_way_aside_comes_out_once", buffer::a_twin_while_two_lanes_meet_aside, MANY),
    ("what_two_lanes_set_aside_at_once_comes_out_once", buffer::two_lanes_set_aside_at_once, MANY),
    ("two_lanes_never_seal_the_same_like", buffer::two_lanes_at_once, MANY),
    ("a_newer_like_is_never_called_known", buffer::twins_while_one_remembers, MANY),
    ("the_window_never_goes_back_whichever_lane_is_answered_first", buffer::two_lanes_remember, MANY),
    ("whatever_a_crowd_adds_and_seals_comes_out_once", buffer::a_crowd, MANY),
    ("no_room_is_granted_twice", budget::two_pullers, MANY),
    ("a_puller_that_waits_is_told_of_room", budget::pullers_who_wait_for_each_other, MANY),
    ("room_made_by_two_lanes_at_once_is_told", budget::a_waiter_while_two_lanes_settle, MANY),
    ("room_for_bytes_is_told_while_deliveries_have_none", budget::bytes_beside_deliveries, MANY),
    ("whatever_a_crowd_reserves_there_is_room_for_it_and_nobody_waits_forever", budget::a_crowd, MANY),
];

/// Planted bugs, each with the scene that must fail.
const DOUBLES: &[(Mutant, Check)] = &[
    (
        Mutant::InsertsInTwoSteps,
        ("a_map_that_inserts_in_two_steps_is_caught", buffer::twins_while_one_seals, Orders::All(100_000)),
    ),
    (
        Mutant::RemovesInTwoSteps,
        ("a_map_that_removes_in_two_steps_is_caught", buffer::twins_while_one_seals, Orders::All(100_000)),
    ),
    (
        Mutant::RemembersTooEarly,
        ("likes_remembered_before_the_answer_are_caught", buffer::twins_while_one_remembers, MANY),
    ),
    (
        Mutant::TellsNobody,
        ("room_that_nobody_is_told_of_is_caught", budget::pullers_who_wait_for_each_other, Orders::All(100_000)),
    ),
];

/// Everything random grows from it.
const SEED: u64 = 1;

/// Changes of thread at chosen places, in one order: most bugs need one or two.
const CHANGES: usize = 3;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let list = wanted.iter().any(|word| word == "--list");
    let wants = |name: &str| {
        let mut words = wanted.iter().filter(|word| !word.starts_with("--")).peekable();
        words.peek().is_none() || words.any(|word| name.contains(word.as_str()))
    };
    let names = CHECKS.iter().map(|check| check.0).chain(DOUBLES.iter().map(|double| double.1.0));
    if list {
        names.for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = false;
    for &(name, scene, orders) in CHECKS.iter().filter(|check| wants(check.0)) {
        let began = Instant::now();
        match check(scene, orders, FailurePersistence::Print) {
            Ok(tried) => println!("{name}: ok, {tried} orders in {:.1} s", began.elapsed().as_secs_f64()),
            Err(why) => {
                failed = true;
                println!("{name}: FAILED, {why}");
            }
        }
    }
    // A planted bug panics as it should.
    std::panic::set_hook(Box::new(|_| ()));
    for &(double, (name, scene, orders)) in DOUBLES.iter().filter(|double| wants(double.1.0)) {
        match double.planted(|| check(scene, orders, FailurePersistence::None)) {
            Err(why) => println!("{name}: ok, {why}"),
            Ok(tried) => {
                failed = true;
                println!("{name}: FAILED, not in {tried} orders");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs `scene` in `orders`, and answers how many were tried, or what failed in one.
fn check(scene: fn(), orders: Orders, failure_persistence: FailurePersistence) -> Result<usize, String> {
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.failure_persistence = failure_persistence.clone();
        config.silence_warnings = true;
        catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(scene))).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
        })
    };
    match orders {
        Orders::All(most) => match run(Box::new(DfsScheduler::new(Some(most), false)))? {
            tried if tried < most => Ok(tried),
            tried => Err(format!("it has more than {tried} orders: make the scene smaller, or try some")),
        },
        Orders::Some(number) => {
            let random = run(Box::new(RandomScheduler::new_from_seed(SEED, number)))?;
            Ok(random + run(Box::new(PctScheduler::new_from_seed(SEED, CHANGES, number)))?)
        }
    }
}
