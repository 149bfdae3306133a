//! A worker inside an axum application, with the application's shutdown, metrics and logs.
//!
//! `cargo run --example embed -- PROJECT SUBSCRIPTION 127.0.0.1:8080`; `PUBSUB_EMULATOR_HOST` and `FIRESTORE_EMULATOR_HOST`
//! are honoured.

use axum::routing::get;
use hotcount::source::pubsub::{Options, PubSub};
use hotcount::store::firestore::{Address, Firestore};
use hotcount::{Config, Progress, Store, telemetry};
use std::sync::Arc;

/// The application's own shutdown: here Ctrl-C.
async fn asked_to_stop() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::error!("signals cannot be watched: {error}");
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [project, subscription, address] = &arguments[..] else { anyhow::bail!("PROJECT SUBSCRIPTION ADDR") };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter("embed=info,hotcount=info")
        .init();
    let metrics = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
    telemetry::describe();

    let source = Arc::new(PubSub::open(Options::new(project, subscription).streams(4)).await?);
    let store = Arc::new(Firestore::open(Address::new(project)).await?);
    let progress = Arc::new(Progress::default());
    let worker = hotcount::run(source, store.clone(), Config::default(), asked_to_stop(), Arc::clone(&progress));

    let health = hotcount::http_api::health(move || progress.not_ready());
    let app = health.route("/metrics", get(move || async move { metrics.render() }));
    let listener = tokio::net::TcpListener::bind(address).await?;
    tracing::info!("http://{}", listener.local_addr()?);
    let server = axum::serve(listener, app).with_graceful_shutdown(asked_to_stop());
    let (report, served) = tokio::join!(worker, server);
    served?;
    store.close().await?;
    println!("{:?}", report?.counted);
    Ok(())
}
