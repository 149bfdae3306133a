//! What somebody else does to the documents, past the adapter.

use super::*;
use gcloud_sdk::google::firestore::v1::DocumentMask;
use gcloud_sdk::google::firestore::v1::Value;
use gcloud_sdk::google::firestore::v1::value::ValueType;

pub(crate) fn text(text: &str) -> Value {
    Value { value_type: Some(ValueType::StringValue(text.to_owned())) }
}

pub(crate) fn int(number: i64) -> Value {
    Value { value_type: Some(ValueType::IntegerValue(number)) }
}

impl Place {
    /// Commits writes from outside.
    pub(crate) async fn commit(&self, writes: Vec<Write>) {
        let request = CommitRequest { database: self.address().database_path(), writes, ..Default::default() };
        self.grpc().await.commit(request).await.expect("it is committed");
    }

    /// Writes these fields of one document and leaves the others; one without a value is deleted.
    pub(crate) async fn change(&self, name: &str, fields: &[(&str, Option<Value>)]) {
        let field_paths = fields.iter().map(|(field, _)| (*field).to_owned()).collect();
        let there = fields.iter().filter_map(|(field, value)| Some(((*field).to_owned(), value.clone()?)));
        let document = Document { name: name.to_owned(), fields: there.collect(), ..Default::default() };
        let write = Write {
            update_mask: Some(DocumentMask { field_paths }),
            operation: Some(Operation::Update(document)),
            ..Default::default()
        };
        self.commit(vec![write]).await;
    }

    /// A document as it is stored, if it is there.
    pub(crate) async fn find(&self, name: &str) -> Option<Document> {
        let request = BatchGetDocumentsRequest {
            database: self.address().database_path(),
            documents: vec![name.to_owned()],
            ..Default::default()
        };
        let answers = self.grpc().await.batch_get(request).await.expect("it answers");
        answers.into_iter().find_map(|answer| match answer.result {
            Some(Got::Found(document)) => Some(document),
            _ => None,
        })
    }

    /// The fields of a document that must be there.
    pub(crate) async fn fields(&self, name: &str) -> std::collections::HashMap<String, Value> {
        self.find(name).await.unwrap_or_else(|| panic!("{name} is missing")).fields
    }

    /// The name of a membership.
    pub(crate) fn member(&self, post: &str, user: &str) -> String {
        self.address().member(&member_id(post, user))
    }
}
