//! The HTTP server of a worker: who is let in, who is closed, and when.
//!
//! It asks nobody who they are, so it holds out against everybody: there is a limit of connections, and when it is reached
//! the one that has kept the worker waiting longest goes first. Heads, bodies, answers and rests have their own deadlines.
//! Whoever waits for the worker is never closed. Where all of them do, a few more connections are let in and told to come
//! again, so that health and metrics can be read whatever happens.
//!
//! This module and the pipeline are the only ones that spawn tasks; both join them.

mod descriptors;
mod io;
mod peers;
mod service;

pub use descriptors::connections_beside_the_store;

use crate::telemetry::Metric;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use io::Watched;
use peers::{Admitted, Peers, Seat};
use service::Service;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// What is read from a connection at once, and the longest head. It bounds what a connection holds beside its request: this
/// much read and not taken, and as much of an answer written and not sent.
pub const BUFFER_BYTES: usize = 16 << 10;

/// How often overdue connections are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long answers that are under way may take once the server closes.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// The pause after a connection could not be accepted: what was missing is not there again at once.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(50);

/// How often the log says that connections cannot be accepted.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// How many connections there may be, and how long each may keep the worker waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// From the first byte of a head to its end, and from a connection's beginning to its first head.
    pub head: Duration,
    /// Between two pieces of a body. A route may have less patience, and a sentence for it.
    pub body: Duration,
    /// For an answer as a whole, from its head to its end.
    pub answer: Duration,
    /// While nothing of an answer can be written, because its reader takes nothing.
    pub stall: Duration,
    /// Between two requests.
    pub rest: Duration,
}

impl Default for Limits {
    /// 1,024 connections. 10 s for what a sender does in one go; a minute for an answer, which has tens of megabytes at
    /// most; and 620 s between requests, because load balancers keep connections for up to ten minutes and are surprised
    /// when the other side closes them first.
    fn default() -> Self {
        Self {
            connections: 1_024,
            head: Duration::from_secs(10),
            body: Duration::from_secs(15),
            answer: Duration::from_secs(60),
            stall: Duration::from_secs(10),
            rest: Duration::from_secs(620),
        }
    }
}

/// A server that listens already.
pub struct Server {
    listener: TcpListener,
    routes: Router,
    peers: Arc<Peers>,
}

impl Server {
    /// Serves `routes` to whoever connects to `listener`.
    #[must_use]
    pub fn new(listener: TcpListener, routes: Router, limits: Limits) -> Self {
        Self { listener, routes, peers: Arc::new(Peers::new(limits)) }
    }

    /// Serves until `closing` is cancelled. Then nobody is let in any more, answers that are under way have two seconds, and
    /// every task has ended when this returns.
    pub async fn run(self, closing: CancellationToken) {
        let Self { listener, routes, peers } = self;
        let mut tasks = JoinSet::new();
        let mut trouble = Trouble::default();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled() => break,
                Some(ended) = tasks.join_next() => say_if_early(ended),
                _ = look.tick() => peers.close_overdue(Instant::now()),
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        trouble.is_over();
                        if let Some(admitted) = Peers::admit(&peers, Instant::now()) {
                            let Admitted { peer, number, seat } = admitted;
                            let service = Service::new(routes.clone(), Arc::clone(&peer), seat == Seat::Spare);
                            let connection = serve(stream, service, peer.clone(), closing.clone());
                            let open = Peers::open(&peers, number);
                            let task = tasks.spawn(async move {
                                let _open = open;
                                connection.await;
                            });
                            peer.runs_as(task);
                        }
                    }
                    Err(error) => {
                        trouble.say(&error, peers.number());
                        if descriptors::are_missing(&error) {
                            peers.close_longest("descriptors");
                        }
                        tokio::time::sleep(PAUSE_AFTER_REFUSAL).await;
                    }
                },
            }
            Metric::HttpConnections.set(peers.number());
        }
        drop(listener);
        let all = async { while tasks.join_next().await.is_some() {} };
        // Whoever does not take its answer in time is closed.
        let _ = tokio::time::timeout(CLOSE_WITHIN, all).await;
        tasks.shutdown().await;
    }
}

/// One connection, until its peer leaves, it is closed, or the server is.
async fn serve(stream: TcpStream, service: Service, peer: Arc<peers::Peer>, closing: CancellationToken) {
    // An answer is small and whole: it is not to wait for more.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Watched::new(stream, peer));
    let connection =
        http1::Builder::new().max_buf_size(BUFFER_BYTES).header_read_timeout(None).serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

fn say_if_early(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a connection's task ended early; this is a bug: {error}");
    }
}

/// Connections that cannot be accepted, for the log: once a minute, and when it is over.
#[derive(Default)]
struct Trouble {
    said: Option<Instant>,
    lasts: bool,
}

impl Trouble {
    fn say(&mut self, error: &std::io::Error, open: usize) {
        self.lasts = true;
        let now = Instant::now();
        if self.said.is_some_and(|said| now.duration_since(said) < LOG_EVERY) {
            return;
        }
        self.said = Some(now);
        if descriptors::are_missing(error) {
            tracing::error!(
                open,
                "no connection can be accepted, for no file descriptor is left ({error}): raise the limit (ulimit -n) or \
                 lower --http-connections; connections that wait are closed meanwhile"
            );
        } else {
            tracing::warn!(open, "a connection could not be accepted: {error}");
        }
    }

    fn is_over(&mut self) {
        if std::mem::take(&mut self.lasts) {
            tracing::info!("connections are accepted again");
        }
    }
}

#[cfg(test)]
mod tests;
