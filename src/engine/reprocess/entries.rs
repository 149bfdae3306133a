//! Quarantined payloads as a source: each is delivered once, and what is dropped stays where it is kept.

use super::Fate;
use crate::common::sync::Locked;
use crate::source::ack::{Ack, SettleMany, Settlement};
use crate::source::{Delivery, Meta, Source, SourceError, Stream};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

/// A payload, and the attributes of its message.
type Message = (Bytes, Vec<(String, String)>);

/// The source. Its deliveries say to it what became of them.
pub(super) struct Entries {
    waiting: Mutex<VecDeque<Delivery>>,
    fates: Arc<Fates>,
}

struct Fates(Mutex<Vec<Fate>>);

impl Fates {
    fn all(&self) -> MutexGuard<'_, Vec<Fate>> {
        // Every change is one assignment.
        self.0.locked()
    }
}

impl Entries {
    /// Payloads with their attributes, received at `now`; nothing else is said about them.
    pub(super) fn new(messages: impl IntoIterator<Item = Message>, now: SystemTime) -> Self {
        let fates = Arc::new(Fates(Mutex::default()));
        let deliver = |(number, (payload, attributes)): (u32, Message)| {
            fates.all().push(Fate::Left);
            let meta = (!attributes.is_empty()).then(|| Box::new(Meta { attributes, ..Meta::default() }));
            Delivery { payload, received_at: now, meta, ack: Ack::of_many(fates.clone(), number), share: None }
        };
        let waiting = Mutex::new((0_u32..).zip(messages).map(deliver).collect());
        Self { waiting, fates }
    }

    /// What became of them, in their order.
    pub(super) fn fates(&self) -> Vec<Fate> {
        self.fates.all().clone()
    }
}

impl SettleMany for Fates {
    fn settled(&self, number: u32, how: &Settlement) {
        if let Some(fate) = self.all().get_mut(number as usize) {
            *fate = match how {
                Settlement::Counted => Fate::Counted,
                Settlement::Quarantined(poison) => Fate::StillPoison(poison.clone()),
            };
        }
    }

    fn dropped(&self, _: u32) {}
}

#[async_trait]
impl Source for Entries {
    fn name(&self) -> String {
        "quarantine".to_owned()
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        let waiting = std::mem::take(&mut *self.waiting.locked());
        Ok(Box::new(Row(waiting)))
    }
}

/// They end when all are delivered.
struct Row(VecDeque<Delivery>);

#[async_trait]
impl Stream for Row {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        Ok(self.0.drain(..max.min(self.0.len())).collect())
    }
}
