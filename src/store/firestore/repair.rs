//! Correcting a drift: the repair shard gets what the other shards lack.
//!
//! Shards and members are read at one time. A worker's commit after that changes both alike, and never the repair shard;
//! so what was lacking then is lacking until somebody writes the repair shard. The write holds only for the version that
//! was read, so of two operators with one reading, or of a first try that arrives late and a second one, one is refused.

use super::address::REPAIR;
use super::document::{read_shard, unreadable, write_repair};
use super::read::sum;
use super::{Firestore, failure, is_refusal};
use crate::store::{Audit, Repaired, StoreError};
use gcloud_sdk::google::firestore::v1::precondition::ConditionType;
use gcloud_sdk::prost_types::Timestamp;

impl Firestore {
    /// See the port.
    pub(super) async fn examine_post(&self, post: &str) -> Result<Audit, StoreError> {
        let read_time = self.now().await?;
        let shards = self.read_shards(post, Some(read_time)).await?;
        let name = self.address.shard(post, REPAIR);
        let repair = shards.iter().find(|shard| shard.name == name);
        let mut tally = sum(self.layout, &shards)?;
        tally.members = Some(self.count_members(post, read_time).await?);
        Ok(Audit {
            tally,
            repaired: match repair {
                None => 0,
                Some(repair) => read_shard(self.layout, repair).map_err(|fault| unreadable(&name, fault))?,
            },
            version: repair.map(|repair| version(&repair.update_time.unwrap_or_default())),
        })
    }

    /// See the port. The count is written whole, not added: with the precondition both are the same, and this way the
    /// document says what was meant.
    pub(super) async fn repair_post(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        let Some(drift) = seen.tally.drift().filter(|drift| *drift != 0) else { return Ok(Repaired::Done) };
        let condition = match &seen.version {
            None => ConditionType::Exists(false),
            Some(version) => match update_time(version) {
                Some(time) => ConditionType::UpdateTime(time),
                // No version of ours, so not the one that is there.
                None => return Ok(Repaired::Conflict),
            },
        };
        let count = seen.repaired.saturating_sub(drift);
        let write = write_repair(self.layout, self.address.shard(post, REPAIR), count, condition);
        match self.commit(vec![write]).await {
            Ok(()) => Ok(Repaired::Done),
            Err(status) if is_refusal(status.code()) => {
                self.bill.refused();
                Ok(Repaired::Conflict)
            }
            Err(status) => Err(failure((status, "write a repair"))),
        }
    }
}

/// An update time as text, to the nanosecond.
fn version(time: &Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanos)
}

/// The update time that a version stands for.
fn update_time(version: &str) -> Option<Timestamp> {
    let (seconds, nanos) = version.split_once('.')?;
    Some(Timestamp { seconds: seconds.parse().ok()?, nanos: nanos.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_gives_its_update_time_back() {
        for time in [Timestamp { seconds: 1_700_000_000, nanos: 5_000 }, Timestamp { seconds: 0, nanos: 999_999_999 }] {
            assert_eq!(update_time(&version(&time)), Some(time));
        }
        assert_eq!(update_time("7"), None);
    }
}
