//! The queue as one worker sees it: the source port over the broker.

use crate::broker::{Broker, Message};
use crate::events::wall_clock;
use crate::life::Life;
use crate::seen::Kind;
use async_trait::async_trait;
use hotcount::source::ack::{Ack, AckError, Confirmation, Settle, Settlement};
use hotcount::source::{Delivery, Meta, Source, SourceError, Stream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The name that the quarantine's ids are made of.
pub(crate) const SOURCE: &str = "pubsub://simulation/likes";

/// One worker's subscription.
pub(crate) struct Subscription {
    pub(crate) broker: Arc<Broker>,
    pub(crate) life: Arc<Life>,
}

fn cut(message: &str) -> SourceError {
    SourceError { transient: true, message: message.to_owned(), source: None }
}

#[async_trait]
impl Source for Subscription {
    fn name(&self) -> String {
        SOURCE.to_owned()
    }

    fn streams(&self) -> usize {
        self.broker.world.plan.streams
    }

    fn max_lease(&self) -> Option<Duration> {
        Some(self.broker.world.plan.max_lease)
    }

    async fn open(&self, number: usize) -> Result<Box<dyn Stream>, SourceError> {
        self.life.pass().await;
        tokio::time::sleep(self.broker.world.millis(0..=20)).await;
        self.life.pass().await;
        if self.broker.world.strikes(Kind::OpenRefused) {
            return Err(cut("the stream does not open"));
        }
        if self.broker.world.strikes(Kind::SourceGone) {
            return Err(SourceError { transient: false, ..cut("there is no such subscription") });
        }
        self.broker.world.say(format_args!("{} opens stream {number}", self.life));
        let generation = self.broker.generation.load(Ordering::Relaxed);
        Ok(Box::new(Open { broker: Arc::clone(&self.broker), life: Arc::clone(&self.life), generation }))
    }

    async fn close(&self) {
        self.life.pass().await;
    }
}

struct Open {
    broker: Arc<Broker>,
    life: Arc<Life>,
    generation: u64,
}

#[async_trait]
impl Stream for Open {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        loop {
            self.life.pass().await;
            let changed = self.broker.changed.notified();
            if self.generation != self.broker.generation.load(Ordering::Relaxed)
                || self.broker.world.strikes(Kind::StreamCut)
            {
                return Err(cut("the stream was cut"));
            }
            // From here to the return nothing awaits, so a call that is dropped has taken nothing.
            let taken = self.broker.take(&self.life, max);
            if !taken.is_empty() {
                return Ok(taken.into_iter().map(|(token, message)| self.deliver(token, message)).collect());
            }
            changed.await;
        }
    }
}

impl Open {
    fn deliver(&self, token: u64, message: Message) -> Delivery {
        let meta = message.id.map(|id| {
            Box::new(Meta {
                message_id: Some(id),
                attributes: vec![("origin".to_owned(), "simulation".to_owned())],
                published_at: Some(wall_clock(message.published_at)),
                attempt: Some(message.attempts),
            })
        });
        let token = Token { broker: Arc::clone(&self.broker), life: Arc::clone(&self.life), token, spent: false };
        Delivery {
            payload: message.payload,
            received_at: wall_clock(self.broker.world.now()),
            meta,
            ack: Ack::one(Box::new(token)),
            share: None,
        }
    }
}

struct Token {
    broker: Arc<Broker>,
    life: Arc<Life>,
    token: u64,
    spent: bool,
}

impl Settle for Token {
    fn settle(mut self: Box<Self>, how: &Settlement) -> Option<Confirmation> {
        self.spent = true;
        let world = Arc::clone(&self.broker.world);
        let heard = self.broker.settled(&self.life, self.token, how);
        if !world.plan.confirms {
            return None;
        }
        let answer_in = world.millis(0..=500);
        let life = Arc::clone(&self.life);
        Some(Box::pin(async move {
            if !heard {
                return std::future::pending().await;
            }
            tokio::time::sleep(answer_in).await;
            life.pass().await;
            if world.strikes(Kind::UnconfirmedAck) {
                Err(AckError("the broker says nothing".to_owned()))
            } else {
                Ok(())
            }
        }))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if !self.spent {
            self.broker.dropped(&self.life, self.token);
        }
    }
}
