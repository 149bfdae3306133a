//! The queue of a run. It delivers at least once: twice, late, out of order, again when a lease runs out or a token is
//! dropped, and everything from the beginning when it is told to.

use crate::auditor::Auditor;
use crate::events::Event;
use crate::life::{Life, Sent};
use crate::mutants::Mutant;
use crate::seen::Kind;
use crate::world::{World, locked};
use bytes::Bytes;
use hotcount::source::ack::Settlement;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A message, from its publishing to the end of the run.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) number: usize,
    /// `None` for a message of which the broker says nothing but its payload.
    pub(crate) id: Option<String>,
    pub(crate) payload: Bytes,
    pub(crate) event: Event,
    pub(crate) published_at: Duration,
    pub(crate) attempts: u32,
    acked: bool,
}

/// A delivery that is out.
struct Lease {
    message: usize,
    life: Arc<Life>,
    until: Instant,
    /// Its ack is on the way to nowhere.
    ack_lost: bool,
}

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    ready: VecDeque<usize>,
    /// Dropped messages, and when they are delivered again.
    later: BTreeMap<(Instant, u64), usize>,
    leases: BTreeMap<u64, Lease>,
    next_lease: u64,
    /// Tokens that are out: which message each stands for, whatever became of its lease.
    tokens: BTreeMap<u64, usize>,
}

/// The queue.
pub(crate) struct Broker {
    pub(crate) world: Arc<World>,
    auditor: Arc<Auditor>,
    state: Mutex<State>,
    /// Something may be ready, or a lease has a new deadline.
    pub(crate) changed: Notify,
    /// Streams opened before this number have been cut.
    pub(crate) generation: AtomicU64,
}

impl Broker {
    pub(crate) fn new(world: &Arc<World>, auditor: &Arc<Auditor>) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            auditor: Arc::clone(auditor),
            state: Mutex::default(),
            changed: Notify::new(),
            generation: AtomicU64::new(0),
        })
    }

    pub(crate) fn publish(&self, event: &Event) {
        let published_at = self.world.now();
        self.auditor.published(&event.meaning);
        let mut state = locked(&self.state);
        let number = state.messages.len();
        self.world.note(Kind::Published);
        self.world.say(format_args!("m{number} is published: {}", event.meaning));
        let id = self.world.flip(0.9).then(|| format!("message-{number}"));
        state.messages.push(Message {
            number,
            id,
            payload: Bytes::from(event.payload.clone()),
            event: event.clone(),
            published_at,
            attempts: 0,
            acked: false,
        });
        state.ready.push_back(number);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Up to `max` messages for a worker, each with the number of its token.
    pub(crate) fn take(&self, life: &Arc<Life>, max: usize) -> Vec<(u64, Message)> {
        let mut state = locked(&self.state);
        let mut taken = Vec::new();
        let wanted = if self.world.is_calm() { max } else { self.world.between(1..=max as u64) as usize };
        while taken.len() < wanted && !state.ready.is_empty() {
            let place = if state.ready.len() > 1 && self.world.strikes(Kind::OutOfOrder) {
                self.world.below(state.ready.len())
            } else {
                0
            };
            let Some(number) = state.ready.remove(place) else { break };
            if self.world.strikes(Kind::TwinDelivery) {
                state.ready.push_back(number);
            }
            let message = &mut state.messages[number];
            if message.acked {
                // Acknowledged while it waited to be delivered again.
                continue;
            }
            message.attempts += 1;
            let message = message.clone();
            let lease = if self.world.strikes(Kind::ShortLease) {
                self.world.millis(10..=20_000)
            } else {
                self.world.plan.max_lease
            };
            let token = state.next_lease;
            state.next_lease += 1;
            let until = Instant::now() + lease;
            state.leases.insert(token, Lease { message: number, life: Arc::clone(life), until, ack_lost: false });
            state.tokens.insert(token, number);
            self.world.note(Kind::Delivered);
            self.world.say(format_args!("{life} receives m{number}, token {token}"));
            let mut numbers = locked(&life.numbers);
            numbers.handed += 1;
            numbers.held += 1;
            numbers.held_bytes += message.payload.len() as u64;
            numbers.largest = numbers.largest.max(message.payload.len() as u64);
            drop(numbers);
            taken.push((token, message));
        }
        drop(state);
        if !taken.is_empty() {
            // The keeper of leases looks at the new deadlines.
            self.changed.notify_waiters();
            self.auditor.handed(life);
        }
        taken
    }

    /// A worker says that a delivery is finished. Answers whether the worker is still there to hear about it.
    pub(crate) fn settled(&self, life: &Arc<Life>, token: u64, how: &Settlement) -> bool {
        let message = self.give_back(life, token);
        let sent = life.sends(Sent::Ack { token, message: message.number });
        if life.is_dead() {
            return false;
        }
        // A worker that stands still has claimed it all the same.
        self.auditor.acknowledged(life, &message, how);
        if let Some(sent) = sent {
            self.receive(sent);
        }
        true
    }

    /// A worker has dropped a token: the message must come back.
    pub(crate) fn dropped(&self, life: &Arc<Life>, token: u64) {
        let message = self.give_back(life, token);
        let sent = life.sends(Sent::Nack { token, message: message.number });
        if life.is_dead() {
            return;
        }
        self.world.note(Kind::Dropped);
        locked(&life.numbers).dropped += 1;
        if let Some(sent) = sent {
            self.receive(sent);
        }
    }

    fn give_back(&self, life: &Arc<Life>, token: u64) -> Message {
        let mut state = locked(&self.state);
        let number = state.tokens.remove(&token).expect("a token is spent once");
        let message = state.messages[number].clone();
        let mut numbers = locked(&life.numbers);
        numbers.held -= 1;
        numbers.held_bytes -= message.payload.len() as u64;
        message
    }

    /// What a worker has sent arrives.
    pub(crate) fn receive(&self, sent: Sent) {
        let mut state = locked(&self.state);
        match sent {
            Sent::Ack { token, message } => self.ack(&mut state, token, message),
            Sent::Nack { token, message } => {
                if state.leases.remove(&token).is_some() {
                    self.world.say(format_args!("m{message} is dropped, token {token}"));
                    if self.world.plan.double == Some(Mutant::DroppedMeansDone) {
                        state.messages[message].acked = true;
                    } else {
                        let again = Instant::now() + self.world.plan.redelivery_delay;
                        state.later.insert((again, token), message);
                    }
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn ack(&self, state: &mut State, token: u64, message: usize) {
        match state.leases.get_mut(&token) {
            Some(lease) if self.world.strikes(Kind::LostAck) => {
                self.world.say(format_args!("the ack of m{message} is lost, token {token}"));
                lease.until = lease.until.min(Instant::now() + self.world.millis(10..=20_000));
                lease.ack_lost = true;
            }
            Some(_) => {
                self.world.note(Kind::Acked);
                self.world.say(format_args!("m{message} is acknowledged, token {token}"));
                state.leases.remove(&token);
                state.messages[message].acked = true;
            }
            // The lease has run out. A broker may take such an ack, or not.
            None => {
                let taken = self.world.flip(0.5);
                self.world.note(Kind::LateAck);
                self.world.say(format_args!("the ack of m{message} is late, token {token}, taken: {taken}"));
                state.messages[message].acked |= taken;
            }
        }
    }

    /// Gives back what was held too long, and what was dropped; runs as long as the world does.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            let next = {
                let state = locked(&self.state);
                let lease = state.leases.values().map(|lease| lease.until).min();
                lease.into_iter().chain(state.later.keys().next().map(|(again, _)| *again)).min()
            };
            match next {
                Some(until) if until <= Instant::now() => self.give_out_again(),
                Some(until) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(until) => {}
                },
                None => changed.await,
            }
        }
    }

    fn give_out_again(&self) {
        let mut state = locked(&self.state);
        let now = Instant::now();
        let over: Vec<u64> = state.leases.iter().filter(|(_, lease)| lease.until <= now).map(|(t, _)| *t).collect();
        let mut again = Vec::new();
        for token in over {
            let Some(lease) = state.leases.remove(&token) else { continue };
            let kind = if lease.life.is_dead() { Kind::LeaseOfTheDead } else { Kind::LeaseRanOut };
            if !lease.ack_lost {
                self.world.note(kind);
            }
            self.world.say(format_args!("the lease of m{} has run out, token {token}", lease.message));
            again.push(lease.message);
        }
        while let Some(entry) = state.later.first_entry().filter(|entry| entry.key().0 <= now) {
            again.push(entry.remove());
        }
        for message in again {
            // A broker has one copy of a message, however many deliveries of it are given back.
            if !state.messages[message].acked && !state.ready.contains(&message) {
                state.ready.push_back(message);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Delivers everything again, from the first message on.
    pub(crate) fn replay(&self) {
        let mut state = locked(&self.state);
        self.world.say(format_args!("everything is delivered again"));
        let all: Vec<usize> = (0..state.messages.len()).collect();
        for number in &all {
            state.messages[*number].acked = false;
        }
        state.ready = all.into();
        state.leases.clear();
        state.later.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Cuts every stream that is open now.
    pub(crate) fn cut_all_streams(&self) {
        self.world.say(format_args!("all streams are cut"));
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Whether every message is acknowledged and no delivery is out.
    pub(crate) fn is_done(&self) -> bool {
        let state = locked(&self.state);
        state.tokens.is_empty()
            && state.leases.is_empty()
            && state.later.is_empty()
            && state.messages.iter().all(|message| message.acked)
    }

    /// Deliveries that are neither settled nor dropped: their tokens.
    pub(crate) fn out(&self) -> Vec<String> {
        let state = locked(&self.state);
        let mut out: Vec<_> = state.tokens.iter().map(|(token, held)| format!("{token}: {held:?}")).collect();
        out.sort_unstable();
        out
    }

    /// Messages that are not acknowledged.
    pub(crate) fn open_messages(&self) -> Vec<String> {
        let state = locked(&self.state);
        let open = state.messages.iter().filter(|message| !message.acked);
        open.map(|message| format!("m{} {}", message.number, message.event.meaning)).collect()
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        locked(&self.state).messages.clone()
    }
}
