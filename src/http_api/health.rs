//! Whether the process lives, and whether it is ready.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// `GET /healthz` answers 200 while the process does. `GET /readyz` answers 200, or 503 with what `not_ready` says, a reason a
/// line: for a worker that is [`Progress::not_ready`](crate::engine::progress::Progress::not_ready).
pub fn health(not_ready: impl Fn() -> Vec<String> + Clone + Send + Sync + 'static) -> Router {
    let ready = move || async move {
        let reasons = not_ready();
        if reasons.is_empty() {
            return (StatusCode::OK, "ready\n".to_owned());
        }
        (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
    };
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
}
