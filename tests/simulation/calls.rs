//! A call on its way to the store and back: it may fail before or after it took effect, take effect after its failure
//! was answered, take long, never be answered, or never be heard of by a worker that crashed meanwhile. What the store has
//! taken in happens whatever becomes of the worker.

use crate::life::Life;
use crate::seen::{CODES, Kind};
use crate::world::World;
use gcloud_sdk::tonic::Code;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The deadline of a call.
const DEADLINE_MS: u64 = 65_000;

/// Codes of a call of which nobody knows whether it took effect.
const UNKNOWN: [Code; 5] = [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Internal, Code::Unknown];

/// Whether a failed call with this code may have taken effect, as the protocol understands it.
pub(crate) fn is_unknown(code: Code) -> bool {
    UNKNOWN.contains(&code) || code == Code::DataLoss
}

/// What becomes of a call.
enum Fate {
    Answered {
        takes_effect_in: Duration,
        answered_in: Duration,
        lost: Option<Code>,
    },
    Failed {
        code: Code,
        answered_in: Duration,
    },
    Late {
        code: Code,
        answered_in: Duration,
        takes_effect_in: Duration,
    },
    /// Nobody ever answers.
    Hung {
        takes_effect: bool,
    },
}

/// Mostly codes that a worker lives with; any code now and then.
fn any_code(world: &World) -> Code {
    if world.flip(0.15) {
        world.one_of(&CODES)
    } else {
        world.one_of(&[
            Code::Aborted,
            Code::ResourceExhausted,
            UNKNOWN[0],
            UNKNOWN[1],
            UNKNOWN[2],
            UNKNOWN[3],
            UNKNOWN[4],
        ])
    }
}

fn latency(world: &World) -> Duration {
    if world.strikes(Kind::Slow) {
        return world.millis(1_000..=DEADLINE_MS);
    }
    world.millis(0..=world.plan.latency.as_millis() as u64)
}

fn fate_of_a_commit(world: &World) -> Fate {
    let answered_in = latency(world);
    if world.store_is_away() {
        let code = world.one_of(&UNKNOWN);
        return if world.flip(0.9) {
            Fate::Failed { code, answered_in }
        } else {
            Fate::Late { code, answered_in, takes_effect_in: world.millis(0..=300_000) }
        };
    }
    if world.strikes(Kind::FailedBefore) {
        let code = any_code(world);
        world.note_code(code, false);
        return Fate::Failed { code, answered_in };
    }
    if world.strikes(Kind::LandedLate) {
        let longest = world.one_of(&[500, 5_000, 300_000]);
        return Fate::Late { code: world.one_of(&UNKNOWN), answered_in, takes_effect_in: world.millis(0..=longest) };
    }
    if world.strikes(Kind::Hung) {
        return Fate::Hung { takes_effect: world.flip(0.5) };
    }
    let lost = world.strikes(Kind::FailedAfter).then(|| any_code(world));
    Fate::Answered { takes_effect_in: latency(world), answered_in, lost }
}

/// Sends a call that writes. `effect` happens once, at the store, or never.
///
/// # Errors
/// The code that the worker gets to see instead of an answer.
pub(crate) async fn commit<R: Send + 'static>(
    life: &Arc<Life>,
    effect: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Code> {
    let world = &life.world;
    life.pass().await;
    let answer = match fate_of_a_commit(world) {
        Fate::Failed { code, answered_in } => {
            world.say(format_args!("{life} commits, and it fails with {code:?}"));
            tokio::time::sleep(answered_in).await;
            Err(code)
        }
        Fate::Late { code, answered_in, takes_effect_in } => {
            world.say(format_args!(
                "{life} commits, and it fails with {code:?}, but is on the way for {takes_effect_in:?}"
            ));
            drop(at_the_store(world, takes_effect_in, effect));
            tokio::time::sleep(answered_in).await;
            Err(code)
        }
        Fate::Hung { takes_effect } => {
            world.say(format_args!("{life} commits, and nobody ever answers"));
            if takes_effect {
                drop(at_the_store(world, latency(world), effect));
            }
            std::future::pending().await
        }
        Fate::Answered { takes_effect_in, answered_in, lost } => {
            let answer = at_the_store(world, takes_effect_in, effect).await.expect("the store never crashes");
            tokio::time::sleep(answered_in).await;
            match lost {
                Some(code) => {
                    world.say(format_args!("{life} loses an answer and gets {code:?}"));
                    world.note_code(code, true);
                    Err(code)
                }
                None => Ok(answer),
            }
        }
    };
    life.pass().await;
    answer
}

/// Lets something happen at the store after a while. It happens in a task of its own, which no worker can take down.
fn at_the_store<R: Send + 'static>(
    world: &Arc<World>,
    after: Duration,
    effect: impl FnOnce() -> R + Send + 'static,
) -> oneshot::Receiver<R> {
    let (answer, receiver) = oneshot::channel();
    let world = Arc::clone(world);
    world.take_in();
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        // Whoever asked may be gone.
        let _ = answer.send(effect());
        world.land();
    });
    receiver
}

/// Sends a call that only reads.
///
/// # Errors
/// The code that the worker gets to see instead of an answer.
pub(crate) async fn read<R>(life: &Arc<Life>, reading: impl FnOnce() -> R) -> Result<R, Code> {
    let world = &life.world;
    life.pass().await;
    tokio::time::sleep(latency(world)).await;
    let answer = if world.store_is_away() {
        Err(world.one_of(&UNKNOWN))
    } else if world.strikes(Kind::FailedRead) {
        Err(any_code(world))
    } else {
        Ok(reading())
    };
    if let Err(code) = answer {
        world.say(format_args!("{life} reads, and it fails with {code:?}"));
    }
    tokio::time::sleep(latency(world)).await;
    life.pass().await;
    answer
}
