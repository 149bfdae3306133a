//! The Firestore store: exact counts without a read lock, by write preconditions alone.
//!
//! `address` says where documents are, `document` what is in them, `apply` is the one commit, `read` counts and lists,
//! `repair` corrects a drift, `quarantine` keeps poison and `poison` is a document of it, `settings` is what workers agree on,
//! `setup` is what an administrator declares once, `billing` is what it costs, and `rpc` is the seam to the service. Nothing below `flush` tries an RPC again, and nothing here spawns.

mod address;
mod apply;
pub mod billing;
mod connect;
mod document;
mod poison;
mod quarantine;
mod read;
mod repair;
pub mod rpc;
mod settings;
pub mod setup;

pub use address::{Address, BATCH_KEY_LIFETIME, MembersBy, PREFIX, member_id};
pub use billing::Billed;

use super::{
    Applied, Attempt, Audit, ConnectError, Counts, Depth, ErrorClass, LAYOUT, Limits, Listing, Options, PageSize,
    QuarantinePage, Quarantined, Repair, Repaired, Settings, Store, StoreError, Tally,
};
use crate::common::adapter_url::{emulator_of, shown};
use crate::like::batch::{Batch, BatchKey};
use crate::like::event::Like;
use async_trait::async_trait;
use billing::Bill;
use document::Layout;
use gcloud_sdk::google::firestore::v1::batch_get_documents_request::ConsistencySelector;
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Got;
use gcloud_sdk::google::firestore::v1::{BatchGetDocumentsRequest, CommitRequest, Document, Write};
use gcloud_sdk::prost_types::Timestamp;
use gcloud_sdk::tonic::{Code, Status};
use rpc::{Grpc, Rpc};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

/// How long `connect` waits for the first answer. A worker that cannot reach its store should say so soon.
const CONNECT_DEADLINE: Duration = Duration::from_secs(15);

/// Documents written by one commit. The service has had no such limit since March 2023; smaller commits hold fewer
/// locks, and lose less when they are refused.
const MAX_WRITES: usize = 500;

/// Bytes of one commit. The emulator refuses 4 MiB and the service 10 MiB, where changed index entries count too.
const MAX_COMMIT_BYTES: usize = 3 << 20;

/// Likes remembered, about 20 MB of them: a duplicate that reaches the service costs two reads and a refused commit.
const RECENT_LIKES: usize = 100_000;

/// Commits at once. On the emulator two are a third faster than one, and four are slower than two.
const LANES: usize = 2;

/// The store, on one database and for one consumer.
pub struct Firestore {
    address: Address,
    rpc: Arc<dyn Rpc>,
    bill: Bill,
    /// The version of the layout that it knows.
    layout: Layout,
    /// Whether the last batch met more stored memberships than it is worth finding one by one. Only a hint: it chooses
    /// between two correct ways, so a concurrent writer that sees an old value loses time and nothing else.
    met_many: AtomicBool,
}

impl Firestore {
    /// Opens the store that `firestore://PROJECT[/DATABASE][?prefix=P&batch_key_lifetime_s=S&emulator=HOST:PORT]` names, and
    /// reads one document to see that it answers. Without `emulator` the variable `FIRESTORE_EMULATOR_HOST` is honoured.
    ///
    /// # Errors
    /// When the URL is not understood, names something that Firestore would refuse, the host is not reached, there are no
    /// credentials, or the database is missing or in Datastore mode.
    pub async fn connect(url: &str, options: &Options) -> Result<Self, ConnectError> {
        let address = Address::parse(url, &options.consumer, std::env::var("FIRESTORE_EMULATOR_HOST").ok())?;
        Self::open_as(shown(url), address).await
    }

    /// Opens the store at `address`, and reads one document to see that it answers. Without an emulator in `address` the
    /// variable `FIRESTORE_EMULATOR_HOST` is honoured.
    ///
    /// # Errors
    /// As [`Firestore::connect`].
    pub async fn open(address: Address) -> Result<Self, ConnectError> {
        let url = address.name();
        address.check().map_err(|problem| ConnectError::BadUrl { url: url.clone(), problem })?;
        let emulator = emulator_of(std::env::var("FIRESTORE_EMULATOR_HOST").ok());
        Self::open_as(url, address.or_on_emulator(emulator)).await
    }

    async fn open_as(url: String, address: Address) -> Result<Self, ConnectError> {
        let unavailable = |problem: String| ConnectError::Unavailable { url: url.clone(), problem };
        let reach = match address.emulator() {
            Some(host) => format!("the Firestore emulator at {host}"),
            None => "firestore.googleapis.com".to_owned(),
        };
        let silent = || unavailable(format!("{reach} did not answer within {} s", CONNECT_DEADLINE.as_secs()));
        let grpc = match tokio::time::timeout(CONNECT_DEADLINE, Grpc::connect(&address)).await {
            Ok(Ok(grpc)) => grpc,
            Ok(Err(error)) => {
                return Err(unavailable(format!(
                    "{reach} is not reached, or there are no credentials ({error}); check the host and \
                     `gcloud auth application-default login`"
                )));
            }
            Err(_) => return Err(silent()),
        };
        let store = Self::over(Arc::new(grpc), address);
        let nothing = store.address.nothing();
        let database = store.address.database_path();
        match tokio::time::timeout(CONNECT_DEADLINE, store.get(vec![nothing], None)).await {
            Ok(Ok(_)) => Ok(store),
            Ok(Err((status, _))) => Err(unavailable(match status.code() {
                Code::NotFound => format!(
                    "there is no {database}; create it with `gcloud firestore databases create`, or name another one"
                ),
                Code::FailedPrecondition => {
                    format!(
                        "{database} is in Datastore mode, and hotcount needs one in Native mode ({})",
                        status.message()
                    )
                }
                Code::PermissionDenied => format!(
                    "the credentials may not read {database}; grant them roles/datastore.user ({})",
                    status.message()
                ),
                Code::Unauthenticated => format!(
                    "{reach} did not accept the credentials; try `gcloud auth application-default login` ({})",
                    status.message()
                ),
                code => format!("{reach} answered {code:?}: {}", status.message()),
            })),
            Err(_) => Err(silent()),
        }
    }

    /// The store over any implementation of the RPCs, unchecked.
    #[must_use]
    pub fn over(rpc: Arc<dyn Rpc>, address: Address) -> Self {
        Self { address, rpc, bill: Bill::default(), layout: Layout(LAYOUT), met_many: AtomicBool::new(false) }
    }

    /// The store as a hotcount that knows the layout up to `version` has it: it writes that one into every document, and
    /// answers [`StoredFault::Newer`](super::StoredFault::Newer) for documents beyond it.
    #[must_use]
    pub fn knowing(self, version: i64) -> Self {
        Self { layout: Layout(version), ..self }
    }

    /// What this adapter has been billed for since it was opened.
    #[must_use]
    pub fn billed(&self) -> Billed {
        self.bill.sum()
    }

    /// Reads documents by name, outside any transaction: no lock is taken. What is missing is not in the map.
    async fn get(&self, names: Vec<String>, at: Option<Timestamp>) -> Result<HashMap<String, Document>, Failed> {
        let asked = names.len();
        let request = BatchGetDocumentsRequest {
            database: self.address.database_path(),
            documents: names,
            consistency_selector: at.map(ConsistencySelector::ReadTime),
            ..Default::default()
        };
        let answers = self.rpc.batch_get(request).await.map_err(|status| (status, "read documents"))?;
        self.bill.read(asked);
        let mut found = HashMap::with_capacity(answers.len());
        let mut answered = 0;
        for answer in answers {
            match answer.result {
                Some(Got::Found(document)) => {
                    answered += 1;
                    found.insert(document.name.clone(), document);
                }
                Some(Got::Missing(_)) => answered += 1,
                None => {}
            }
        }
        if answered != asked {
            // A stream that was cut short must not make a document look missing.
            return Err((
                Status::unavailable(format!("{answered} of {asked} documents were answered")),
                "read documents",
            ));
        }
        Ok(found)
    }

    /// Commits all writes or none, once.
    async fn commit(&self, writes: Vec<Write>) -> Result<(), Status> {
        let amount = writes.len();
        let request = CommitRequest { database: self.address.database_path(), writes, ..Default::default() };
        self.rpc.commit(request).await?;
        self.bill.wrote(amount);
        Ok(())
    }
}

#[async_trait]
impl Counts for Firestore {
    async fn tally(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        self.tally_of(post, depth).await
    }

    async fn posts(&self, listing: Listing, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        match listing {
            Listing::Shards => self.posts_by_shards(after, limit).await,
            Listing::Members => self.posts_by_members(after, limit).await,
        }
    }

    async fn quarantined(&self, after: Option<&str>, size: PageSize) -> Result<QuarantinePage, StoreError> {
        self.list_poison(after, size).await
    }
}

#[async_trait]
impl Repair for Firestore {
    async fn audit(&self, post: &str) -> Result<Audit, StoreError> {
        self.examine_post(post).await
    }

    async fn repair(&self, post: &str, seen: &Audit) -> Result<Repaired, StoreError> {
        self.repair_post(post, seen).await
    }
}

#[async_trait]
impl Store for Firestore {
    async fn apply(&self, batch: &Batch, attempt: Attempt) -> Result<Applied, StoreError> {
        self.apply_batch(batch, attempt).await
    }

    async fn quarantine(&self, poison: &[Quarantined]) -> Result<(), StoreError> {
        self.keep_poison(poison).await
    }

    async fn find_quarantined(&self, id: &str) -> Result<Option<Quarantined>, StoreError> {
        self.find_poison(id).await
    }

    async fn discard(&self, ids: &[String]) -> Result<(), StoreError> {
        self.discard_poison(ids).await
    }

    async fn membership(&self, post: &str, user: &str) -> Result<Option<Like>, StoreError> {
        let name = self.address.member(&member_id(post, user));
        let found = self.get(vec![name.clone()], None).await.map_err(failure)?;
        let Some(document) = found.get(&name) else { return Ok(None) };
        let like = document::read_member(self.layout, document, post, user);
        like.map(Some).map_err(|fault| document::unreadable(&name, fault))
    }

    async fn agree(&self, settings: &Settings) -> Result<Settings, StoreError> {
        self.keep_settings(settings).await
    }

    async fn probe(&self, key: BatchKey) -> Result<(), StoreError> {
        let expire_at = SystemTime::now() + self.address.batch_key_lifetime();
        let write = document::write_key(self.layout, self.address.batch(key), Applied::default(), 0, expire_at);
        match self.commit(vec![write]).await {
            Ok(()) => Ok(()),
            // An earlier try of it, whose answer was lost.
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            Err(status) => Err(failure((status, "commit a probe"))),
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            max_writes: MAX_WRITES,
            max_bytes: MAX_COMMIT_BYTES,
            lanes: LANES,
            recent_likes: RECENT_LIKES,
            batch_key_lifetime: Some(self.address.batch_key_lifetime()),
        }
    }
}

/// A status, and what was tried when it came.
type Failed = (Status, &'static str);

/// The status as the port's error.
fn failure((status, tried): Failed) -> StoreError {
    let class = class_of(status.code());
    let (code, advice) = (status.code(), advice(status.code()));
    StoreError::caused(class, format!("could not {tried}: {code:?}: {}{advice}", status.message()), status)
}

/// What to do about a code that keeps the worker from working, as the end of a sentence.
fn advice(code: Code) -> &'static str {
    match code {
        Code::PermissionDenied => "; grant the credentials roles/datastore.user",
        Code::Unauthenticated => "; try `gcloud auth application-default login`",
        Code::Unimplemented => "; is it Firestore that answers there?",
        Code::NotFound | Code::FailedPrecondition => "; is the database there, and in Native mode?",
        _ => "",
    }
}

/// Whether a commit was refused because of a precondition: somebody wrote one of its documents first. Nothing of it was
/// applied.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::AlreadyExists | Code::FailedPrecondition | Code::NotFound)
}

/// What a status means for the batch. A broken connection comes as one of the codes of an unknown outcome.
fn class_of(code: Code) -> ErrorClass {
    match code {
        // The service says that it did not do it.
        Code::Aborted | Code::ResourceExhausted => ErrorClass::DidNotCommit,
        // It may have been done; `DataLoss` and `Ok` are never sent with a failed call, so nothing is known then either.
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Internal
        | Code::Unknown
        | Code::DataLoss
        | Code::Ok => ErrorClass::Unknown,
        Code::Unauthenticated => ErrorClass::Unauthenticated,
        // The last three from a read, or from a commit where no document changed: the database is missing or in Datastore
        // mode. What does not know the RPC is not Firestore.
        Code::PermissionDenied
        | Code::Unimplemented
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::NotFound => ErrorClass::Fatal,
        Code::InvalidArgument | Code::OutOfRange => ErrorClass::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_class_that_says_what_follows() {
        let codes_of = |wanted: ErrorClass| -> Vec<Code> {
            (0..=16).map(Code::from_i32).filter(|code| class_of(*code) == wanted).collect()
        };
        let unknown = [
            Code::Ok,
            Code::Cancelled,
            Code::Unknown,
            Code::DeadlineExceeded,
            Code::Internal,
            Code::Unavailable,
            Code::DataLoss,
        ];
        let cannot_work = [
            Code::NotFound,
            Code::AlreadyExists,
            Code::PermissionDenied,
            Code::FailedPrecondition,
            Code::Unimplemented,
        ];
        assert_eq!(codes_of(ErrorClass::Unknown), unknown);
        assert_eq!(codes_of(ErrorClass::Fatal), cannot_work);
        assert_eq!(codes_of(ErrorClass::DidNotCommit), [Code::ResourceExhausted, Code::Aborted]);
        assert_eq!(codes_of(ErrorClass::Rejected), [Code::InvalidArgument, Code::OutOfRange]);
        assert_eq!(codes_of(ErrorClass::Unauthenticated), [Code::Unauthenticated]);
    }
}
