//! A copy of a running worker's store.

use super::Client;
use crate::http_api::BACKUP_PATH;
use crate::store::{Backup, ErrorClass, StoreError};
use futures::{StreamExt, stream};
use reqwest::StatusCode;
use std::time::Duration;

/// How long a whole copy may take: a large store over a slow line.
const COPY_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long nothing may come of it.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

impl Client {
    pub(super) async fn copy(&self) -> Result<Backup, StoreError> {
        let answer = self.send(self.client.get(self.url(BACKUP_PATH)?).timeout(COPY_TIMEOUT)).await?;
        if answer.status() != StatusCode::OK {
            return Err(self.refusal(answer).await);
        }
        let name = self.name();
        let chunks = stream::try_unfold(answer, move |mut answer| {
            let name = name.clone();
            async move {
                let broken = |problem: String| {
                    StoreError::new(ErrorClass::Unknown, format!("the copy from {name} broke off: {problem}"))
                };
                match tokio::time::timeout(STALL_TIMEOUT, answer.chunk()).await {
                    Ok(Ok(chunk)) => Ok(chunk.map(|chunk| (chunk, answer))),
                    Ok(Err(error)) => Err(broken(error.to_string())),
                    Err(_) => Err(broken(format!("nothing came for {} seconds", STALL_TIMEOUT.as_secs()))),
                }
            }
        });
        Ok(chunks.boxed())
    }
}
