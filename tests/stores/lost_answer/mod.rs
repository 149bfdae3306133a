//! The lost answer as a whole matrix: every code of gRPC and a broken connection, before and after the commit applied, at
//! the first attempt, at a retried one and at one of a part, on every store. Whatever the cell, the count is exact, nothing
//! is acknowledged before it is durable, and nothing healthy is quarantined.

mod cell;
mod judge;
mod script;
mod wire;

use crate::faults::{Fault, Faulty};
use crate::support::emulators::firestore;
use cell::{At, Cell, Failure, Kind, When};
use futures::StreamExt;
use hotcount::like::batch::Batch;
use hotcount::store::memory::Memory;
use hotcount::store::{Options, Store};
use judge::{Events, Letters, judge, put};
use script::{Script, Sent};
use std::sync::Arc;
use wire::{Read, on_the_wire, reading_on_the_wire};

const ONCE: [At; 4] = [At::First, At::Retried, At::PartOfAFailing, At::PartOfARefused];

/// More than the engine takes before it says that credentials are refused.
const IN_A_ROW: [At; 1] = [At::EachInARow(40)];

/// Cells that share the emulator at once.
const AT_ONCE: usize = 8;

fn sent(batch: &Batch) -> Sent {
    let users = batch.likes().iter().map(|like| like.user().to_owned()).collect();
    Sent { key: batch.key().as_bytes().to_vec(), users }
}

/// A store without gRPC fails by the class that the code belongs to.
async fn by_class(cell: Cell, number: usize, works: Arc<dyn Store>) {
    let events = Events::new(&format!("post-{number}"), cell.before);
    put(&*works, &events.stored).await;
    let letters = Letters::of(&events.these);
    let script = Arc::new(Script::new(cell, letters.clone()));
    let deciding = Arc::clone(&script);
    let faulty = Faulty::new(Arc::clone(&works), move |batch, _| match deciding.next(sent(batch)) {
        None => Fault::default(),
        Some((failure, When::BeforeApplying)) => Fault::before(failure.class()),
        Some((failure, When::AfterApplying)) => Fault::after(failure.class()),
    });
    judge(&cell.to_string(), (&events, &letters), (faulty, works)).await;
    script.check();
}

fn cells(store: Kind) -> impl Iterator<Item = Cell> {
    Cell::all(store, &ONCE).into_iter().chain(Cell::all(store, &IN_A_ROW))
}

#[tokio::test]
async fn a_memory_store_that_fails_with_any_code_at_any_attempt_stays_exact() {
    for cell in cells(Kind::Memory) {
        by_class(cell, 0, Arc::new(Memory::default())).await;
    }
}

#[tokio::test]
async fn an_embedded_store_that_fails_with_any_code_at_any_attempt_stays_exact() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("embedded:{}", directory.path().display());
    let store = hotcount::connect::store(&url, &Options::default()).await.expect("it opens");
    for (number, cell) in cells(Kind::Embedded).enumerate() {
        by_class(cell, number, Arc::clone(&store)).await;
    }
    store.close().await.expect("it closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_to_firestore_that_fails_on_the_wire_with_any_code_at_any_attempt_stays_exact() {
    let Some(host) = firestore() else { return };
    futures::stream::iter(cells(Kind::Firestore)).for_each_concurrent(AT_ONCE, |cell| on_the_wire(cell, &host)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_from_firestore_that_fails_on_the_wire_with_any_code_loses_and_doubles_nothing() {
    let Some(host) = firestore() else { return };
    let all = Failure::ALL.into_iter().flat_map(|failure| Read::ALL.map(|read| (failure, read)));
    let all = futures::stream::iter(all);
    all.for_each_concurrent(AT_ONCE, |(failure, read)| reading_on_the_wire(failure, read, &host)).await;
}
