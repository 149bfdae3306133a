//! The watchdog's task: look, ask the source whether it answers and what is wrong with it, say what stands still.

use super::Work;
use super::check::Checks;
use crate::engine::flush::now;
use crate::engine::progress::Progress;
use crate::engine::watchdog::{Buffer, LOOK_EVERY, Part, Share, Watchdog};
use crate::source::Source;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Looks without a delivery after which the source is asked whether it answers: half a minute. A broker counts such
/// questions against a quota of thousands a minute.
const ASK_AFTER: u32 = 6;

/// The longest that the answer may take, so that the watchdog itself cannot stand still.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct Watch {
    pub(super) source: Arc<dyn Source>,
    pub(super) work: Arc<Work>,
    pub(super) progress: Arc<Progress>,
}

impl Watch {
    /// Looks until something will never move again, and answers with that. A check of the source that takes long delays
    /// no look.
    pub(super) async fn run(self) -> String {
        let checks = Checks::new(Arc::clone(&self.source), Arc::clone(&self.progress));
        tokio::select! {
            biased;
            standstill = self.look() => standstill,
            never = checks.run() => match never {},
        }
    }

    async fn look(self) -> String {
        let mut watchdog = Watchdog::default();
        let mut source = Silence::default();
        let mut shares = Shares::default();
        let mut tick = tokio::time::interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            shares.look(&self.progress);
            let found = watchdog.look(self.progress.heartbeats(), self.buffer());
            if let Some(standstill) = found.iter().find(|finding| finding.is_standstill()) {
                return standstill.to_string();
            }
            let mut findings: Vec<(String, String)> =
                found.into_iter().map(|finding| (finding.what.clone(), finding.to_string())).collect();
            if let Some(problem) = source.look(&*self.source, &self.progress).await {
                findings.push((problem.clone(), problem));
            }
            self.progress.found(findings);
        }
    }

    fn buffer(&self) -> Buffer {
        let due_at = self.work.aggregator.due_at();
        let waits = due_at.is_some() || self.work.aggregator.contended_waiting() || !self.work.waiting.is_empty();
        Buffer { waits, overdue: due_at.is_some_and(|due| due + LOOK_EVERY < now()) }
    }
}

/// What some deliveries may say and many must not.
#[derive(Default)]
struct Shares {
    from_the_future: Share,
    settled_before: Share,
}

impl Shares {
    fn look(&mut self, progress: &Progress) {
        let received = progress.counted().received;
        let from_the_future = self.from_the_future.look(progress.from_the_future(), received);
        progress.set_finding("clock", from_the_future.map(|Part { hits, of }| {
            format!(
                "{hits} of the last {of} deliveries say that they happened more than ten minutes in the future, and are \
                 quarantined: the clock of this machine is slow, which `date -u` shows, or the senders' clocks are fast"
            )
        }));
        let settled_before = self.settled_before.look(progress.settled_before(), received);
        progress.set_finding("acknowledgements", settled_before.map(|Part { hits, of }| {
            format!(
                "{hits} of the last {of} deliveries were settled here before, so acknowledgements have no effect: they count \
                 once, and come again until the broker takes the acknowledgements or gives the messages up"
            )
        }));
    }
}

/// How long nothing has come, and what the source said to that.
#[derive(Default)]
struct Silence {
    received: u64,
    looks: u32,
    problem: Option<String>,
}

impl Silence {
    async fn look(&mut self, source: &dyn Source, progress: &Progress) -> Option<String> {
        let received = progress.counted().received;
        if std::mem::replace(&mut self.received, received) != received {
            (self.looks, self.problem) = (0, None);
            return None;
        }
        self.looks += 1;
        // While something is wrong it is asked at every look, so that it is well again soon after.
        if self.looks >= ASK_AFTER || self.problem.is_some() {
            self.looks = 0;
            let answer = tokio::time::timeout(ANSWER_WITHIN, source.ping()).await;
            self.problem = match answer {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("the source does not answer: {error}")),
                Err(_) => Some(format!("the source has not answered within {} s", ANSWER_WITHIN.as_secs())),
            };
        }
        self.problem.clone()
    }
}
