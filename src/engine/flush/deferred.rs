//! What does not stay on a lane: likes that others keep writing, likes of which the stored document cannot be read, and
//! parts that fail while the store takes everything else.

use super::part::{Part, Purpose};
use super::refusals::Refusals;
use super::{Errand, Shared, now};
use crate::common::sync::Locked;
use crate::engine::aggregate::{Aggregator, Sealed};
use crate::engine::receipt::Receipt;
use crate::like::event::Like;
use crate::store::{StoredFault, Undecidable};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a like waits that only a newer worker can count, before it is left to redelivery.
const LEFT_AFTER: Duration = Duration::from_secs(10);

/// The same when so many wait that the healthy would lack room.
const MANY_LEFT_AFTER: Duration = Duration::from_millis(100);

/// How long the finding stands after it came up last. A newer worker takes such likes sooner or later; while they come here
/// again and again, there is none.
const FINDING_LASTS: Duration = Duration::from_secs(300);

/// The finding's name.
const NEWER: &str = "newer documents";

/// Likes that are under way aside: while this is there, further ones of their members wait there and fold.
pub(super) struct UnderWay {
    likes: Vec<Like>,
    aggregator: Arc<Aggregator<Receipt>>,
    changed: Arc<Notify>,
}

impl UnderWay {
    /// Of likes that [`Aggregator::seal_contended`] has sealed: they are under way already.
    fn sealed(shared: &Shared, likes: Vec<Like>) -> Self {
        let (aggregator, changed) = (Arc::clone(&shared.aggregator), Arc::clone(shared.waiting.changed()));
        Self { likes, aggregator, changed }
    }

    /// Of likes that a lane gives away.
    pub(super) fn begin(shared: &Shared, likes: Vec<Like>) -> Self {
        shared.aggregator.begin_contended(&likes);
        Self::sealed(shared, likes)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.aggregator.end_contended(&self.likes);
        self.changed.notify_waiters();
    }
}

impl Shared {
    /// To try likes that waited aside in the buffer. Of what waits there something is stored, or it would not have made
    /// trouble, so it is read before it is written.
    pub(crate) fn errand_of_contended(&self, sealed: Sealed<Receipt>) -> Errand {
        let under_way = Some(UnderWay::sealed(self, sealed.batch().likes().to_vec()));
        let mut part = Part { under_way, ..Part::new(sealed) };
        part.state.resuming = true;
        Errand::Try(part, None)
    }

    /// Keeps a part aside until `due`, or until its deadline where that comes first.
    pub(super) fn defer(&self, mut part: Part, due: Instant) {
        let fails_alone = part.likes() == 1 && part.state.failures > 0;
        if part.state.contended || part.state.purpose == Purpose::Leave || fails_alone {
            self.aggregator.mark_contended(part.sealed.batch(), now());
        }
        if part.under_way.is_none() {
            part.under_way = Some(UnderWay::begin(self, part.sealed.batch().likes().to_vec()));
        }
        let due = due.min(self.deadline_of(&part));
        self.waiting.push(part, due);
    }

    /// A like of which the stored document cannot be read. That concerns nobody else.
    pub(super) fn part_with(&self, part: Part, stored: &Undecidable) {
        match stored.fault {
            StoredFault::Unreadable(_) => self.quarantine(part, &stored.to_string()),
            StoredFault::Newer(_) => self.leave_to_newer(part, stored),
        }
    }

    /// A newer worker of the fleet can do it, so it is left to redelivery: after a while, and its member waits aside, so that
    /// a source that delivers again at once is asked no more often than that.
    fn leave_to_newer(&self, mut part: Part, stored: &Undecidable) {
        self.recent.newer.found(now());
        self.progress.set_finding(NEWER, Some(format!("likes are left to redelivery, for {stored}")));
        part.state.purpose = Purpose::Leave;
        let many = self.waiting.leaving() + part.sealed.deliveries() > self.max_leaving;
        self.defer(part, now() + if many { MANY_LEFT_AFTER } else { LEFT_AFTER });
    }

    /// Drops what a newer worker has to do.
    pub(super) fn give_to_newer(&self, part: Part) {
        let deliveries = part.sealed.deliveries();
        tracing::debug!(deliveries, "left to redelivery, for a newer worker");
        drop(part);
        self.progress.leave(deliveries);
    }

    /// Ends the finding when it has not come up for some minutes. Answers when to look again.
    pub(crate) fn look_at_findings(&self, now: Instant) -> Option<Instant> {
        let ends = self.recent.newer.ends()?;
        if ends <= now {
            self.recent.newer.over();
            self.progress.set_finding(NEWER, None);
            return None;
        }
        Some(ends)
    }
}

/// What of the last minutes must be known.
#[derive(Default)]
pub struct Recent {
    newer: Newer,
    pub(super) refusals: Refusals,
}

/// When a document of a newer hotcount was found last.
#[derive(Default)]
struct Newer(Mutex<Option<Instant>>);

impl Newer {
    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.locked()
    }

    fn found(&self, now: Instant) {
        *self.last() = Some(now);
    }

    fn ends(&self) -> Option<Instant> {
        self.last().map(|last| last + FINDING_LASTS)
    }

    fn over(&self) {
        *self.last() = None;
    }
}
