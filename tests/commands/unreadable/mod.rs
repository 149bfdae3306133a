//! The real binary where documents in Firestore cannot be read: commands name them and go on, and a worker counts the others.

mod commands;
mod worker;

use crate::support::emulators::{firestore, unique};
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{CommitRequest, Document, DocumentMask, Value, Write};
use hotcount::store::firestore::rpc::{Grpc, Rpc};
use hotcount::store::firestore::{Address, Firestore};
use hotcount::store::{Options, Store};
use std::sync::Arc;

/// A database of the test's own.
struct Place {
    url: String,
    address: Address,
}

impl Place {
    fn new(name: &str) -> Option<Self> {
        let url = format!("firestore://{}?emulator={}", unique(name), firestore()?);
        let address = Address::parse(&url, "like-counter", None).expect("the URL is right");
        Some(Self { url, address })
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(Firestore::connect(&self.url, &Options::default()).await.expect("the emulator is there"))
    }

    /// Writes these fields of a document, past the adapter, and deletes those without a value.
    async fn change(&self, name: &str, fields: &[(&str, Option<ValueType>)]) {
        let field_paths = fields.iter().map(|(field, _)| (*field).to_owned()).collect();
        let value = |value: &ValueType| Value { value_type: Some(value.clone()) };
        let there = fields.iter().filter_map(|(field, to)| Some(((*field).to_owned(), value(to.as_ref()?))));
        let document = Document { name: name.to_owned(), fields: there.collect(), ..Default::default() };
        let write = Write {
            update_mask: Some(DocumentMask { field_paths }),
            operation: Some(Operation::Update(document)),
            ..Default::default()
        };
        let request =
            CommitRequest { database: self.address.database_path(), writes: vec![write], ..Default::default() };
        let grpc = Grpc::connect(&self.address).await.expect("the emulator is there");
        grpc.commit(request).await.expect("it is committed");
    }
}
