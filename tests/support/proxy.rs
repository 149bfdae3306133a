//! A gRPC-aware proxy between a real client and an emulator. A rule sees every call and decides what becomes of it, so
//! that an answer is lost on the wire, where it is lost in production, and not in a double of the client.
//!
//! A connection is one task: when it is frozen nothing of it moves any more and its sockets stay open, as behind a
//! firewall that has forgotten it.

mod call;

pub use call::{Call, Status, Verdict};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, Uri};
use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Calls whose requests go on while answers come.
const STREAMING: [&str; 3] = ["StreamingPull", "Listen", "Write"];

/// What both sides may send before they are told that it was read, on one connection.
const WINDOW_BYTES: u32 = 16 << 20;

/// Only a call that never comes takes so long.
const CALLED_WITHIN: Duration = Duration::from_secs(240);

type Failure = Box<dyn std::error::Error + Send + Sync>;

type Rule = dyn Fn(&Call<'_>) -> Verdict + Send + Sync;

struct Shared {
    upstream: String,
    rule: Box<Rule>,
    calls: Mutex<BTreeMap<String, usize>>,
    called: Notify,
    fate: Mutex<Fate>,
}

impl Shared {
    fn verdict(&self, method: &str, message: &[u8]) -> Verdict {
        let number = {
            let mut calls = self.calls.lock().unwrap();
            let number = calls.entry(method.to_owned()).or_default();
            *number += 1;
            *number - 1
        };
        let verdict = (self.rule)(&Call { method, number, message });
        self.called.notify_waiters();
        verdict
    }
}

/// What happens to the connections that are open now.
#[derive(Clone, Default)]
struct Fate {
    freeze: CancellationToken,
    cut: CancellationToken,
}

/// The proxy. It ends with its connections when it is dropped.
pub struct Proxy {
    host: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Listens on a free port for clients of `upstream`, a `host:port`.
    pub async fn start(upstream: &str, rule: impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            rule: Box::new(rule),
            calls: Mutex::default(),
            called: Notify::new(),
            fate: Mutex::default(),
        });
        let task = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Self { host, shared, task }
    }

    /// Its own `host:port`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// How many calls of `method` came so far.
    pub fn calls(&self, method: &str) -> usize {
        self.shared.calls.lock().unwrap().get(method).copied().unwrap_or_default()
    }

    /// Returns when `many` calls of `method` have come.
    pub async fn called(&self, method: &str, many: usize) {
        let called = tokio::time::timeout(CALLED_WITHIN, self.counted(method, many)).await;
        called.unwrap_or_else(|_| panic!("{} of {many} calls of {method} came", self.calls(method)));
    }

    async fn counted(&self, method: &str, many: usize) {
        loop {
            let called = self.shared.called.notified();
            if self.calls(method) >= many {
                return;
            }
            called.await;
        }
    }

    /// From now on nothing moves on the connections that are open, and nobody is told. New ones work.
    pub fn freeze(&self) {
        let mut fate = self.shared.fate.lock().unwrap();
        std::mem::take(&mut fate.freeze).cancel();
    }

    /// Closes the connections that are open. New ones work.
    pub fn cut(&self) {
        let mut fate = self.shared.fate.lock().unwrap();
        std::mem::take(&mut fate.cut).cancel();
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else { continue };
                let fate = shared.fate.lock().unwrap().clone();
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let mut serving = std::pin::pin!(serve(socket, shared));
                    tokio::select! {
                        biased;
                        () = fate.cut.cancelled() => {}
                        () = fate.freeze.cancelled() => fate.cut.cancelled().await,
                        // A connection that breaks is the client's to notice.
                        _ = &mut serving => {}
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One client's connection, and one to the server for it.
async fn serve(socket: TcpStream, shared: Arc<Shared>) -> Result<(), Failure> {
    socket.set_nodelay(true)?;
    let mut start = [0; 4];
    while socket.peek(&mut start).await? < start.len() {
        socket.readable().await?;
    }
    match &start == b"PRI " {
        true => serve_grpc(socket, shared).await,
        false => serve_http(socket, shared).await,
    }
}

/// Administrators of Pub/Sub speak HTTP/1: their connection passes whole, or is refused, or waits for ever, or breaks.
async fn serve_http(mut socket: TcpStream, shared: Arc<Shared>) -> Result<(), Failure> {
    match shared.verdict("HTTP", &[]) {
        Verdict::Pass => {
            let mut server = TcpStream::connect(&shared.upstream).await?;
            tokio::io::copy_bidirectional(&mut socket, &mut server).await?;
            Ok(())
        }
        Verdict::Refuse(status) => {
            let mut asked = [0; 4_096];
            while socket.read(&mut asked).await? > 0 {
                socket.write_all(status.http().as_bytes()).await?;
            }
            Ok(())
        }
        Verdict::HoldRequest | Verdict::HoldAnswer => pending().await,
        _ => Ok(()),
    }
}

async fn serve_grpc(socket: TcpStream, shared: Arc<Shared>) -> Result<(), Failure> {
    let mut client = h2::server::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(socket)
        .await?;
    let socket = TcpStream::connect(&shared.upstream).await?;
    socket.set_nodelay(true)?;
    let (server, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(socket)
        .await?;
    let mut connection = std::pin::pin!(connection);
    let mut calls = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = client.accept() => match accepted {
                Some(accepted) => {
                    let (request, respond) = accepted?;
                    calls.push(pass(Arc::clone(&shared), server.clone(), request, respond));
                }
                None => return Ok(()),
            },
            Some(broken) = calls.next() => if broken {
                return Ok(());
            },
            ended = &mut connection => return Ok(ended?),
        }
    }
}

/// One call. Answers whether the connection breaks with it.
async fn pass(
    shared: Arc<Shared>,
    server: SendRequest<Bytes>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> bool {
    let (parts, mut body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let method = path.rsplit('/').next().unwrap_or_default();
    let streaming = STREAMING.contains(&method);
    let sent = match streaming {
        true => Bytes::new(),
        false => match whole(&mut body).await {
            Ok(data) => data,
            Err(_) => return false,
        },
    };
    // The first five bytes are a flag and the length of the message.
    let verdict = shared.verdict(method, sent.get(5..).unwrap_or_default());
    let uri = format!("http://{}{path}", shared.upstream).parse::<Uri>().unwrap();
    let mut forwarded = Request::new(());
    *forwarded.uri_mut() = uri;
    *forwarded.method_mut() = parts.method;
    *forwarded.headers_mut() = parts.headers;
    let requests = if streaming { Requests::Stream(body) } else { Requests::One(sent) };
    match verdict {
        Verdict::Pass => relay(server, forwarded, requests, respond).await,
        Verdict::Delay(time) => {
            tokio::time::sleep(time).await;
            relay(server, forwarded, requests, respond).await;
        }
        Verdict::Refuse(status) => refuse(&mut respond, &status),
        Verdict::Lose(status) => {
            if answer(server, forwarded, requests).await.is_ok() {
                refuse(&mut respond, &status);
            }
        }
        Verdict::HoldRequest => given_up(&mut respond).await,
        Verdict::HoldAnswer => {
            let _ = answer(server, forwarded, requests).await;
            given_up(&mut respond).await;
        }
        Verdict::Break => return true,
        Verdict::BreakAfter => {
            let _ = answer(server, forwarded, requests).await;
            return true;
        }
    }
    false
}

enum Requests {
    One(Bytes),
    Stream(RecvStream),
}

impl Requests {
    /// Sends all of them on.
    async fn send(self, mut to: SendStream<Bytes>) -> Result<(), Failure> {
        match self {
            Self::One(data) => to.send_data(data, true)?,
            Self::Stream(mut body) => {
                let relayed = pour(&mut body, &mut to).await;
                match relayed {
                    Ok(()) => to.send_data(Bytes::new(), true)?,
                    Err(_) => to.send_reset(Reason::CANCEL),
                }
            }
        }
        Ok(())
    }
}

/// Sends the call on and its answer back, as it comes.
async fn relay(
    server: SendRequest<Bytes>,
    forwarded: Request<()>,
    requests: Requests,
    mut respond: SendResponse<Bytes>,
) {
    let answered = async {
        let (response, to) = server.ready().await?.send_request(forwarded, false)?;
        let mut sending = std::pin::pin!(requests.send(to));
        let mut receiving = std::pin::pin!(async {
            let (parts, mut body) = response.await?.into_parts();
            let ended = body.is_end_stream();
            let mut to = respond.send_response(Response::from_parts(parts, ()), ended)?;
            if ended {
                return Ok(());
            }
            pour(&mut body, &mut to).await?;
            let trailers = body.trailers().await?.unwrap_or_default();
            Ok::<(), Failure>(to.send_trailers(trailers)?)
        });
        let mut sent = false;
        loop {
            tokio::select! {
                result = &mut receiving => return result,
                result = &mut sending, if !sent => {
                    result?;
                    sent = true;
                }
            }
        }
    };
    if answered.await.is_err() {
        respond.send_reset(Reason::INTERNAL_ERROR);
    }
}

/// Sends the call on and reads its whole answer.
async fn answer(server: SendRequest<Bytes>, forwarded: Request<()>, requests: Requests) -> Result<(), Failure> {
    let (response, to) = server.ready().await?.send_request(forwarded, false)?;
    requests.send(to).await?;
    whole(&mut response.await?.into_body()).await?;
    Ok(())
}

fn refuse(respond: &mut SendResponse<Bytes>, status: &Status) {
    let mut response = Response::new(());
    *response.headers_mut() = status.headers();
    // A client that has gone needs no answer.
    let _ = respond.send_response(response, true);
}

async fn given_up(respond: &mut SendResponse<Bytes>) {
    if poll_fn(|cx| respond.poll_reset(cx)).await.is_err() {
        pending::<()>().await;
    }
}

/// Sends on what comes, until that ends or nobody wants it any more.
async fn pour(from: &mut RecvStream, to: &mut SendStream<Bytes>) -> Result<(), Failure> {
    loop {
        let data = tokio::select! {
            data = from.data() => data,
            unwanted = poll_fn(|cx| to.poll_reset(cx)) => return Err(unwanted?.to_string().into()),
        };
        let Some(data) = data else { return Ok(()) };
        let data = data?;
        from.flow_control().release_capacity(data.len())?;
        to.send_data(data, false)?;
    }
}

async fn whole(body: &mut RecvStream) -> Result<Bytes, Failure> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    body.trailers().await?;
    Ok(all.into())
}
