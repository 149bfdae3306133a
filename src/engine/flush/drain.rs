//! When everything must be given up, once a shutdown has begun.

use std::sync::OnceLock;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// The deadline of a drain: none until a shutdown begins, then one that never changes.
///
/// Whoever waits is woken in the order of waiting, so that a seed replays; a `watch` channel draws that order at random.
#[derive(Debug, Default)]
pub struct Drain {
    deadline: OnceLock<Instant>,
    begun: CancellationToken,
}

impl Drain {
    /// Begins the drain. Only the first call counts.
    pub fn begin(&self, deadline: Instant) {
        self.deadline.get_or_init(|| deadline);
        self.begun.cancel();
    }

    /// The deadline, once a shutdown has begun.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Returns at `own`, or at the drain's deadline where that comes first.
    pub async fn expire(&self, own: Instant) {
        tokio::select! {
            biased;
            () = self.begun.cancelled() => {}
            () = tokio::time::sleep_until(own.into()) => return,
        }
        let deadline = self.deadline().map_or(own, |drain| drain.min(own));
        tokio::time::sleep_until(deadline.into()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_deadlines_holds_also_when_the_drain_begins_later() {
        let now = || tokio::time::Instant::now().into_std();
        let (drain, start) = (Drain::default(), now());
        let second = Duration::from_secs(1);
        drain.expire(start + second).await;
        assert_eq!(now() - start, second);
        let begin = async {
            tokio::time::sleep(second).await;
            drain.begin(start + second * 5);
            drain.begin(start + second * 9);
        };
        tokio::join!(drain.expire(start + second * 60), begin);
        assert_eq!((now() - start, drain.deadline()), (second * 5, Some(start + second * 5)));
        drain.expire(start + second * 4).await;
        assert_eq!(now() - start, second * 5, "it is over already");
    }
}
