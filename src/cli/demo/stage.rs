//! The target of the demo's load: whichever worker is alive, and the moments at which it is killed.

use async_trait::async_trait;
use hotcount::lab::load::Target;
use hotcount::lab::load::target::{Accepted, Batch, Http, SendError};
use hotcount::store::{self, Counts, Depth};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the live count may take before it is not shown.
const COUNT_TIMEOUT: Duration = Duration::from_millis(500);

/// A worker that listens.
#[derive(Clone)]
struct Alive {
    events: Arc<Http>,
    counts: Arc<dyn Counts>,
}

/// Sends to the worker that is alive; while there is none, sends wait.
pub(super) struct Stage {
    alive: watch::Sender<Option<Alive>>,
    /// Positions in the load at which the worker is killed, in order.
    kill_at: Vec<u64>,
    kills_due: watch::Sender<usize>,
    in_a_request: usize,
}

impl Stage {
    /// With nobody alive yet, and so many messages in one request.
    pub(super) fn new(kill_at: Vec<u64>, in_a_request: usize) -> Self {
        Self { alive: watch::Sender::new(None), kill_at, kills_due: watch::Sender::new(0), in_a_request }
    }

    /// A worker listens at `http://ADDR`.
    pub(super) async fn enter(&self, address: &str) -> anyhow::Result<()> {
        let events = Arc::new(Http::connect(address).map_err(anyhow::Error::msg)?);
        let counts = hotcount::connect::counts(address, &store::Options::default()).await?;
        self.alive.send_replace(Some(Alive { events, counts }));
        Ok(())
    }

    /// It is about to be killed.
    pub(super) fn leave(&self) {
        self.alive.send_replace(None);
    }

    /// Returns when more than `done` kills are due.
    pub(super) async fn kill_is_due(&self, done: usize) {
        // The sender lives as long as this borrow.
        let _ = self.kills_due.subscribe().wait_for(|due| *due > done).await;
    }

    /// The derived count of a post now, if a worker answers.
    pub(super) async fn count(&self, post: &str) -> Option<i64> {
        let alive = self.alive.borrow().clone()?;
        let tally = tokio::time::timeout(COUNT_TIMEOUT, alive.counts.tally(post, Depth::Shards)).await;
        tally.ok()?.ok().map(|tally| tally.count)
    }
}

#[async_trait]
impl Target for Stage {
    fn name(&self) -> String {
        "the worker".to_owned()
    }

    fn batch_messages(&self) -> usize {
        self.in_a_request
    }

    /// The worker is killed while this request and the others under way wait for their answers.
    async fn send(&self, batch: &Batch) -> Result<Accepted, SendError> {
        let position = batch.parts.last().map_or(0, |part| part.position);
        let due = self.kill_at.iter().take_while(|at| **at <= position).count();
        self.kills_due.send_if_modified(|known| {
            let more = due > *known;
            *known = due.max(*known);
            more
        });
        let mut alive = self.alive.subscribe();
        let worker = match alive.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(worker)) => Arc::clone(&worker.events),
            _ => return Err(SendError::new(true, "no worker is alive")),
        };
        worker.send(batch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use hotcount::lab::load::target::Part;

    fn batch(position: u64) -> Batch {
        Batch { jsonl: "x\n".into(), parts: vec![Part { end: 1, position }] }
    }

    #[tokio::test]
    async fn a_kill_is_due_once_when_the_load_reaches_its_position_and_sends_wait_for_the_next_worker() {
        let stage = Stage::new(vec![10, 20], 1);
        assert!(stage.send(&batch(9)).now_or_never().is_none(), "nobody is alive");
        assert!(stage.kill_is_due(0).now_or_never().is_none());
        assert!(stage.send(&batch(10)).now_or_never().is_none());
        assert!(stage.kill_is_due(0).now_or_never().is_some());
        assert!(stage.send(&batch(3)).now_or_never().is_none(), "sent again");
        assert!(stage.kill_is_due(1).now_or_never().is_none(), "one kill each");
        assert!(stage.send(&batch(30)).now_or_never().is_none());
        assert!(stage.kill_is_due(1).now_or_never().is_some());
        assert!(stage.kill_is_due(2).now_or_never().is_none());
        assert_eq!(stage.count("post-0").await, None);
    }
}
