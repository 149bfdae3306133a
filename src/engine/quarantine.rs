//! Where poison waits for the quarantine. It waits for room like everything else: what is held of it counts in the budget,
//! and it is never dropped for being many. A quarantine that takes nothing must not stall the healthy, though: when it has
//! failed for some seconds while the store works, it keeps a tenth of the window, and the rest is left to redelivery.

mod groups;
mod log;

use crate::common::backoff::Backoff;
use crate::engine::flush::{Drain, Health, now};
use crate::engine::progress::Progress;
use crate::engine::watchdog::Heartbeat;
use crate::source::ack::{Confirmation, Settlement};
use crate::store::{ErrorClass, Limits, Store, StoreError};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use groups::{Entry, Group, Groups, REFUSED_FOR, Size};
use log::Log;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Entries kept with one call at most, where the store takes as many: more of them save next to nothing.
const MAX_ENTRIES_A_CALL: usize = 500;

/// Bytes kept with one call at most, where the store takes as many. An entry that is larger goes alone.
const MAX_BYTES_A_CALL: usize = 4 << 20;

/// Calls at once with what is new, and as many with what has failed before, so that neither waits for the other.
const CALLS: usize = 2;

/// Failures in a row, with a code that passes, after which it is asked whether the store works.
const ASK_AFTER: u32 = 3;

/// How long nothing may have been kept, while the store works, before the quarantine keeps no more than its share.
const FAILS_AFTER: Duration = Duration::from_secs(10);

/// The finding's name.
const STUCK: &str = "quarantine";

/// Moves poison into the store's quarantine, then acknowledges it.
pub struct Quarantine {
    /// Where it is kept.
    pub store: Arc<dyn Store>,
    /// Whether that works as a whole.
    pub health: Arc<Health>,
    /// The source's name, kept with each entry.
    pub source: String,
    /// The numbers.
    pub progress: Arc<Progress>,
    /// What the watchdog sees of it.
    pub heartbeat: Arc<Heartbeat>,
    /// Where acknowledgements wait for the broker's answer.
    pub confirmations: mpsc::Sender<Confirmation>,
    /// The wait between attempts.
    pub backoff: Backoff,
    /// How long an entry is tried again before it is left to redelivery.
    pub retry_deadline: Duration,
    /// When everything must be given up, once a shutdown has begun.
    pub drain: Arc<Drain>,
    /// Entries that wait at most while the quarantine fails, and entries that may fail alone while it works.
    pub share: usize,
}

/// What a call has shown.
struct Kept {
    group: Group,
    fresh: bool,
    end: End,
}

enum End {
    Kept,
    /// There is no more time.
    Late,
    Failed {
        error: StoreError,
        /// Whether the store takes other writes, where that was asked.
        store_works: bool,
    },
}

/// The quarantine at work.
struct Work {
    quarantine: Quarantine,
    size: Size,
    groups: Groups,
    calls: FuturesUnordered<BoxFuture<'static, Kept>>,
    busy: [usize; 2],
    rng: SmallRng,
    log: Log,
    /// Since when nothing was kept although something was tried.
    failing_since: Option<Instant>,
}

fn size_of_a_call(limits: &Limits) -> Size {
    Size { entries: limits.max_writes.clamp(1, MAX_ENTRIES_A_CALL), bytes: limits.max_bytes.clamp(1, MAX_BYTES_A_CALL) }
}

impl Quarantine {
    /// Works until `poison` is closed and empty. What cannot be kept is dropped, so that it is delivered again; it is
    /// never acknowledged.
    pub async fn run(self, mut poison: mpsc::Receiver<Entry>, seed: u64) {
        let size = size_of_a_call(&self.store.limits());
        let drain = Arc::clone(&self.drain);
        let mut work = Work {
            quarantine: self,
            size,
            groups: Groups::default(),
            calls: FuturesUnordered::new(),
            busy: [0; 2],
            rng: SmallRng::seed_from_u64(seed),
            log: Log::default(),
            failing_since: None,
        };
        let (mut open, mut arrived) = (true, Vec::new());
        loop {
            work.begin_calls();
            work.keep_to_the_share(&mut poison);
            if work.calls.is_empty() && work.groups.entries() == 0 {
                work.quarantine.heartbeat.idle();
                if !open {
                    return;
                }
            }
            let (wake, wanted) = (work.next_look(), size.entries.saturating_sub(work.groups.fresh()));
            tokio::select! {
                biased;
                Some(kept) = work.calls.next() => work.conclude(kept).await,
                many = poison.recv_many(&mut arrived, wanted), if open && wanted > 0 => {
                    open = many > 0;
                    arrived.drain(..).for_each(|entry| work.receive(entry));
                }
                () = async {
                    match wake {
                        Some(wake) => drain.expire(wake).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }
}

impl Work {
    fn receive(&mut self, entry: Entry) {
        if let Some(deliveries) = self.log.note(&entry.1, now()) {
            tracing::warn!(deliveries, "poison quarantined: {}", entry.1);
        }
        self.groups.push(entry);
    }

    /// When there is something to look at although no call has ended: a group is due, or nothing was kept for too long.
    fn next_look(&self) -> Option<Instant> {
        let due = self.groups.next_due().filter(|_| self.busy[0] < CALLS);
        let is_over = self.quarantine.drain.deadline().is_some_and(|deadline| deadline <= now());
        let fails = self.failing_since.map(|since| since + FAILS_AFTER).filter(|at| *at > now() && !is_over);
        due.into_iter().chain(fails).min()
    }

    /// Begins calls with what is due and with what is new, each up to its number.
    fn begin_calls(&mut self) {
        let now = now();
        let is_over = self.quarantine.drain.deadline().is_some_and(|deadline| deadline <= now);
        let due_until = if is_over { now + self.quarantine.retry_deadline } else { now };
        while self.busy[0] < CALLS
            && let Some(group) = self.groups.take_due(due_until)
        {
            self.begin(group, false);
        }
        while self.busy[1] < CALLS
            && let Some(group) = self.groups.take_fresh(self.size, now + self.quarantine.retry_deadline)
        {
            self.begin(group, true);
        }
    }

    fn begin(&mut self, group: Group, fresh: bool) {
        self.busy[usize::from(fresh)] += 1;
        let Quarantine { store, health, drain, heartbeat, source, .. } = &self.quarantine;
        heartbeat.working("waits for the store to answer");
        let entries: Vec<_> = group.poison.iter().map(|(receipt, why)| receipt.quarantined(source, why)).collect();
        let (store, health, drain) = (Arc::clone(store), Arc::clone(health), Arc::clone(drain));
        let give_up = group.give_up;
        self.calls.push(Box::pin(async move {
            let failures = group.failures + 1;
            let witnesses = health.witnesses();
            let call = async {
                let error = match store.quarantine(&entries).await {
                    Ok(()) => return End::Kept,
                    Err(error) => health.judged(error),
                };
                let passes =
                    matches!(error.class, ErrorClass::DidNotCommit | ErrorClass::Unknown | ErrorClass::Unauthenticated);
                let asks = !passes || failures.is_multiple_of(ASK_AFTER);
                let store_works = asks && health.works_since(witnesses).await;
                End::Failed { error, store_works }
            };
            let end = tokio::select! {
                biased;
                () = drain.expire(give_up) => End::Late,
                end = call => end,
            };
            Kept { group, fresh, end }
        }));
    }

    /// What fails together while the store works is divided: an entry that the store refuses must not take others with it,
    /// and "too large" hides behind several codes. What fails alone waits for its own time, and holds nobody.
    async fn conclude(&mut self, Kept { mut group, fresh, end }: Kept) {
        self.busy[usize::from(fresh)] -= 1;
        let (error, store_works) = match end {
            End::Kept => {
                self.failing_since = None;
                self.quarantine.settle(group).await;
                return;
            }
            End::Late => {
                self.quarantine.leave(group.poison, "there is no more time");
                return;
            }
            End::Failed { error, store_works } => (error, store_works),
        };
        self.quarantine.heartbeat.working("waits to try again");
        tracing::debug!(entries = group.poison.len(), "poison is not kept yet: {error}");
        let now = now();
        self.failing_since.get_or_insert(now);
        group.failed(now);
        if store_works && group.poison.len() > 1 {
            group.divide().into_iter().for_each(|part| self.groups.push_later(part, now));
            return;
        }
        let mut wait = self.quarantine.backoff.wait(group.failures, &mut self.rng);
        if store_works && matches!(error.class, ErrorClass::Rejected | ErrorClass::Undecidable(_)) {
            if group.refused_alone(now) {
                self.quarantine.leave(group.poison, &error.message);
                return;
            }
            wait = wait.min(REFUSED_FOR / 3);
        }
        self.groups.push_later(group, now + wait);
    }

    /// While the store works and the quarantine does not, no more than its share of the window waits for it; and of what
    /// fails alone no more than that waits at any time.
    fn keep_to_the_share(&mut self, poison: &mut mpsc::Receiver<Entry>) {
        let (share, mut left) = (self.quarantine.share, Vec::new());
        let failing = self.failing_since.is_some_and(|since| since + FAILS_AFTER <= now());
        let stuck = failing && !self.quarantine.progress.store_failing();
        // Nobody sends more of it, or what is left here and comes back at once would go round at the speed of the CPU.
        self.quarantine.progress.set_quarantine_full(stuck && self.groups.entries() + poison.len() >= share);
        if stuck {
            while self.groups.entries() + poison.len() > share {
                let Some(entry) = poison.try_recv().ok().or_else(|| self.groups.take_newest()) else { break };
                left.push(entry);
            }
        }
        // Not before each has waited: a source that delivers again at once is not to be asked at the speed of the CPU.
        while self.groups.alone() > share
            && let Some(since) = now().checked_sub(FAILS_AFTER)
            && let Some(group) = self.groups.take_alone(since)
        {
            left.extend(group.poison);
        }
        let told = "poison cannot be quarantined although the store works, and more of it is left to redelivery";
        if !left.is_empty() {
            self.quarantine.progress.set_finding(STUCK, Some(told.to_owned()));
            self.quarantine.leave(left, "the quarantine takes nothing");
        } else if !stuck {
            self.quarantine.progress.set_finding(STUCK, None);
        }
    }
}

impl Quarantine {
    async fn settle(&self, group: Group) {
        for (receipt, reason) in group.poison {
            self.progress.quarantine(reason.field);
            if let Some(confirmation) = receipt.settle(&Settlement::Quarantined(reason)) {
                // Closed only when the worker is being torn down; then nobody waits for the answer.
                let _ = self.confirmations.send(confirmation).await;
            }
        }
    }

    fn leave(&self, poison: Vec<Entry>, why: &str) {
        let deliveries = poison.len();
        tracing::error!(deliveries, "poison could not be quarantined and is left to redelivery: {why}");
        drop(poison);
        self.progress.leave(deliveries);
    }
}
