//! Sending a load, on a paused clock: stalls, targets that go away and come back, and stopping.

use async_trait::async_trait;
use hotcount::lab::load::drive::{Config as Drive, Ended, Watch, drive};
use hotcount::lab::load::target::{Accepted, Batch, SendError, Target};
use hotcount::lab::load::{Config, Plan, Schedule};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn plan(messages: u64) -> Plan {
    Plan::new(Config { messages, ..Config::default() }).expect("can be")
}

/// A target of the test: what happens to the send with this number, counted from 1.
struct Scripted<F> {
    sends: AtomicU64,
    accepted: AtomicU64,
    script: F,
}

impl<F: Fn(u64, &Batch) -> (Duration, Result<(), SendError>) + Send + Sync> Scripted<F> {
    fn new(script: F) -> Self {
        Self { sends: AtomicU64::new(0), accepted: AtomicU64::new(0), script }
    }
}

#[async_trait]
impl<F: Fn(u64, &Batch) -> (Duration, Result<(), SendError>) + Send + Sync> Target for Scripted<F> {
    fn name(&self) -> String {
        "script".to_owned()
    }

    fn batch_messages(&self) -> usize {
        100
    }

    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError> {
        let number = self.sends.fetch_add(1, Ordering::SeqCst) + 1;
        let (delay, outcome) = (self.script)(number, batch);
        tokio::time::sleep(delay).await;
        outcome.map(|()| {
            self.accepted.fetch_add(batch.parts.len() as u64, Ordering::SeqCst);
            Accepted::default()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_shows_with_every_message_that_had_to_wait_for_it() {
    // A thousand a second for ten seconds; the target stalls once, for two seconds, with room for one send.
    let plan = plan(10_000);
    let target = Scripted::new(|number, _: &Batch| {
        (if number == 1_000 { Duration::from_secs(2) } else { Duration::ZERO }, Ok(()))
    });
    let config = Drive {
        schedule: Schedule::new(1_000.0, Duration::ZERO),
        sends_in_flight: std::num::NonZeroUsize::MIN,
        ..Drive::default()
    };
    let (watch, start) = (Watch::default(), tokio::time::Instant::now());
    let ended = drive(&plan, &target, &config, &CancellationToken::new(), &watch).await;
    assert_eq!((ended, watch.accepted()), (Ended::Complete, 10_000));
    let took = start.elapsed();
    assert!((Duration::from_millis(9_900)..Duration::from_millis(10_200)).contains(&took), "{took:?}");
    let latency = watch.latency();
    // Of the 2,000 messages that were due during the stall, half waited for a second or more, and a tenth for 1.8 s.
    let slower_than = |ms: u64| latency.len() - latency.count_between(0, ms * 1_000);
    assert!((950..=1_050).contains(&slower_than(1_000)), "{}", slower_than(1_000));
    assert!((150..=250).contains(&slower_than(1_800)), "{}", slower_than(1_800));
    assert!(latency.value_at_quantile(0.5) < 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_comes_back_gets_everything_and_only_what_is_left_is_sent_again() {
    let plan = plan(1_000);
    let target = Scripted::new(|number, batch: &Batch| {
        let outcome = match number {
            1..=5 => Err(SendError::new(true, "not there")),
            6 => {
                // Every other message is accepted.
                let left = (0..batch.parts.len()).step_by(2).collect();
                Err(SendError { transient: true, message: "half of it".to_owned(), left: Some(left) })
            }
            _ => Ok(()),
        };
        (Duration::from_millis(5), outcome)
    });
    let watch = Watch::default();
    let config = Drive { sends_in_flight: std::num::NonZeroUsize::MIN, ..Drive::default() };
    let ended = drive(&plan, &target, &config, &CancellationToken::new(), &watch).await;
    assert_eq!((ended, watch.accepted(), watch.retries()), (Ended::Complete, 1_000, 6));
    assert_eq!(target.accepted.load(Ordering::SeqCst), 950, "50 were accepted with the answer that failed");
    assert_eq!((watch.latency().len(), watch.trouble()), (1_000, None));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_stays_away_is_given_up_and_what_it_accepted_is_known() {
    let plan = plan(1_000);
    let target = Scripted::new(|number, _: &Batch| {
        (Duration::ZERO, if number <= 3 { Ok(()) } else { Err(SendError::new(true, "gone")) })
    });
    let (watch, start) = (Watch::default(), tokio::time::Instant::now());
    let ended = drive(&plan, &target, &Drive::default(), &CancellationToken::new(), &watch).await;
    assert_eq!((ended, watch.accepted()), (Ended::GaveUp("gone".to_owned()), 300));
    assert!(
        start.elapsed() <= Drive::default().give_up_after + Drive::default().drain_timeout,
        "{:?}",
        start.elapsed()
    );
    assert!(watch.retries() > 8);

    let refusing = Scripted::new(|_, _: &Batch| (Duration::ZERO, Err(SendError::new(false, "never"))));
    let watch = Watch::default();
    let ended = drive(&plan, &refusing, &Drive::default(), &CancellationToken::new(), &watch).await;
    assert_eq!((ended, watch.retries()), (Ended::GaveUp("never".to_owned()), 0));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_load_waits_for_what_is_in_flight_and_holds_no_more_than_it_may() {
    let plan = plan(20_000);
    let stop = CancellationToken::new();
    let target = Scripted::new(|number, _: &Batch| {
        if number == 20 {
            stop.cancel();
        }
        (Duration::from_millis(100), Ok(()))
    });
    let watch = Watch::default();
    let ended = drive(&plan, &target, &Drive::default(), &stop, &watch).await;
    assert_eq!(ended, Ended::Stopped);
    assert_eq!(watch.accepted(), target.accepted.load(Ordering::SeqCst));
    let sends = target.sends.load(Ordering::SeqCst);
    assert_eq!(watch.accepted(), sends * 100, "all that was sent was answered");
    assert!((20..=24).contains(&sends), "{sends}");
}

#[tokio::test(start_paused = true)]
async fn a_flash_is_sent_along_its_ramp() {
    // Nothing to a thousand a second within four seconds, then a second at full rate.
    let plan = plan(3_000);
    let schedule = Schedule::new(1_000.0, Duration::from_secs(4));
    let start = tokio::time::Instant::now();
    let target = Scripted::new(|_, batch: &Batch| {
        let due = schedule.expect("a rate").due(batch.parts.last().expect("not empty").position);
        assert!(due <= start.elapsed(), "{due:?} was sent after {:?}", start.elapsed());
        (Duration::ZERO, Ok(()))
    });
    let (config, watch) = (Drive { schedule, ..Drive::default() }, Watch::default());
    let ended = drive(&plan, &target, &config, &CancellationToken::new(), &watch).await;
    assert_eq!(ended, Ended::Complete);
    assert!(start.elapsed().abs_diff(Duration::from_secs(5)) < Duration::from_millis(20), "{:?}", start.elapsed());
    assert!(watch.latency().max() < 5_000);
}
