//! An endless source: likes of users who come once, and between them those of one who toggles without end.

use async_trait::async_trait;
use bytes::Bytes;
use hotcount::source::ack::{Ack, SettleMany, Settlement};
use hotcount::source::{Delivery, Source, SourceError, Stream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Every so many messages one is the bully's: there are several in each batch.
const ONE_IN: u64 = 20;

/// The bully, whose toggles all workers get.
pub(crate) const BULLY: &str = "bully";

/// What all workers' sources share.
#[derive(Default)]
pub(crate) struct Toggles {
    sent: AtomicU64,
}

impl Toggles {
    /// The number of the newest one; those with an odd number are likes.
    pub(crate) fn newest(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Deliveries of one worker that are neither settled nor dropped: how many at most, and how many now.
#[derive(Default)]
pub(crate) struct HeldNow(Mutex<(usize, usize)>);

impl HeldNow {
    pub(crate) fn most_and_now(&self) -> (usize, usize) {
        *self.0.lock().unwrap()
    }

    fn hold(&self) {
        let (most, now) = &mut *self.0.lock().unwrap();
        *now += 1;
        *most = (*most).max(*now);
    }
}

/// One worker's source.
pub(crate) struct Feed {
    pub(crate) worker: usize,
    /// `None`: the bully stays at home.
    pub(crate) toggles: Option<Arc<Toggles>>,
    pub(crate) held: Arc<HeldNow>,
}

/// Nobody redelivers here: whatever ends, ends.
impl SettleMany for HeldNow {
    fn settled(&self, _: u32, _: &Settlement) {
        self.0.lock().unwrap().1 -= 1;
    }

    fn dropped(&self, _: u32) {
        self.0.lock().unwrap().1 -= 1;
    }
}

struct Pull {
    worker: usize,
    toggles: Option<Arc<Toggles>>,
    held: Arc<HeldNow>,
    sent: u64,
}

#[async_trait]
impl Source for Feed {
    fn name(&self) -> String {
        "feed".to_owned()
    }

    async fn open(&self, _: usize) -> Result<Box<dyn Stream>, SourceError> {
        let (toggles, held) = (self.toggles.clone(), Arc::clone(&self.held));
        Ok(Box::new(Pull { worker: self.worker, toggles, held, sent: 0 }))
    }
}

impl Pull {
    fn next(&mut self) -> String {
        self.sent += 1;
        let (user, liked, order) = match &self.toggles {
            Some(toggles) if self.sent.is_multiple_of(ONE_IN) => {
                let number = toggles.sent.fetch_add(1, Ordering::Relaxed) + 1;
                (BULLY.to_owned(), number % 2 == 1, number)
            }
            _ => (format!("w{}u{}", self.worker, self.sent), true, 1),
        };
        let kind = if liked { "like.added" } else { "like.removed" };
        format!(r#"{{"eventId":"e{order}","type":"{kind}","postId":"viral","userId":"{user}","version":{order}}}"#)
    }
}

#[async_trait]
impl Stream for Pull {
    async fn pull(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        // Others get their turn, as when a socket is read.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut delivery = || {
            self.held.hold();
            let held: Arc<dyn SettleMany> = self.held.clone();
            let (received_at, ack) = (SystemTime::UNIX_EPOCH, Ack::of_many(held, 0));
            Delivery { payload: Bytes::from(self.next()), received_at, meta: None, ack, share: None }
        };
        Ok((0..max).map(|_| delivery()).collect())
    }
}
