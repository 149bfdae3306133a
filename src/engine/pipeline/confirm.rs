//! The broker's answers to acknowledgements, where it gives them.

use crate::engine::progress::Progress;
use crate::source::ack::Confirmation;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Acknowledgements that may wait for the broker's answer at once; then settling waits too.
pub(super) const MAX_CONFIRMATIONS: usize = 100_000;

/// Awaits the broker's answers, many at a time. A failure changes no count: the effect is durable. What is not answered
/// when nobody waits any longer was not confirmed.
pub(super) async fn confirm(
    mut incoming: mpsc::Receiver<Confirmation>,
    progress: Arc<Progress>,
    no_more: CancellationToken,
) {
    let mut waiting = FuturesUnordered::new();
    let mut open = true;
    while open || !waiting.is_empty() {
        tokio::select! {
            biased;
            Some(answer) = waiting.next() => if let Err(error) = answer {
                progress.unconfirmed_acks(1);
                tracing::debug!("{error}");
            },
            confirmation = incoming.recv(), if open && waiting.len() < MAX_CONFIRMATIONS => match confirmation {
                Some(confirmation) => waiting.push(confirmation),
                None => open = false,
            },
            () = no_more.cancelled() => {
                progress.unconfirmed_acks(waiting.len() + incoming.len());
                return;
            }
        }
    }
}
