//! What the parts of one run share: the plan, the dice, the clock, the trace and the verdict.

use crate::plan::Plan;
use crate::seen::{Kind, Seen};
use crate::trouble::Trouble;
use gcloud_sdk::tonic::Code;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::fmt::Arguments;
use std::hash::Hasher;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What happens in a run at most: a run that does more does not come to an end.
const MAX_HAPPENINGS: u64 = 200_000;

/// Lines of the trace that are kept for a failing run.
const KEPT_LINES: usize = 60;

/// The world of one run. Everything in it is touched by one thread.
pub(crate) struct World {
    pub(crate) plan: Plan,
    began: Instant,
    dice: Mutex<SmallRng>,
    trace: Mutex<Trace>,
    seen: Mutex<Seen>,
    verdict: Mutex<Option<String>>,
    /// No more faults from now on.
    calm: AtomicBool,
    calm_since: Mutex<Option<Instant>>,
    /// The store fails every call until then.
    outage_until: Mutex<Option<Instant>>,
    pub(crate) trouble: Mutex<Trouble>,
    /// Calls that the store has taken in and not applied.
    in_flight: AtomicUsize,
    /// Something ended the run, or the weather changed.
    pub(crate) changed: Notify,
}

struct Trace {
    hash: std::hash::DefaultHasher,
    lines: VecDeque<String>,
    happenings: u64,
    aloud: bool,
}

/// Locks are never poisoned here: a panic ends the run.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("the thread that panicked was this one")
}

impl World {
    pub(crate) fn new(plan: Plan, aloud: bool) -> Arc<Self> {
        let dice = Mutex::new(SmallRng::seed_from_u64(plan.seed));
        let trace = Trace { hash: Default::default(), lines: VecDeque::new(), happenings: 0, aloud };
        Arc::new(Self {
            plan,
            began: Instant::now(),
            dice,
            trace: Mutex::new(trace),
            seen: Mutex::default(),
            verdict: Mutex::default(),
            calm: AtomicBool::new(false),
            calm_since: Mutex::default(),
            outage_until: Mutex::default(),
            trouble: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            changed: Notify::new(),
        })
    }

    /// Since the beginning, on the paused clock.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn at(&self, since_began: Duration) -> Instant {
        self.began + since_began
    }

    // The dice.

    /// Whether a fault strikes. In calm weather none does.
    pub(crate) fn strikes(&self, kind: Kind) -> bool {
        if self.is_calm() {
            return false;
        }
        let odds = self.plan.odds(kind);
        let strikes = odds > 0.0 && locked(&self.dice).random_bool(odds);
        if strikes {
            self.note(kind);
        }
        strikes
    }

    pub(crate) fn flip(&self, chance: f64) -> bool {
        locked(&self.dice).random_bool(chance)
    }

    pub(crate) fn below(&self, end: usize) -> usize {
        locked(&self.dice).random_range(0..end)
    }

    pub(crate) fn between(&self, range: RangeInclusive<u64>) -> u64 {
        locked(&self.dice).random_range(range)
    }

    pub(crate) fn millis(&self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.between(range))
    }

    pub(crate) fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    // The weather.

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Whether there has been no fault for so long.
    pub(crate) fn is_calm_for(&self, length: Duration) -> bool {
        locked(&self.calm_since).is_some_and(|since| since.elapsed() > length)
    }

    /// Ends all faults.
    pub(crate) fn calm_down(&self) {
        self.say(format_args!("from now on no fault strikes"));
        self.calm.store(true, Ordering::Relaxed);
        *locked(&self.calm_since) = Some(Instant::now());
        *locked(&self.outage_until) = None;
        self.end_trouble();
        self.changed.notify_waiters();
    }

    pub(crate) fn begin_outage(&self, length: Duration) {
        self.say(format_args!("the store is away for {length:?}"));
        *locked(&self.outage_until) = Some(Instant::now() + length);
    }

    pub(crate) fn store_is_away(&self) -> bool {
        locked(&self.outage_until).is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn take_in(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn land(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    // The record.

    pub(crate) fn note(&self, kind: Kind) {
        locked(&self.seen).note(kind);
    }

    pub(crate) fn note_code(&self, code: Code, applied: bool) {
        locked(&self.seen).note_code(code, applied);
    }

    pub(crate) fn seen(&self) -> Seen {
        locked(&self.seen).clone()
    }

    /// Something happened that an observer could see. The hash of all of it tells two runs apart.
    pub(crate) fn say(&self, what: Arguments<'_>) {
        let line = format!("{:>10.3} {what}", self.now().as_secs_f64());
        let mut trace = locked(&self.trace);
        trace.hash.write(line.as_bytes());
        trace.happenings += 1;
        if trace.aloud {
            println!("{line}");
        }
        if trace.lines.len() == KEPT_LINES {
            trace.lines.pop_front();
        }
        trace.lines.push_back(line);
        let endless = trace.happenings == MAX_HAPPENINGS;
        drop(trace);
        if endless {
            self.violated(format_args!("{MAX_HAPPENINGS} things have happened and there is no end"));
        }
    }

    /// The run has shown a bug. The first one counts.
    pub(crate) fn violated(&self, what: Arguments<'_>) {
        let mut verdict = locked(&self.verdict);
        if verdict.is_none() {
            *verdict = Some(what.to_string());
            drop(verdict);
            self.say(format_args!("VIOLATION: {what}"));
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn verdict(&self) -> Option<String> {
        locked(&self.verdict).clone()
    }

    /// Tells two runs apart.
    pub(crate) fn hash(&self) -> u64 {
        locked(&self.trace).hash.finish()
    }

    pub(crate) fn last_lines(&self) -> Vec<String> {
        locked(&self.trace).lines.iter().cloned().collect()
    }
}
