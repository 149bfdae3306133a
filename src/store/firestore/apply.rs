//! One batch, one commit. No lock is ever taken: every membership is written under a precondition, so of two concurrent writers that
//! decided from the same reading one is refused as a whole, and decides again from what the other has written.

use super::address::member_id;
use super::document::{Known, Layout, read_key, read_member, undecidable, write_key, write_member, write_shard};
use super::{Firestore, class_of, failure, is_refusal};
use crate::like::batch::Batch;
use crate::like::membership::{Decision, decide};
use crate::store::{Applied, Attempt, ErrorClass, StoreError, Undecidable};
use gcloud_sdk::google::firestore::v1::{Document, Write};
use gcloud_sdk::tonic::{Code, Status};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// How many stored memberships a commit that assumed nothing finds one by one, each by a refusal that names it, before all
/// members are read at once.
///
/// Finding one costs two reads and a round trip; reading all costs a read a like. In batches of 500 with one duplicate in
/// a thousand, five or more in one batch are rarer than one batch in 5,000.
const WRONG_GUESSES: usize = 4;

/// What is known about the batch's members, place by place.
struct Members {
    ids: Vec<String>,
    names: Vec<String>,
    known: Vec<Known>,
}

/// What one commit would write, and what it would report.
struct Plan {
    applied: Applied,
    writes: Vec<Write>,
}

/// What reading again has shown.
#[derive(Default)]
struct Seen {
    /// Places where something was stored although it was taken to be missing.
    revealed: usize,
    /// Places that a concurrent writer has changed since they were read.
    changed: Vec<usize>,
    /// Places whose memberships cannot be read.
    undecidable: Vec<Undecidable>,
}

/// What reading again came to.
enum Again {
    /// The batch key is there: an earlier commit of this batch did it.
    Committed(Applied),
    Seen(Seen),
}

fn refused_without_a_change(status: Status) -> StoreError {
    let told = format!(
        "Firestore refuses a commit although no document of it changed; is the database there, and in Native mode? ({:?}: {})",
        status.code(),
        status.message()
    );
    StoreError::caused(class_of(status.code()), told, status)
}

impl Firestore {
    /// See the port. A concurrent writer with the same members makes this commit fail, never count twice; one with the same
    /// key (a commit whose answer was lost) makes it return that commit's outcome.
    pub(super) async fn apply_batch(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        let key = self.address.batch(batch.key());
        let mut members = Members::of(self, batch);
        let likes = batch.likes().len();
        let all: Vec<usize> = (0..likes).collect();
        if attempt.resuming {
            // Alone first: mostly it is there, and then nothing else needs to be read.
            let found = self.get(vec![key.clone()], None).await.map_err(failure)?;
            if let Some(document) = found.get(&key) {
                return Ok(read_key(document, likes));
            }
        }
        if attempt.resuming || self.met_many.load(Ordering::Relaxed) {
            self.read_all(&mut members, batch).await?;
        }
        let mut wrong_guesses = 0;
        let mut raced = false;
        // Bounded: each turn makes a guess known (at most WRONG_GUESSES + 1 times), is the first race, or ends.
        loop {
            let plan = self.plan(batch, attempt.shard, &key, &members);
            if plan.writes.is_empty() {
                self.note(&members);
                return Ok(plan.applied);
            }
            let status = match self.commit(plan.writes).await {
                Ok(()) => {
                    self.note(&members);
                    return Ok(plan.applied);
                }
                Err(status) => status,
            };
            if !is_refusal(status.code()) {
                return Err(failure((status, "commit a batch")));
            }
            self.bill.refused();
            let named = members.named_by(&status);
            let places = match named {
                // Another guess is only worth it while duplicates are few.
                Some(place) if members.known[place] != Known::Assumed || wrong_guesses < WRONG_GUESSES => vec![place],
                _ => all.clone(),
            };
            let seen = match self.read_again(&key, batch, &mut members, &places, named).await? {
                Again::Committed(applied) => return Ok(applied),
                Again::Seen(seen) => seen,
            };
            if !seen.changed.is_empty() {
                if raced {
                    return Err(StoreError::caused(
                        ErrorClass::Contended(seen.changed),
                        "others keep writing some likes of this batch",
                        status,
                    ));
                }
                raced = true;
            } else if seen.revealed > 0 {
                wrong_guesses += 1;
            } else {
                // Nobody raced, so the same commit would be refused for ever.
                return Err(refused_without_a_change(status));
            }
        }
    }

    /// Reads the batch key and the members in question again, after a commit was refused; `named` is the one that Firestore
    /// named.
    async fn read_again(
        &self,
        key: &str,
        batch: &Batch,
        members: &mut Members,
        places: &[usize],
        named: Option<usize>,
    ) -> Result<Again, StoreError> {
        let likes = batch.likes().len();
        let mut names = vec![key.to_owned()];
        names.extend(places.iter().map(|place| members.names[*place].clone()));
        let found = self.get(names, None).await.map_err(failure)?;
        if let Some(document) = found.get(key) {
            return Ok(Again::Committed(read_key(document, likes)));
        }
        let mut seen = members.see(self.layout, batch, places, &found);
        if !seen.undecidable.is_empty() {
            if places.len() < likes {
                // The others that cannot be read either are named with it, rather than one by one.
                self.read_all(members, batch).await?;
            }
            return Err(StoreError::undecidable(seen.undecidable));
        }
        // What was there when the commit was refused and is not there now was deleted in between.
        if let Some(place) = named
            && members.known[place] == Known::Missing
        {
            seen.changed = vec![place];
        }
        Ok(Again::Seen(seen))
    }

    /// Reads the memberships of all members.
    async fn read_all(&self, members: &mut Members, batch: &Batch) -> Result<(), StoreError> {
        let all: Vec<usize> = (0..members.names.len()).collect();
        let found = self.get(members.names.clone(), None).await.map_err(failure)?;
        let seen = members.see(self.layout, batch, &all, &found);
        if seen.undecidable.is_empty() { Ok(()) } else { Err(StoreError::undecidable(seen.undecidable)) }
    }

    /// Decides every like by what is known, and makes the writes of it: the key, the memberships, and one increment for
    /// each post whose count changes, all on the lane's shard. Old deltas are never sent again; this is asked anew.
    fn plan(&self, batch: &Batch, shard: u16, key: &str, members: &Members) -> Plan {
        let mut applied = Applied::default();
        let mut writes = Vec::with_capacity(batch.likes().len() + 2);
        let mut increments = Vec::new();
        let mut posts = 0;
        let mut place = 0;
        let shard = shard.to_string();
        for likes in batch.by_post() {
            posts += 1;
            let mut sum = 0_i64;
            for like in likes {
                let known = &members.known[place];
                let current = match known {
                    Known::Assumed | Known::Missing => None,
                    Known::Stored { like, .. } => Some(like.membership()),
                };
                match decide(current, like) {
                    Decision::Duplicate => applied.duplicates += 1,
                    Decision::Stale => applied.stale += 1,
                    Decision::Write { delta } => {
                        applied.applied += 1;
                        sum += i64::from(delta);
                        writes.push(write_member(&self.address, self.layout, &members.ids[place], like, known));
                    }
                }
                place += 1;
            }
            if sum != 0 {
                increments.push(write_shard(self.layout, self.address.shard(likes[0].post(), &shard), sum));
            }
        }
        if writes.is_empty() {
            return Plan { applied, writes };
        }
        writes.append(&mut increments);
        let expire_at = SystemTime::now() + self.address.batch_key_lifetime();
        // First, so that a refusal names the key rather than a member when this batch had committed.
        writes.insert(0, write_key(self.layout, key.to_owned(), applied, posts, expire_at));
        Plan { applied, writes }
    }

    /// Remembers whether it would have been better to read first.
    fn note(&self, members: &Members) {
        let stored = members.known.iter().filter(|known| matches!(known, Known::Stored { .. })).count();
        self.met_many.store(stored > WRONG_GUESSES, Ordering::Relaxed);
    }
}

impl Members {
    fn of(store: &Firestore, batch: &Batch) -> Self {
        let ids: Vec<String> = batch.likes().iter().map(|like| member_id(like.post(), like.user())).collect();
        let names = ids.iter().map(|id| store.address.member(id)).collect();
        let known = vec![Known::Assumed; ids.len()];
        Self { ids, names, known }
    }

    /// The place whose membership the service says exists already, when it says so and names one. The service names the
    /// whole path and the emulator the end of it; both have the id, and no two members share 128 bits of a hash.
    fn named_by(&self, status: &Status) -> Option<usize> {
        if status.code() != Code::AlreadyExists {
            return None;
        }
        self.ids.iter().position(|id| status.message().contains(id.as_str()))
    }

    /// Takes in what was found for `places`.
    fn see(&mut self, layout: Layout, batch: &Batch, places: &[usize], found: &HashMap<String, Document>) -> Seen {
        let mut seen = Seen::default();
        for &place in places {
            let (like, name) = (&batch.likes()[place], &self.names[place]);
            let now = match found
                .get(name)
                .map(|document| (document, read_member(layout, document, like.post(), like.user())))
            {
                None => Known::Missing,
                Some((document, Ok(like))) => {
                    Known::Stored { like, update_time: document.update_time.unwrap_or_default() }
                }
                Some((_, Err(fault))) => {
                    seen.undecidable.push(undecidable(place, name, fault));
                    continue;
                }
            };
            match (&self.known[place], &now) {
                (Known::Assumed, Known::Stored { .. }) => seen.revealed += 1,
                (Known::Assumed, _) => {}
                (before, now) if before != now => seen.changed.push(place),
                _ => {}
            }
            self.known[place] = now;
        }
        seen
    }
}
