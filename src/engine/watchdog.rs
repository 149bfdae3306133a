//! Sees what stands still. Every task of the worker says what it is doing; the watchdog looks every few seconds and
//! compares. What does not move is a finding, which `/readyz` and the log show; what never moves again ends the worker.
//!
//! Pure: it counts its own looks and reads no clock, so a machine that was suspended for an hour is not taken for a
//! worker that stood still for one.

mod heartbeat;
mod share;

pub use heartbeat::{Doing, Heartbeat, Heartbeats, Name};
pub use share::{Part, Share};

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The pause between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks without a step after which something is a finding: half a minute. A commit of Firestore takes under a second;
/// between two attempts there are at most 30 s.
const FINDING_AFTER: u32 = 7;

/// Looks without a step after which nobody can hope for one: ten minutes. The longest that an attempt can take by
/// itself is some RPCs of 65 s each.
const STANDSTILL_AFTER: u32 = 120;

/// Something that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What, in a sentence without a time.
    pub what: String,
    /// For how many looks.
    looks: u32,
    /// Whether it is somebody else's, who may be back at any time: a stream that is opened again and again.
    elsewhere: bool,
}

impl Finding {
    /// Whether it will never move again, as far as can be told.
    #[must_use]
    pub fn is_standstill(&self) -> bool {
        self.looks >= STANDSTILL_AFTER && !self.elsewhere
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, for {} s", self.what, self.looks * LOOK_EVERY.as_secs() as u32)
    }
}

/// What the watchdog is told beside the heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Whether likes wait at all.
    pub waits: bool,
    /// Whether they waited longer than one look past the time when they should have been sealed.
    pub overdue: bool,
}

/// What was seen, look by look.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// By heartbeat: its step at the last look, and for how many looks it has been wrong.
    seen: BTreeMap<usize, (u64, u32)>,
    overdue: u32,
    leaking: u32,
}

impl Watchdog {
    /// One look. Answers with what stands still.
    pub fn look(&mut self, heartbeats: &Heartbeats, buffer: Buffer) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (mut lane_rests, mut all_rest, mut waits_for_room) = (false, true, false);
        for (number, (name, state)) in heartbeats.states().into_iter().enumerate() {
            let (step, looks) = self.seen.entry(number).or_default();
            let moved = std::mem::replace(step, state.step) != state.step;
            let (wrong, what) = match &state.doing {
                Doing::Idle => {
                    lane_rests |= name.is_lane();
                    (false, String::new())
                }
                Doing::Working(what) => {
                    all_rest = false;
                    (!moved, format!("{name} {what}"))
                }
                Doing::WaitsForRoom => {
                    waits_for_room = true;
                    (false, String::new())
                }
                // Opened again and quiet since the last look: as far as can be told it works.
                Doing::Down { open, why } => (moved || !open, format!("{name} is not open: {why}")),
            };
            *looks = if wrong { looks.saturating_add(1) } else { 0 };
            let elsewhere = matches!(state.doing, Doing::Down { .. });
            findings.push(Finding { what, looks: *looks, elsewhere });
        }
        self.overdue = if buffer.overdue && lane_rests { self.overdue.saturating_add(1) } else { 0 };
        findings.push(Finding {
            what: "likes wait to be committed though a lane is idle".to_owned(),
            looks: self.overdue,
            elsewhere: false,
        });
        let leaking = waits_for_room && all_rest && !buffer.waits;
        self.leaking = if leaking { self.leaking.saturating_add(1) } else { 0 };
        findings.push(Finding {
            what: "pulling waits for room though nothing is under way that could make some".to_owned(),
            looks: self.leaking,
            elsewhere: false,
        });
        findings.retain(|finding| finding.looks >= FINDING_AFTER);
        findings
    }
}

#[cfg(test)]
mod tests;
