//! `hotcount run`: the worker, and the HTTP face beside it.

use super::engine::{EngineArgs, summary, with_flags};
use super::output::line;
use super::url::Url;
use super::{Exit, StoreArgs};
use anyhow::Context;
use axum::Router;
use axum::routing::get;
use clap::Args;
use hotcount::engine::pipeline::{self, EngineError, Report};
use hotcount::engine::progress::{Counted, Progress};
use hotcount::http_api::server::{Limits, Server, connections_beside_the_store};
use hotcount::source::in_flight::InFlight;
use hotcount::{http_api, telemetry};
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exporter's own default.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

const AFTER_HELP: &str = "\
Events over HTTP into an embedded store, with nothing installed:
  hotcount run

Pub/Sub and Firestore, set up first:
  hotcount setup --source pubsub://PROJECT/likes --store firestore://PROJECT
  hotcount run --source pubsub://PROJECT/likes --store firestore://PROJECT --http 0.0.0.0:8080

SIGTERM or SIGINT drains: pulling stops, what is held is committed and acknowledged, and the log says when it ends at the
latest. A second signal ends it at once; what was not acknowledged is delivered again. /readyz on --http says what is wrong.

Exit codes: 0 drained · 2 cannot work, or stood still · 3 stopped with deliveries left to redelivery.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Run {
    /// The source: pubsub://PROJECT/SUBSCRIPTION, or http: for events posted to --http
    #[arg(long, env = "HOTCOUNT_SOURCE", default_value = "http:", value_name = "URL", hide_env_values = true)]
    source: Url,
    #[command(flatten)]
    store: StoreArgs,
    /// Where health, metrics and counts are served, and events taken when the source is http:
    #[arg(long, env = "HOTCOUNT_HTTP", default_value = "127.0.0.1:8080", value_name = "ADDR")]
    http: SocketAddr,
    /// Connections to --http at once, at most; fewer where the limit of open files leaves fewer. When there are as many, the
    /// one that has kept the worker waiting longest is closed for a new one
    #[arg(long, env = "HOTCOUNT_HTTP_CONNECTIONS", default_value_t = Limits::default().connections, value_name = "N")]
    http_connections: usize,
    #[command(flatten)]
    engine: EngineArgs,
    /// Print the closing report as one JSON object
    #[arg(long)]
    json: bool,
    /// Started by another hotcount: says where it listens on standard output, and drains when standard input ends
    #[arg(long, hide = true)]
    child: bool,
}

impl Run {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let metrics = telemetry::prometheus().context("the metrics recorder does not start")?;
        let config = self.engine.config();
        let held = config.held();
        let (source, events) = hotcount::connect::source_with_routes(self.source.typed(), &held).await?;
        let store = self.store.connect().await?;
        let progress = Arc::new(Progress::default());
        let shutdown = CancellationToken::new();
        let stopped = cancel_on_signal(&shutdown);
        let listener = TcpListener::bind(self.http)
            .await
            .with_context(|| format!("--http {} cannot be listened on; choose another address", self.http))?;
        let address = listener.local_addr()?;
        let of_the_worker = Arc::clone(&progress);
        let health = http_api::health(move || of_the_worker.not_ready());
        let routes = http_api::routes(store.clone(), &held)
            .merge(health)
            .merge(metrics_page(metrics.clone(), &held))
            .merge(events);
        let routes = routes.fallback(http_api::unknown_path).method_not_allowed_fallback(http_api::wrong_method);
        let server = Server::new(listener, routes, self.limits());
        tracing::info!("source {} · store {} · http://{address}", source.name(), self.store.store);
        if self.child {
            line(&json!({"http": format!("http://{address}")}).to_string())?;
        }
        let engine = pipeline::run_beside(
            held,
            source,
            Arc::clone(&store),
            config,
            shutdown.clone().cancelled_owned(),
            Arc::clone(&progress),
        );
        let closing = CancellationToken::new();
        let mut server = std::pin::pin!(server.run(closing.clone()));
        // The HTTP face lives as long as the engine, so that a drain can be watched.
        let report = tokio::select! {
            report = engine => report,
            () = &mut server => anyhow::bail!("the HTTP server ended"),
            never = stopped => match never {},
            failed = cancel_when_left(&shutdown), if self.child => match failed.context("--child needs a pipe as standard input")? {},
            never = upkeep(&metrics) => match never {},
        };
        if let Err(error @ EngineError::StandsStill(_)) = &report {
            // What stands still would hold up its own end as well.
            crate::cli::output::complain(&format!("error: {error}"));
            std::process::exit(Exit::Fatal.code().into());
        }
        // What was settled last is answered before the process ends.
        closing.cancel();
        let ends_by = report.as_ref().ok().and_then(|report| report.ends_by);
        let closed = async {
            server.await;
            store.close().await
        };
        match ends_by {
            // Whoever asked to stop was told when all of it ends. What was answered is durable, closed or not.
            Some(ends_by) => match tokio::time::timeout_at(ends_by.into(), closed).await {
                Ok(closed) => closed?,
                Err(_) => tracing::warn!("the store was not closed in time; nothing that was answered is lost"),
            },
            None => closed.await?,
        }
        self.conclude(&report.map_err(with_flags)?, &progress)
    }

    /// Prints the closing report.
    fn conclude(&self, report: &Report, progress: &Progress) -> anyhow::Result<Exit> {
        let counted = report.counted;
        if self.json {
            let result = Outcome { counted, unconfirmed_acks: report.unconfirmed };
            line(&serde_json::to_string(&result)?)?;
        } else {
            line(&summary(report, progress))?;
        }
        Ok(if counted.left == 0 { Exit::Done } else { Exit::LeftToRedelivery })
    }
}

/// The last line of `--json`. Other tools rely on the names.
#[derive(serde::Serialize)]
struct Outcome {
    #[serde(flatten)]
    counted: Counted,
    unconfirmed_acks: u64,
}

impl Run {
    /// As many connections as were asked for, and as the limit of open files leaves.
    fn limits(&self) -> Limits {
        let connections = connections_beside_the_store(self.http_connections);
        if connections < self.http_connections {
            tracing::info!(
                "at most {connections} connections, for the limit of open files (ulimit -n) leaves no more than half to them"
            );
        }
        Limits { connections, ..Limits::default() }
    }
}

/// Histograms keep every sample until somebody renders them or asks for this.
async fn upkeep(metrics: &telemetry::Page) -> Infallible {
    let mut tick = tokio::time::interval(UPKEEP_EVERY);
    loop {
        tick.tick().await;
        metrics.run_upkeep();
    }
}

/// Drains when standard input ends: whoever started this process is gone, whatever ended it.
async fn cancel_when_left(shutdown: &CancellationToken) -> std::io::Result<Infallible> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(stdin)?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    tracing::info!("whoever started this worker is gone: finishing what is under way");
    shutdown.cancel();
    std::future::pending().await
}

/// `/metrics`, for Prometheus.
fn metrics_page(page: telemetry::Page, held: &Arc<InFlight>) -> Router {
    let held = Arc::clone(held);
    let answer = move || async move {
        held.show();
        page.render()
    };
    Router::new().route("/metrics", get(answer))
}

/// The first SIGTERM or SIGINT drains; the second ends the process at once, and what it held is delivered again. From the
/// call on, not from the first poll: whoever sees that a worker listens may stop it.
pub(crate) fn cancel_on_signal(shutdown: &CancellationToken) -> impl Future<Output = Infallible> {
    let signals = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
    cancel_on(signals, shutdown.clone())
}

async fn cancel_on(signals: std::io::Result<(Signal, Signal)>, shutdown: CancellationToken) -> Infallible {
    let (mut term, mut int) = match signals {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!("signals cannot be watched, so a signal ends the process without a drain: {error}");
            std::future::pending().await
        }
    };
    loop {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        if shutdown.is_cancelled() {
            tracing::warn!("a second signal: stopping at once");
            std::process::exit(3);
        }
        tracing::info!("stopping: finishing what is under way");
        shutdown.cancel();
    }
}
