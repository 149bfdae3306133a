//! What all workers of a consumer must agree on, in one document beside the batch keys. It has no `expireAt`, so it stays.

use super::document::{Layout, create, int, int_of, short, text, text_of};
use super::{Firestore, failure, is_refusal};
use crate::store::{ErrorClass, Settings, StoreError, StoredFault};
use gcloud_sdk::google::firestore::v1::Document;
use gcloud_sdk::tonic::Code;
use std::collections::HashMap;

impl Firestore {
    /// See the port. The first write wins, for it must not exist; after a lost answer the same call finds what it wrote.
    pub(super) async fn keep_settings(&self, settings: &Settings) -> Result<Settings, StoreError> {
        if let Some(kept) = self.kept_settings().await? {
            return Ok(kept);
        }
        let fields = HashMap::from([
            self.layout.field(),
            ("order".to_owned(), text(settings.order.as_str())),
            ("identity".to_owned(), text(settings.identity.as_str())),
            ("layout".to_owned(), int(settings.layout)),
        ]);
        match self.commit(vec![create(self.address.settings(), fields)]).await {
            Ok(()) => Ok(settings.clone()),
            Err(status) if is_refusal(status.code()) => {
                self.bill.refused();
                let refused = match status.code() {
                    Code::AlreadyExists => StoreError::new(ErrorClass::Unknown, "somebody deletes the settings"),
                    _ => failure((status, "keep the settings")),
                };
                // Another writer was first.
                self.kept_settings().await?.ok_or(refused)
            }
            Err(status) => Err(failure((status, "keep the settings"))),
        }
    }

    async fn kept_settings(&self) -> Result<Option<Settings>, StoreError> {
        let name = self.address.settings();
        let found = self.get(vec![name.clone()], None).await.map_err(failure)?;
        let Some(document) = found.get(&name) else { return Ok(None) };
        read(self.layout, document).map(Some).map_err(|fault| {
            let advice = match fault {
                StoredFault::Newer(_) => "run that version, or another consumer",
                StoredFault::Unreadable(_) => {
                    "stop this consumer's workers and delete the document; the first worker that starts then keeps its own"
                }
            };
            let message = format!("the settings that all workers share are in {}, which {fault}; {advice}", short(&name));
            StoreError::new(ErrorClass::Fatal, message)
        })
    }
}

/// A newer version may have more that must agree, so nobody who does not know it can say that all is well.
fn read(layout: Layout, document: &Document) -> Result<Settings, StoredFault> {
    layout.check(document)?;
    Ok(Settings {
        order: text_of(document, "order")?.to_owned(),
        identity: text_of(document, "identity")?.to_owned(),
        layout: int_of(document, "layout")?,
    })
}
