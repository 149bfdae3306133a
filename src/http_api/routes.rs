//! Who answers.

use super::backup;
use super::page::{PageRoom, Pages, written};
use super::{MAX_POSTS, MAX_QUARANTINED, MAX_QUARANTINED_BYTES, PostCount, PostPage, PostState, Problem, RepairOrder};
use crate::like::event::{MAX_ID_BYTES, check_post};
use crate::source::in_flight::InFlight;
use crate::store::{Depth, Listing, PageSize, Repair, Repaired, StoreError};
use crate::telemetry::Metric;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Query, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::stream;
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The largest entry of a quarantine: a body of the HTTP source, with what a broker says beside it.
const LARGEST_ENTRY_BYTES: usize = 17 << 20;

/// The most that reading a page of the quarantine takes: a store has what it reads and what it makes of it at once.
const LARGEST_PAGE_BYTES: usize = 2 * (MAX_QUARANTINED_BYTES + LARGEST_ENTRY_BYTES);

/// What is handed to a connection at once of a page that is there as a whole.
const PIECE_BYTES: usize = 64 << 10;

/// The largest request of a repair, which has a version in it.
const MAX_ORDER_BYTES: usize = 4 << 10;

/// How long it may take to come.
const ORDER_WITHIN: Duration = Duration::from_secs(10);

struct Face {
    store: Arc<dyn Repair>,
    pages: Pages,
}

/// The routes in the table of [`super`], answered by `store`. What their pages hold counts in `held`.
pub fn routes(store: Arc<dyn Repair>, held: &Arc<InFlight>) -> Router {
    let pages = Pages::new(Arc::clone(held), LARGEST_PAGE_BYTES);
    let copies = backup::routes(Arc::clone(&store));
    Router::new()
        .route("/v1/counts/{post}", get(count))
        .route("/v1/counts/{post}/repair", get(audit).post(repair))
        .route("/v1/posts", get(posts))
        .route("/v1/quarantine", get(quarantined))
        .layer(DefaultBodyLimit::max(MAX_ORDER_BYTES))
        .with_state(Arc::new(Face { store, pages }))
        .merge(copies)
}

/// The answer where there is nothing.
pub async fn unknown_path(uri: Uri) -> Response {
    let known = "/v1/events, /v1/counts/POST, /v1/posts, /v1/quarantine, /healthz, /readyz and /metrics";
    let told: String = uri.path().chars().take(100).collect();
    Refusal::new(StatusCode::NOT_FOUND, format!("there is no {told} here; there are {known}")).into_response()
}

/// The answer where there is something, for another method. Which ones, the header `Allow` says.
pub async fn wrong_method(method: Method) -> Response {
    let told = format!("{method} is not among the methods of this path; the header Allow has them");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, told).into_response()
}

#[derive(Deserialize)]
struct CountQuery {
    #[serde(default)]
    verify: bool,
}

#[derive(Deserialize)]
struct PostsQuery {
    #[serde(default)]
    listing: ListingName,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct QuarantineQuery {
    after: Option<String>,
    limit: Option<usize>,
    bytes: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListingName {
    #[default]
    Shards,
    Members,
}

/// A request that is not answered.
pub(super) struct Refusal(StatusCode, Problem);

impl Refusal {
    pub(super) fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self(status, Problem::new(sentence.into()))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let problem = Problem::from(error);
        // Asking again helps only after somebody has mended what is stored.
        let mend = !problem.unreadable.is_empty();
        Self(if mend { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::SERVICE_UNAVAILABLE }, problem)
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        let status = if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            rejection.status()
        } else {
            StatusCode::BAD_REQUEST
        };
        Self::new(status, rejection.body_text())
    }
}

/// How many entries a page may have: as asked, or as many as there may be.
fn limit(asked: Option<usize>, most: usize) -> Result<usize, Refusal> {
    match asked {
        None => Ok(most),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Refusal::new(StatusCode::BAD_REQUEST, format!("limit is a number from 1 to {most}"))),
    }
}

/// A post's id, which must be one that a post can have: a store would fail over another, or call it one without likes.
fn legal(post: String) -> Result<String, Refusal> {
    check_post(&post).map_err(|why| Refusal::new(StatusCode::BAD_REQUEST, why.to_string()))?;
    Ok(post)
}

/// Where a page begins: a post's id or an entry's, which follow the same rules.
fn after(id: Option<&str>) -> Result<Option<&str>, Refusal> {
    if let Some(why) = id.and_then(|id| check_post(id).err()) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("after: {}", why.problem)));
    }
    Ok(id)
}

/// Room for a page, or the answer that there is none.
async fn room(pages: &Pages, bytes: usize) -> Result<PageRoom, Response> {
    if let Some(room) = pages.room(bytes).await {
        return Ok(room);
    }
    Metric::RefusedRequests.add_labelled("why", "page", 1);
    let sentence = "too many pages are being read: ask again".to_owned();
    let mut answer = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, sentence).into_response();
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    Err(answer)
}

async fn count(
    State(face): State<Arc<Face>>,
    post: Result<Path<String>, PathRejection>,
    query: Result<Query<CountQuery>, QueryRejection>,
) -> Result<Json<PostCount>, Refusal> {
    let (Path(post), Query(query)) = (post?, query?);
    let post = legal(post)?;
    let depth = if query.verify { Depth::ShardsAndMembers } else { Depth::Shards };
    let tally = face.store.tally(&post, depth).await?;
    Ok(Json(PostCount::new(post, tally)))
}

async fn audit(
    State(face): State<Arc<Face>>,
    post: Result<Path<String>, PathRejection>,
) -> Result<Json<PostState>, Refusal> {
    let Path(post) = post?;
    let post = legal(post)?;
    let seen = face.store.audit(&post).await?;
    Ok(Json(PostState::new(post, seen)))
}

async fn repair(
    State(face): State<Arc<Face>>,
    post: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let Path(post) = post?;
    let post = legal(post)?;
    let order = tokio::time::timeout(ORDER_WITHIN, Json::<RepairOrder>::from_request(request, &())).await;
    let late = |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time".to_owned());
    let Json(order) = order.map_err(late)??;
    let seen = face.store.audit(&post).await?;
    if seen.version == order.version && face.store.repair(&post, &seen).await? == Repaired::Done {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Refusal::new(StatusCode::CONFLICT, "somebody else repaired this post first: read it again".to_owned()))
}

async fn posts(
    State(face): State<Arc<Face>>,
    query: Result<Query<PostsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query?;
    let listing = match query.listing {
        ListingName::Shards => Listing::Shards,
        ListingName::Members => Listing::Members,
    };
    let (after, limit) = (after(query.after.as_deref())?, limit(query.limit, MAX_POSTS)?);
    // The ids, and the same as JSON.
    let room = match room(&face.pages, 2 * limit * MAX_ID_BYTES).await {
        Ok(room) => room,
        Err(answer) => return Ok(answer),
    };
    let posts = face.store.posts(listing, after, limit).await?;
    Ok(whole(&PostPage { posts }, room))
}

/// A page that is small enough to be there at once. It keeps its room until it is sent.
fn whole(page: &PostPage, mut room: PageRoom) -> Response {
    let text = Bytes::from(serde_json::to_vec(page).unwrap_or_default());
    room.set(text.len());
    let pieces = stream::unfold((text, room), |(mut text, room)| async {
        let piece = text.split_to(text.len().min(PIECE_BYTES));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (text, room)))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
}

async fn quarantined(
    State(face): State<Arc<Face>>,
    query: Result<Query<QuarantineQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query?;
    let after = after(query.after.as_deref())?;
    let entries = limit(query.limit, MAX_QUARANTINED)?;
    let bytes = query.bytes.unwrap_or(MAX_QUARANTINED_BYTES).clamp(1, MAX_QUARANTINED_BYTES);
    let room = match room(&face.pages, 2 * (bytes + LARGEST_ENTRY_BYTES)).await {
        Ok(room) => room,
        Err(answer) => return Ok(answer),
    };
    let page = face.store.quarantined(after, PageSize { entries, bytes }).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], written(page, room)).into_response())
}
