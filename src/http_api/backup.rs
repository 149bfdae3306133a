//! A copy of the store for whoever asks: `hotcount backup` makes a store of it, on its own machine. Nothing is written here.

use super::routes::Refusal;
use crate::store::Repair;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::StreamExt;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Where a copy is asked for.
pub const BACKUP_PATH: &str = "/v1/backup";

/// Copies that are read at once: each holds a view of the store for as long as it is read.
const COPIES: usize = 1;

#[derive(Clone)]
struct Copies {
    store: Arc<dyn Repair>,
    room: Arc<Semaphore>,
}

/// The route of a copy, answered by `store`.
pub(super) fn routes(store: Arc<dyn Repair>) -> Router {
    let room = Arc::new(Semaphore::new(COPIES));
    Router::new().route(BACKUP_PATH, get(backup)).with_state(Copies { store, room })
}

/// A failure after the first byte breaks the answer off, which the other side notices.
async fn backup(State(Copies { store, room }): State<Copies>) -> Result<Response, Refusal> {
    let Ok(room) = room.try_acquire_owned() else {
        let problem = "another copy is being read: try again when it is done".to_owned();
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, problem));
    };
    let chunks = store.backup().await?.map(move |chunk| {
        // Held until the last chunk is read, or nobody reads any more.
        let _room = &room;
        chunk
    });
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(chunks)).into_response())
}
