//! What a worker's HTTP face says and hears, as JSON.

use hotcount::http_api::{PostCount, PostPage, PostState, Problem, QuarantineEntry, QuarantinePage, RepairOrder};
use hotcount::store::{Quarantined, Tally};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, SystemTime};

/// An answer or a request, whatever it may be.
pub fn face(data: &[u8]) {
    if let Some(count) = comes_back::<PostCount>(data) {
        agrees(count.tally());
        assert_eq!(PostCount::new(count.post.clone(), count.tally()).tally(), count.tally());
    }
    if let Some(state) = comes_back::<PostState>(data) {
        let (post, seen) = (state.count.post.clone(), state.audit());
        agrees(seen.tally);
        assert_eq!(PostState::new(post, seen.clone()).audit(), seen);
    }
    comes_back::<PostPage>(data);
    comes_back::<RepairOrder>(data);
    comes_back::<Problem>(data);
    if let Some(page) = comes_back::<QuarantinePage>(data) {
        page.entries.into_iter().for_each(entry);
    }
}

/// What is understood is written as it was read.
fn comes_back<T: DeserializeOwned + Serialize>(data: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(data).ok()?;
    let written = serde_json::to_string(&read).expect("it has an equal in JSON");
    let again: T = serde_json::from_str(&written).expect(&written);
    assert_eq!(serde_json::to_string(&again).ok(), Some(written));
    Some(read)
}

/// Drift is what shards have more than members, as far as 64 bits can say.
fn agrees(tally: Tally) {
    let exact = tally.members.map(|members| i128::from(tally.count) - i128::from(members));
    let near = exact.map(|drift| drift.clamp(i64::MIN.into(), i64::MAX.into()));
    assert_eq!(tally.drift().map(i128::from), near, "{tally:?}");
}

fn entry(entry: QuarantineEntry) {
    let Ok(read) = Quarantined::try_from(entry) else { return };
    let written = QuarantineEntry::from(read.clone());
    let mut again = Quarantined::try_from(written).expect("what was written is read");
    if !has_a_year(read.received_at) {
        again.received_at = read.received_at;
    }
    if read.published_at.is_some_and(|at| !has_a_year(at)) {
        again.published_at = read.published_at;
    }
    assert_eq!(format!("{again:?}"), format!("{read:?}"));
}

/// Whether a time can be written: in UTC a local time at the border of the years 0 and 9999 may lie beyond them.
fn has_a_year(at: SystemTime) -> bool {
    let year_0 = SystemTime::UNIX_EPOCH - Duration::from_secs(62_167_219_200);
    let year_10000 = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800);
    (year_0..year_10000).contains(&at)
}
