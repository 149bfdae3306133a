//! The Firestore adapter as it ships, its own client included, on Google's emulator. Answers are lost on the wire.

use crate::lost_answer::cell::{Before, Cell, Failure, When};
use crate::lost_answer::judge::{Events, Letters, judge, put};
use crate::lost_answer::script::{Script, Sent};
use crate::support::emulators::unique;
use crate::support::proxy::{Call, Proxy, Status, Verdict};
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{CommitRequest, Document};
use gcloud_sdk::prost::Message;
use gcloud_sdk::tonic::Code;
use hotcount::store::{Options, Store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A database of one cell: the adapter through a proxy, and one that reaches the emulator itself.
struct Wire {
    through: Arc<dyn Store>,
    works: Arc<dyn Store>,
    _proxy: Proxy,
}

impl Wire {
    async fn new(host: &str, rule: impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        let proxy = Proxy::start(host, rule).await;
        let project = unique("lost");
        let connect = async |host: &str| {
            let url = format!("firestore://{project}?emulator={host}");
            hotcount::connect::store(&url, &Options::default()).await.expect("the emulator is there")
        };
        Self { through: connect(proxy.host()).await, works: connect(host).await, _proxy: proxy }
    }
}

/// How the name of what the workers of a consumer have agreed on ends.
const SETTINGS: &str = ":settings";

fn text<'a>(document: &'a Document, field: &str) -> Option<&'a str> {
    match document.fields.get(field)?.value_type.as_ref()? {
        ValueType::StringValue(text) => Some(text),
        _ => None,
    }
}

/// What a commit carries, a probe's nothing; `None` for one that is neither a batch's nor a probe's.
fn sent(message: &[u8]) -> Option<Sent> {
    let request = CommitRequest::decode(message).expect("it is a commit");
    let documents = request.writes.iter().filter_map(|write| match &write.operation {
        Some(Operation::Update(document)) => Some(document),
        _ => None,
    });
    let (mut key, mut sent) = (None, Sent { key: Vec::new(), users: Default::default() });
    for document in documents {
        if document.name.contains("/hotcountBatches/") && !document.name.ends_with(SETTINGS) {
            key = Some(document.name.clone().into_bytes());
        }
        sent.users.extend(text(document, "user").map(str::to_owned));
    }
    Some(Sent { key: key?, ..sent })
}

fn verdict(failure: Failure, when: When) -> Verdict {
    match (failure, when) {
        (Failure::Code(code), When::BeforeApplying) => Verdict::Refuse(status(code)),
        (Failure::Code(code), When::AfterApplying) => Verdict::Lose(status(code)),
        (Failure::Broken, When::BeforeApplying) => Verdict::Break,
        (Failure::Broken, When::AfterApplying) => Verdict::BreakAfter,
    }
}

fn status(code: Code) -> Status {
    Status::new(code as u16, "a fault of the test")
}

/// One cell, on the wire.
pub(crate) async fn on_the_wire(cell: Cell, host: &str) {
    let events = Events::new("post", cell.before);
    let letters = Letters::of(&events.these);
    let script = Arc::new(Script::new(cell, letters.clone()));
    let armed = Arc::new(AtomicBool::new(false));
    let (deciding, is_armed) = (Arc::clone(&script), Arc::clone(&armed));
    let wire = Wire::new(host, move |call| {
        if call.method != "Commit" || !is_armed.load(Ordering::SeqCst) {
            return Verdict::Pass;
        }
        let next = sent(call.message).and_then(|sent| deciding.next(sent));
        next.map_or(Verdict::Pass, |(failure, when)| verdict(failure, when))
    })
    .await;
    put(&*wire.works, &events.stored).await;
    // The adapter that is tested meets them too, so that it reads before it writes.
    put(&*wire.through, &events.stored).await;
    armed.store(true, Ordering::SeqCst);
    let stores = (Arc::clone(&wire.through), Arc::clone(&wire.works));
    judge(&cell.to_string(), (&events, &letters), stores).await;
    script.check();
}

/// The read that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Of the key, after the answer of a commit was lost.
    Key,
    /// Of the members, after a commit that did not reach the server.
    Members,
    /// Of what a refused commit has met.
    AfterARefusal,
}

impl Read {
    pub(crate) const ALL: [Self; 3] = [Self::Key, Self::Members, Self::AfterARefusal];

    /// What becomes of the first commit, which no read precedes, and which read after it fails.
    fn plan(self) -> (Verdict, usize) {
        match self {
            Self::Key => (Verdict::Lose(status(Code::Unavailable)), 0),
            Self::Members => (Verdict::Refuse(status(Code::Unavailable)), 1),
            Self::AfterARefusal => (Verdict::Pass, 0),
        }
    }
}

/// A read that fails on the way of a retry, on the wire.
pub(crate) async fn reading_on_the_wire(failure: Failure, read: Read, host: &str) {
    let events = Events::new("post", Before::Nothing);
    let letters = Letters::of(&events.these);
    let (first_commit, failing) = read.plan();
    // Calls of the batch so far: commits and reads.
    let calls = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&calls);
    let wire = Wire::new(host, move |call| {
        let mut seen = seen.lock().unwrap();
        let Some((commits, reads)) = seen.as_mut() else { return Verdict::Pass };
        let of_the_settings = call.message.windows(SETTINGS.len()).any(|part| part == SETTINGS.as_bytes());
        let counted = match call.method {
            _ if of_the_settings => return Verdict::Pass,
            "Commit" if sent(call.message).is_some_and(|sent| sent.users.is_empty()) => return Verdict::Pass,
            "Commit" => &mut *commits,
            "BatchGetDocuments" => &mut *reads,
            _ => return Verdict::Pass,
        };
        let number = std::mem::replace(counted, *counted + 1);
        match call.method {
            "Commit" if number == 0 => first_commit.clone(),
            "BatchGetDocuments" if number == failing => verdict(failure, When::BeforeApplying),
            _ => Verdict::Pass,
        }
    })
    .await;
    if read == Read::AfterARefusal {
        put(&*wire.works, &events.these[..1]).await;
    }
    *calls.lock().unwrap() = Some((0, 0));
    let name = format!("a read of {read:?} that fails with {failure:?}");
    let stores = (Arc::clone(&wire.through), Arc::clone(&wire.works));
    judge(&name, (&events, &letters), stores).await;
    let (commits, reads) = calls.lock().unwrap().expect("armed");
    assert!(commits > 0 && reads > failing, "{name}: it never struck");
}
