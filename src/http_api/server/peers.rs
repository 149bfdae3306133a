//! Who is connected, what each of them is doing, and who goes first when there are too many.

use super::Limits;
use crate::common::sync::Locked;
use crate::telemetry::Metric;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Connections that are let in although there are as many as there may be, and none of them can be closed: they are told to
/// come again, or shown health and metrics.
const SPARE_SEATS: usize = 8;

/// What a peer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Nothing, between two requests.
    Rests,
    /// It sends a head, or has connected and is to send one.
    SendsHead,
    /// A request waits for more of its body.
    SendsBody,
    /// It waits for the worker.
    Waits,
    /// It is given its answer.
    TakesAnswer,
}

#[derive(Debug)]
struct State {
    doing: Doing,
    since: Instant,
    /// Since when nothing could be written.
    stalled: Option<Instant>,
    task: Option<AbortHandle>,
    closed: bool,
}

impl State {
    /// Since when the worker waits for this peer; `None` while the peer waits for the worker.
    fn keeps_waiting(&self) -> Option<Instant> {
        match self.doing {
            Doing::Waits => None,
            Doing::TakesAnswer => self.stalled,
            Doing::Rests | Doing::SendsHead | Doing::SendsBody => Some(self.stalled.unwrap_or(self.since)),
        }
    }

    /// What it has taken too long for.
    fn overdue(&self, now: Instant, limits: &Limits) -> Option<&'static str> {
        if self.stalled.is_some_and(|since| now.duration_since(since) > limits.stall) {
            return Some("answer");
        }
        let (limit, why) = match self.doing {
            Doing::Waits => return None,
            Doing::Rests => (limits.rest, "rest"),
            Doing::SendsHead => (limits.head, "head"),
            Doing::SendsBody => (limits.body, "body"),
            Doing::TakesAnswer => (limits.answer, "answer"),
        };
        (now.duration_since(self.since) > limit).then_some(why)
    }
}

/// One connection, as its bytes and its requests show it.
#[derive(Debug)]
pub(super) struct Peer(Mutex<State>);

impl Peer {
    fn new(now: Instant) -> Self {
        Self(Mutex::new(State { doing: Doing::SendsHead, since: now, stalled: None, task: None, closed: false }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is whole.
        self.0.locked()
    }

    fn set(&self, doing: Doing) {
        let mut state = self.state();
        (state.doing, state.since) = (doing, Instant::now());
    }

    /// Bytes have come. While it rests they begin a head.
    pub(super) fn sends(&self) {
        let mut state = self.state();
        if state.doing == Doing::Rests {
            (state.doing, state.since) = (Doing::SendsHead, Instant::now());
        }
    }

    /// Something was written, or nothing could be.
    pub(super) fn takes(&self, something: bool) {
        let mut state = self.state();
        match something {
            true => state.stalled = None,
            false => state.stalled = state.stalled.or_else(|| Some(Instant::now())),
        }
    }

    /// Its request is being worked on.
    pub(super) fn waits(&self) {
        self.set(Doing::Waits);
    }

    /// Its request waits for more of its body, from the first time that this is said after [`Peer::waits`].
    pub(super) fn is_to_send(&self) {
        let mut state = self.state();
        if state.doing != Doing::SendsBody {
            (state.doing, state.since) = (Doing::SendsBody, Instant::now());
        }
    }

    /// Its answer begins.
    pub(super) fn is_answered(&self) {
        self.set(Doing::TakesAnswer);
    }

    /// Its answer has been handed over.
    pub(super) fn rests(&self) {
        self.set(Doing::Rests);
    }

    /// The task that serves it, which ends with it.
    pub(super) fn runs_as(&self, task: AbortHandle) {
        let mut state = self.state();
        if state.closed {
            task.abort();
        }
        state.task = Some(task);
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        if let Some(task) = &state.task {
            task.abort();
        }
    }
}

/// Which of the places a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// One of those that there are.
    Own,
    /// One of the few beside them.
    Spare,
}

/// A connection that was let in.
pub(super) struct Admitted {
    pub(super) peer: Arc<Peer>,
    pub(super) number: u64,
    pub(super) seat: Seat,
}

/// All connections.
pub(super) struct Peers {
    limits: Limits,
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    next: u64,
    open: HashMap<u64, Arc<Peer>>,
}

impl Peers {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, all: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Each change under the lock is one insertion or removal.
        self.all.locked()
    }

    /// How many there are.
    pub(super) fn number(&self) -> usize {
        self.all().open.len()
    }

    /// Lets one more in. Where there is no place, whoever has kept the worker waiting longest goes; where all wait for the
    /// worker, there are a few spare places; `None` when those are taken too.
    pub(super) fn admit(&self, now: Instant) -> Option<Admitted> {
        let mut seat = Seat::Own;
        if self.number() >= self.limits.connections && !self.close_longest("limit") {
            if self.number() >= self.limits.connections + SPARE_SEATS {
                Metric::ClosedConnections.add_labelled("why", "limit", 1);
                return None;
            }
            seat = Seat::Spare;
        }
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        let peer = Arc::new(Peer::new(now));
        all.open.insert(number, Arc::clone(&peer));
        Some(Admitted { peer, number, seat })
    }

    /// Forgets the connection when what this answers is dropped.
    pub(super) fn open(self: &Arc<Self>, number: u64) -> Open {
        Open { peers: Arc::clone(self), number }
    }

    /// Closes whoever has kept the worker waiting longest. Answers whether there was one.
    pub(super) fn close_longest(&self, why: &'static str) -> bool {
        let mut all = self.all();
        let waiting = all.open.iter().filter_map(|(number, peer)| Some((peer.state().keeps_waiting()?, *number)));
        let Some((_, number)) = waiting.min() else { return false };
        all.close(number, why);
        true
    }

    /// Closes everyone who has taken too long.
    pub(super) fn close_overdue(&self, now: Instant) {
        let mut all = self.all();
        let overdue =
            all.open.iter().filter_map(|(number, peer)| Some((*number, peer.state().overdue(now, &self.limits)?)));
        for (number, why) in overdue.collect::<Vec<_>>() {
            all.close(number, why);
        }
    }
}

impl All {
    /// Its place is free from now on; its descriptor as soon as its task has ended.
    fn close(&mut self, number: u64, why: &'static str) {
        if let Some(peer) = self.open.remove(&number) {
            peer.close();
            Metric::ClosedConnections.add_labelled("why", why, 1);
        }
    }
}

/// A connection's place.
pub(super) struct Open {
    peers: Arc<Peers>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.peers.all().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn peers(connections: usize) -> Peers {
        Peers::new(Limits { connections, ..Limits::default() })
    }

    async fn later(seconds: u64) -> Instant {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        Instant::now()
    }

    fn admit(peers: &Peers) -> Admitted {
        peers.admit(Instant::now()).expect("a place")
    }

    fn is_open(admitted: &Admitted) -> bool {
        !admitted.peer.state().closed
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_keeps_the_worker_waiting_longest_goes_first_and_whoever_waits_for_it_stays() {
        let peers = peers(3);
        let [works, silent, trickles] = [admit(&peers), admit(&peers), admit(&peers)];
        works.peer.waits();
        trickles.peer.waits();
        trickles.peer.is_to_send();
        later(5).await;
        trickles.peer.waits();
        trickles.peer.is_to_send();
        later(1).await;
        let new = admit(&peers);
        assert_eq!(new.seat, Seat::Own);
        assert!(is_open(&works) && !is_open(&silent) && is_open(&trickles) && is_open(&new));
        let newer = admit(&peers);
        assert!(is_open(&works) && !is_open(&trickles) && is_open(&new) && is_open(&newer));
    }

    #[tokio::test(start_paused = true)]
    async fn where_everybody_waits_for_the_worker_a_few_are_let_in_beside_them() {
        let peers = peers(2);
        let working = [admit(&peers), admit(&peers)];
        working.iter().for_each(|admitted| admitted.peer.waits());
        let spare: Vec<Admitted> = std::iter::repeat_with(|| {
            let spare = admit(&peers);
            spare.peer.waits();
            spare
        })
        .take(SPARE_SEATS)
        .collect();
        assert!(spare.iter().all(|admitted| admitted.seat == Seat::Spare));
        assert!(peers.admit(Instant::now()).is_none());
        assert!(working.iter().chain(&spare).all(is_open));
    }

    #[tokio::test(start_paused = true)]
    async fn each_thing_that_a_peer_does_has_its_own_deadline() {
        let limits = Limits::default();
        let one_more = Duration::from_secs(1);
        type Case = (&'static str, fn(&Peer), Duration);
        let begin: [Case; 5] = [
            ("head", |_| (), limits.head),
            ("body", Peer::is_to_send, limits.body),
            ("answer", Peer::is_answered, limits.answer),
            ("rest", Peer::rests, limits.rest),
            ("answer", |peer| peer.takes(false), limits.stall),
        ];
        for (why, does, limit) in begin {
            let peer = Peer::new(Instant::now());
            does(&peer);
            tokio::time::advance(limit).await;
            assert_eq!(peer.state().overdue(Instant::now(), &limits), None, "{why}");
            tokio::time::advance(one_more).await;
            assert_eq!(peer.state().overdue(Instant::now(), &limits), Some(why));
        }
        let waits = Peer::new(Instant::now());
        waits.waits();
        let an_hour = later(3_600).await;
        assert_eq!(waits.state().overdue(an_hour, &limits), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_counts_from_its_first_byte_and_trickling_does_not_help() {
        let peer = Peer::new(Instant::now());
        peer.rests();
        for _ in 0..11 {
            peer.sends();
            later(1).await;
        }
        assert_eq!(peer.state().overdue(Instant::now(), &Limits::default()), Some("head"));
    }
}
