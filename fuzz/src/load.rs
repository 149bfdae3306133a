//! Loads, as somebody asks for them. What can be is sent as planned and leads to what was expected; the rest is refused
//! before anything is sent.

use super::dice::Dice;
use hotcount::lab::load::{Config, Faults, Plan, Schedule, Shape};
use hotcount::like::event::{OrderPolicy, decode};
use hotcount::{Decision, decide};
use serde::Deserialize;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// Messages of a plan that is walked; what is larger is only laid out.
const WALKED: u64 = 300;

/// A line with a shape, one with a prefix, and bytes that the numbers are made of.
pub fn load(data: &[u8]) {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (shape, prefix, mut dice) = (line(), line(), Dice(line()));
    let (Ok(shape), Ok(prefix)) = (std::str::from_utf8(shape), std::str::from_utf8(prefix)) else { return };
    let shape = match shape.parse::<Shape>() {
        Ok(shape) => shape,
        Err(error) => return assert!(error.to_string().contains(Shape::NAMES)),
    };
    assert_eq!(shape.to_string().parse::<Shape>().map(|again| format!("{again:?}")), Ok(format!("{shape:?}")));
    schedule(&mut dice);
    let config = Config {
        shape,
        faults: Faults {
            redelivered: share(&mut dice),
            retried: share(&mut dice),
            double_clicked: share(&mut dice),
            late: share(&mut dice),
            shuffled: share(&mut dice),
            poison: share(&mut dice),
            oversized: share(&mut dice) / 16.0,
        },
        messages: number(&mut dice, WALKED),
        posts: number(&mut dice, 50),
        users: number(&mut dice, 100),
        unlikes: share(&mut dice),
        oversized_bytes: dice.byte() as usize * 20,
        post_prefix: prefix.to_owned(),
        seed: dice.int() as u64,
    };
    match config.check() {
        Err(error) => {
            let refused = Plan::new(config).expect_err("a plan is checked");
            assert_eq!(refused.to_string(), error.to_string());
        }
        Ok(()) if config.messages <= WALKED && config.posts <= 1_000 => {
            walk(&Plan::new(config).expect("it was checked"))
        }
        Ok(()) => {}
    }
}

/// From nothing to everything, mostly a tenth, sometimes no share at all.
fn share(dice: &mut Dice<'_>) -> f64 {
    match dice.byte() {
        0xFF => f64::NAN,
        0xFE => -0.1,
        0xFD => 1.0 + f64::EPSILON,
        0xFC => f64::INFINITY,
        byte => f64::from(byte % 128) / 1_000.0,
    }
}

fn number(dice: &mut Dice<'_>, mostly: u64) -> u64 {
    match dice.byte() {
        0xFF => u64::MAX,
        0xFE => dice.int() as u64,
        byte => u64::from(byte) * mostly / 128,
    }
}

/// Every message is one line and of its kind, and whoever counts them comes to what was expected.
fn walk(plan: &Plan) {
    let mut generator = plan.generate();
    let (mut sent, mut poison, mut line) = (0, 0, Vec::new());
    let mut members = HashMap::new();
    while let Some(message) = generator.write_next(&mut line) {
        sent += 1;
        assert!(!line.contains(&b'\n'));
        match decode(&line, OrderPolicy::OccurredAt, SystemTime::now()) {
            Ok(like) => {
                assert!(!message.kind.is_poison(), "{like:?}");
                assert_eq!(
                    message.post.map(|post| format!("{}{post}", plan.config().post_prefix)).as_deref(),
                    Some(like.post())
                );
                let member = (like.post().to_owned(), like.user().to_owned());
                let stored = members.get(&member).map(hotcount::Like::membership);
                if let Decision::Write { .. } = decide(stored, &like) {
                    members.insert(member, like);
                }
            }
            Err(reason) => {
                poison += 1;
                assert!(message.kind.is_poison(), "{reason}: {}", line.escape_ascii());
            }
        }
        line.clear();
    }
    let expected = plan.expect();
    assert_eq!((sent, poison), (plan.messages(), expected.totals().quarantined()));
    assert_eq!((sent, members.len() as u64), (generator.sent(), expected.members()));
    let mut counts: HashMap<String, u64> = HashMap::new();
    for ((post, _), like) in &members {
        *counts.entry(post.clone()).or_default() += u64::from(like.liked());
    }
    assert_eq!(expected.posts().collect::<HashMap<_, _>>(), counts);

    #[derive(Deserialize)]
    struct Line {
        post: String,
        count: u64,
    }
    let mut file = Vec::new();
    expected.write_jsonl(&mut file).expect("memory can be written");
    for line in file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Line { post, count } = serde_json::from_slice(line).expect("what is written is JSON");
        assert_eq!(counts.remove(&post), Some(count));
    }
    assert!(counts.is_empty());
}

/// Later messages are due later, and what is due is within its time.
fn schedule(dice: &mut Dice<'_>) {
    let rate = match dice.byte() {
        0xFF => f64::NAN,
        0xFE => dice.int() as f64,
        0xFD => *Schedule::RATES.start(),
        0xFC => *Schedule::RATES.end(),
        byte => f64::from(byte) * 3.7,
    };
    // The command line takes up to a day.
    let ramp = Duration::from_millis(u64::from(dice.byte()) * 339_000);
    let Some(schedule) = Schedule::new(rate, ramp) else {
        return assert!(!Schedule::RATES.contains(&rate));
    };
    let n = dice.int().unsigned_abs() % 10_000_000_000;
    let (this, next) = (schedule.due(n), schedule.due(n + 1));
    assert!(this <= next, "{schedule:?} {n}");
    let within = schedule.within(this);
    assert!(within.abs_diff(n) <= 1 + n / 1_000_000, "{schedule:?}: number {n} is due at {this:?}, when {within} are");
}
