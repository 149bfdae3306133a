//! A queue with leases on the runtime's clock, which tests pause. A script decides what becomes of each acknowledgement
//! and of each opening of a stream.

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use hotcount::source::ack::{Ack, AckError, Confirmation, Settle, Settlement};
use hotcount::source::{Delivery, Meta, Source, SourceError, Stream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What becomes of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Arrives,
    /// It never arrives, and nobody is told.
    Lost,
    /// It arrives so much later.
    Late(Duration),
    /// It arrives, and the queue says that it does not know it.
    Refused,
}

/// What the queue does.
pub(crate) struct Rules {
    /// For how long a delivery is out. Nobody extends it.
    pub(crate) lease: Duration,
    /// What the worker is told about leases.
    pub(crate) max_lease: Option<Duration>,
    /// Whether acknowledgements are confirmed.
    pub(crate) confirms: bool,
    pub(crate) streams: usize,
    /// Decides about an acknowledgement by its number and by its delivery's attempt.
    pub(crate) on_ack: fn(usize, u32) -> Fate,
    /// Refuses to open a stream, at a time since the beginning.
    pub(crate) on_open: fn(Duration) -> Option<SourceError>,
}

impl Default for Rules {
    fn default() -> Self {
        let (lease, streams) = (Duration::from_secs(60), 1);
        Self { lease, max_lease: None, confirms: false, streams, on_ack: |_, _| Fate::Arrives, on_open: |_| None }
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) opened: usize,
    pub(crate) delivered: usize,
    pub(crate) acknowledged: usize,
    pub(crate) settled: usize,
    /// Acknowledgements that came after the lease.
    pub(crate) too_late: usize,
    /// The most that was delivered and neither settled nor dropped at one time.
    pub(crate) most_held: usize,
}

#[derive(Clone)]
pub(crate) struct Queue(Arc<Shared>);

struct Shared {
    rules: Rules,
    began: Instant,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    ready: VecDeque<usize>,
    /// Deliveries that are out: the message, and when it is ready again.
    leases: BTreeMap<usize, (usize, Instant)>,
    /// Acknowledgements on their way, and when they arrive.
    arriving: BTreeMap<(Instant, usize), Fate>,
    /// The answers to those that have arrived.
    answers: BTreeMap<usize, bool>,
    tokens: usize,
    held: usize,
    finishing: bool,
    seen: Seen,
}

struct Message {
    payload: Bytes,
    attempts: u32,
    acknowledged: bool,
}

impl Queue {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(Arc::new(Shared { rules, began: Instant::now(), state: Mutex::default(), changed: Notify::new() }))
    }

    pub(crate) fn publish(&self, payload: impl Into<Bytes>) {
        let mut state = self.0.state();
        let number = state.messages.len();
        state.messages.push(Message { payload: payload.into(), attempts: 0, acknowledged: false });
        state.ready.push_back(number);
        self.0.changed.notify_waiters();
    }

    /// Ends when every message has been acknowledged.
    pub(crate) fn finish(&self) {
        self.0.state().finishing = true;
        self.0.changed.notify_waiters();
    }

    pub(crate) fn seen(&self) -> Seen {
        self.0.state().seen
    }
}

impl Shared {
    /// The state as it is now.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        state.advance(Instant::now());
        state
    }
}

impl State {
    fn advance(&mut self, now: Instant) {
        while let Some((&(at, token), &fate)) = self.arriving.first_key_value()
            && at <= now
        {
            self.arriving.remove(&(at, token));
            let lease = self.leases.get(&token).copied().filter(|(_, until)| at < *until);
            self.seen.too_late += usize::from(lease.is_none());
            let known = match fate {
                Fate::Refused => None,
                _ => lease,
            };
            if let Some((message, _)) = known {
                self.leases.remove(&token);
                self.seen.acknowledged += usize::from(!self.messages[message].acknowledged);
                self.messages[message].acknowledged = true;
            }
            self.answers.insert(token, known.is_some());
        }
        let ended: Vec<usize> =
            self.leases.iter().filter(|(_, (_, until))| *until <= now).map(|(token, _)| *token).collect();
        for token in ended {
            self.give_back(token);
        }
    }

    fn give_back(&mut self, token: usize) {
        if let Some((message, _)) = self.leases.remove(&token)
            && !self.messages[message].acknowledged
        {
            self.ready.push_back(message);
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let ends = self.leases.values().map(|(_, until)| *until).min();
        let arrives = self.arriving.keys().map(|(at, _)| *at).next();
        [ends, arrives].into_iter().flatten().min()
    }
}

#[async_trait]
impl Source for Queue {
    fn name(&self) -> String {
        "queue:".to_owned()
    }

    fn streams(&self) -> usize {
        self.0.rules.streams
    }

    fn max_lease(&self) -> Option<Duration> {
        self.0.rules.max_lease
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        self.0.state().seen.opened += 1;
        match (self.0.rules.on_open)(self.0.began.elapsed()) {
            Some(error) => Err(error),
            None => Ok(Box::new(Line(Arc::clone(&self.0)))),
        }
    }
}

struct Line(Arc<Shared>);

#[async_trait]
impl Stream for Line {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        loop {
            let changed = self.0.changed.notified();
            let next = {
                let mut state = self.0.state();
                if state.finishing && state.messages.iter().all(|message| message.acknowledged) {
                    return Ok(Vec::new());
                }
                let deliveries: Vec<Delivery> =
                    std::iter::from_fn(|| self.0.deliver(&mut state)).take(max.max(1)).collect();
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
                state.next_event()
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }
}

impl Shared {
    fn deliver(self: &Arc<Self>, state: &mut State) -> Option<Delivery> {
        let message = state.ready.pop_front()?;
        let token = state.tokens;
        state.tokens += 1;
        state.leases.insert(token, (message, Instant::now() + self.rules.lease));
        state.messages[message].attempts += 1;
        state.seen.delivered += 1;
        state.held += 1;
        let meta = Meta {
            message_id: Some(message.to_string()),
            attempt: Some(state.messages[message].attempts),
            ..Meta::default()
        };
        state.seen.most_held = state.seen.most_held.max(state.held);
        Some(Delivery {
            payload: state.messages[message].payload.clone(),
            received_at: SystemTime::UNIX_EPOCH,
            meta: Some(Box::new(meta)),
            ack: Ack::one(Box::new(Token {
                shared: Arc::clone(self),
                number: token,
                attempt: state.messages[message].attempts,
                spent: false,
            })),
            share: None,
        })
    }
}

struct Token {
    shared: Arc<Shared>,
    number: usize,
    attempt: u32,
    spent: bool,
}

impl Settle for Token {
    fn settle(mut self: Box<Self>, _: &Settlement) -> Option<Confirmation> {
        self.spent = true;
        let (shared, token) = (Arc::clone(&self.shared), self.number);
        let mut state = shared.state();
        state.held -= 1;
        let fate = (shared.rules.on_ack)(state.seen.settled, self.attempt);
        state.seen.settled += 1;
        let now = Instant::now();
        let arrives_at = match fate {
            Fate::Lost => None,
            Fate::Late(time) => Some(now + time),
            Fate::Arrives | Fate::Refused => Some(now),
        };
        if let Some(at) = arrives_at {
            state.arriving.insert((at, token), fate);
        }
        drop(state);
        shared.changed.notify_waiters();
        shared.rules.confirms.then(|| {
            let shared = Arc::clone(&shared);
            async move {
                let Some(at) = arrives_at else { return std::future::pending().await };
                sleep_until(at).await;
                match shared.state().answers.get(&token) {
                    Some(true) => Ok(()),
                    _ => Err(AckError("PERMANENT_FAILURE_INVALID_ACK_ID".to_owned())),
                }
            }
            .boxed()
        })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if !self.spent {
            let mut state = self.shared.state();
            state.held -= 1;
            state.give_back(self.number);
            drop(state);
            self.shared.changed.notify_waiters();
        }
    }
}
