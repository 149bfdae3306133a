//! Documents that Firestore answers with. Somebody may have written anything into them, and an answer may lack anything; the
//! adapter must end every call, and believe no document that it could not have written.

use super::dice::Dice;
use super::rpc::{Answers, Kept, POST, USER};
use hotcount::like::batch::{Batch, BatchKey};
use hotcount::like::event::Like;
use hotcount::store::firestore::{Address, Firestore};
use hotcount::store::{
    Attempt, Counts, Depth, ErrorClass, LAYOUT, Listing, PageSize, Quarantined, Repair, Settings, Store, StoreError,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The first byte says what is asked, the rest is what the answers are made of.
pub fn documents(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else { return };
    let members_by = if how & 128 == 0 { "cell" } else { "scan" };
    let url = format!("firestore://demo?members_by={members_by}");
    let address = Address::parse(&url, "consumer", None).expect("it is understood");
    super::block_on(async {
        if how & 7 == 0 {
            return kept(&address, &mut Dice(rest)).await;
        }
        let store = Firestore::over(Arc::new(Answers::made_of(rest)), address);
        match how & 7 {
            1 | 2 => apply(&store, how >> 3).await,
            3 => {
                if let Some(like) = said(store.membership(POST, USER).await).flatten() {
                    assert_eq!(like.member(), (POST, USER));
                }
                let mine = Settings { order: "version".to_owned(), identity: "member".to_owned(), layout: LAYOUT };
                said(store.agree(&mine).await);
            }
            4 => {
                said(store.tally(POST, Depth::Shards).await);
                said(store.tally(POST, Depth::ShardsAndMembers).await)
                    .inspect(|tally| assert!(tally.members.is_some()));
            }
            5 => {
                if let Some(seen) = said(store.audit(POST).await) {
                    said(store.repair(POST, &seen).await);
                }
            }
            6 => {
                for listing in [Listing::Shards, Listing::Members] {
                    let posts = said(store.posts(listing, (how & 64 != 0).then_some("a"), 3).await);
                    assert!(posts.is_none_or(|posts| posts.len() <= 3));
                }
            }
            _ => {
                let page = said(store.quarantined(None, PageSize::entries(5)).await);
                assert!(page.is_none_or(|page| page.entries.len() + page.unreadable.len() <= 5));
                let found = said(store.find_quarantined("an-id").await).flatten();
                assert!(found.is_none_or(|entry| entry.id == "an-id"));
                said(store.discard(&["an-id".to_owned()]).await);
            }
        }
    });
}

/// An answer, or an error that says something.
fn said<T>(answer: Result<T, StoreError>) -> Option<T> {
    answer.map_err(|error| assert!(error.message.len() > 10, "{error:?}")).ok()
}

/// Every like of a batch ends as one of applied, duplicate and stale.
async fn apply(store: &Firestore, how: u8) {
    let users = ["", "-2", "-3"].iter().take(1 + usize::from(how & 3) % 3);
    let likes = users.map(|end| Like::new(POST, &format!("{USER}{end}"), "event", how & 4 == 0, 5)).collect();
    let batch = Batch::new(BatchKey::from_random(7), likes);
    let attempt = Attempt { number: 1, resuming: how & 8 != 0, shard: 3 };
    let answer = store.apply(&batch, attempt).await;
    if let Err(StoreError { class: ErrorClass::Undecidable(those), .. }) = &answer {
        assert!(!those.is_empty() && those.is_sorted_by(|a, b| a.place < b.place), "{those:?}");
        assert!(those.iter().all(|one| one.place < batch.likes().len()), "{those:?}");
    }
    if let Some(applied) = said(answer) {
        assert_eq!(applied.applied + applied.duplicates + applied.stale, batch.likes().len() as u64);
    }
}

/// Whatever poison is, it fits in documents and comes back as it was.
async fn kept(address: &Address, dice: &mut Dice<'_>) {
    let documents = Arc::new(Kept::default());
    let store = Firestore::over(documents.clone(), address.clone());
    let entries: Vec<Quarantined> = (0..1 + dice.below(3)).map(|n| poison(n, dice)).collect();
    store.quarantine(&entries).await.expect("everything fits");
    for entry in &entries {
        let read = store.find_quarantined(&entry.id).await.expect("it can be read").expect("it is there");
        assert!(read.data == entry.data, "{} bytes instead of {}", read.data.len(), entry.data.len());
        let head = |entry: &Quarantined| format!("{:?}", Quarantined { data: Default::default(), ..entry.clone() });
        assert_eq!(head(&read), head(entry));
    }
}

fn poison(n: usize, dice: &mut Dice<'_>) -> Quarantined {
    let time = |dice: &mut Dice<'_>| {
        let (seconds, nanos) = (dice.int(), u64::from(dice.byte()) * 3_921_568);
        let whole = Duration::from_secs(seconds.unsigned_abs() >> 24);
        let base = if seconds < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
        base + Duration::from_nanos(nanos)
    };
    let payload = dice.some();
    // Now and then it is as large as a message can be, or at the border of a part.
    let times = if dice.byte() < 250 { 1 } else { (900 << 10) / payload.len().max(1) + dice.below(3) };
    Quarantined {
        id: format!("entry-{n}"),
        reason: dice.text(),
        data: payload.repeat(times).into(),
        attributes: (0..dice.below(4)).map(|_| (dice.text(), dice.text())).collect(),
        source: dice.text(),
        message_id: (dice.byte() & 1 == 0).then(|| dice.text()),
        published_at: (dice.byte() & 1 == 0).then(|| time(dice)),
        received_at: time(dice),
        delivery_attempt: (dice.byte() & 1 == 0).then(|| dice.int() as u32),
    }
}
