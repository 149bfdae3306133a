//! A connection's requests, seen by whoever watches over deadlines.

use super::peers::Peer;
use crate::telemetry::Metric;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Json, Router};
use futures::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The routes, for one connection.
pub(super) struct Service {
    routes: TowerToHyperService<Router>,
    peer: Arc<Peer>,
    /// Whether the connection was let in for health and metrics alone.
    spare: bool,
}

impl Service {
    pub(super) fn new(routes: Router, peer: Arc<Peer>, spare: bool) -> Self {
        Self { routes: TowerToHyperService::new(routes), peer, spare }
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<ToPeer>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let peer = Arc::clone(&self.peer);
        peer.waits();
        if self.spare && request.uri().path().starts_with("/v1/") {
            Metric::RefusedRequests.add_labelled("why", "connections", 1);
            let answer = come_again().map(|body| ToPeer { body, peer });
            return Box::pin(std::future::ready(Ok(answer)));
        }
        let request = request.map(|body| Body::new(FromPeer { body, peer: Arc::clone(&peer) }));
        let answer = self.routes.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            peer.is_answered();
            Ok(answer.map(|body| ToPeer { body, peer }))
        })
    }
}

fn come_again() -> Response<Body> {
    let body =
        Json(json!({"error": "as many connections as there may be wait for this worker", "do": "send the same again"}));
    let mut answer = (StatusCode::SERVICE_UNAVAILABLE, body).into_response();
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// A request's body. While it is asked for and does not come, the worker waits for its sender.
struct FromPeer {
    body: Incoming,
    peer: Arc<Peer>,
}

impl HttpBody for FromPeer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match frame {
            Poll::Ready(_) => self.peer.waits(),
            Poll::Pending => self.peer.is_to_send(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body. When it is dropped, it has been handed over.
pub(super) struct ToPeer {
    body: Body,
    peer: Arc<Peer>,
}

impl HttpBody for ToPeer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(cx)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ToPeer {
    fn drop(&mut self) {
        self.peer.rests();
    }
}
