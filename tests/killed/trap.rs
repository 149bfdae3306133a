//! Where a worker on the wires is killed: the call at which the test learns that the moment has come.

use crate::support::proxy::{Call, Status, Verdict};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;

/// What a commit takes where a drain is to have many of them.
const SLOW: Duration = Duration::from_millis(150);

/// The batch key in a commit of likes begins so, and the document in a commit of poison.
pub(crate) const BATCHES: &str = "hotcountBatches/";
pub(crate) const QUARANTINE: &str = "hotcountQuarantine/";

/// A call that is not answered any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Catch {
    /// The call.
    pub(crate) method: &'static str,
    /// What its request holds; every call where it is empty.
    pub(crate) holds: &'static str,
    /// How many of these pass before.
    pub(crate) skip: usize,
    /// Whether only calls of a drain count.
    pub(crate) in_drain: bool,
    /// Whether the server does it.
    pub(crate) done: bool,
}

/// Both wires of a place ask it.
#[derive(Default)]
pub(crate) struct Trap(Mutex<State>);

#[derive(Default)]
struct State {
    slow: bool,
    draining: bool,
    armed: Option<(Catch, mpsc::UnboundedSender<String>)>,
    /// After the catch nothing of its kind passes: what is durable is what was durable then.
    caught: bool,
    /// Batches whose first attempt was refused: see [`Trap::verdict`].
    refused: BTreeSet<String>,
    away: Option<Verdict>,
}

impl Trap {
    /// Answers with the document that the caught request names.
    pub(crate) fn arm(&self, catch: Catch) -> mpsc::UnboundedReceiver<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.state() = State { armed: Some((catch, sender)), ..State::default() };
        receiver
    }

    /// From now on commits take long.
    pub(crate) fn slow(&self) {
        self.state().slow = true;
    }

    /// The worker has begun to drain.
    pub(crate) fn begin_drain(&self) {
        self.state().draining = true;
    }

    /// Everything passes again.
    pub(crate) fn disarm(&self) {
        *self.state() = State::default();
    }

    /// Every call to the store ends so.
    pub(crate) fn take_the_store_away(&self, verdict: Verdict) {
        self.state().away = Some(verdict);
    }

    /// The rule of the wire before the store.
    pub(crate) fn verdict_of_the_store(&self, call: &Call<'_>) -> Verdict {
        let away = self.state().away.clone();
        away.unwrap_or_else(|| self.verdict(call))
    }

    /// The rule of a wire.
    ///
    /// A first attempt assumes that nothing is stored, so the store may refuse it, and then nothing is done. Where the
    /// store is to do it, the second attempt is caught: a worker reads before it makes one.
    pub(crate) fn verdict(&self, call: &Call<'_>) -> Verdict {
        let mut state = self.state();
        let draining = state.draining;
        let otherwise = if state.slow && call.method == "Commit" { Verdict::Delay(SLOW) } else { Verdict::Pass };
        let caught = state.caught;
        let Some((catch, _)) = &state.armed else { return otherwise };
        let (catch, document) = (*catch, document_in(call.message, catch.holds));
        if call.method != catch.method || document.is_none() || (catch.in_drain && !draining) {
            return otherwise;
        }
        if caught {
            return Verdict::HoldRequest;
        }
        let document = document.unwrap_or_default();
        if catch.done && catch.holds == BATCHES && state.refused.insert(document.clone()) {
            return Verdict::Refuse(Status::new(14, "not yet"));
        }
        let Some((catch, sender)) = state.armed.as_mut() else { return otherwise };
        if catch.skip > 0 {
            catch.skip -= 1;
            return otherwise;
        }
        let verdict = if catch.done { Verdict::HoldAnswer } else { Verdict::HoldRequest };
        // Nobody listens any more when the worker was killed before.
        let _ = sender.send(document);
        state.caught = true;
        verdict
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// The first document in `message` whose path has `collection` in it: `COLLECTION/ID`.
fn document_in(message: &[u8], collection: &str) -> Option<String> {
    if collection.is_empty() {
        return Some(String::new());
    }
    let start = message.windows(collection.len()).position(|window| window == collection.as_bytes())?;
    let id = &message[start + collection.len()..];
    let end = id.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b":-".contains(byte))).unwrap_or(id.len());
    Some(format!("{collection}{}", String::from_utf8_lossy(&id[..end])))
}
