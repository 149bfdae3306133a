use super::*;
use axum::routing::get;
use std::convert::Infallible;
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn small() -> Limits {
    let short = Duration::from_millis(50);
    Limits { connections: 8, head: short, body: short, answer: short, stall: short, rest: short }
}

/// A server with these limits, and its address.
async fn serve(routes: Router, limits: Limits) -> (std::net::SocketAddr, CancellationToken, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (closing, mut task) = (CancellationToken::new(), JoinSet::new());
    task.spawn(Server::new(listener, routes, limits).run(closing.clone()));
    (address, closing, task)
}

async fn connect(address: std::net::SocketAddr, sends: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("somebody listens");
    stream.write_all(sends.as_bytes()).await.expect("room in a socket");
    stream
}

/// All that comes until the connection ends, however it ends.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    match stream.read_to_end(&mut read).await {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8_lossy(&read).into_owned(),
    }
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn whoever_takes_too_long_is_closed_whatever_it_does() {
    let endless = || async {
        let piece = || Ok::<_, Infallible>(vec![b'x'; 1 << 20]);
        axum::body::Body::from_stream(futures::stream::repeat_with(piece))
    };
    let echo = |body: axum::body::Bytes| async move { body };
    let routes =
        Router::new().route("/", get(|| async { "here" })).route("/endless", get(endless)).route("/echo", get(echo));
    let (address, closing, mut task) = serve(routes, small()).await;
    for (sends, comes) in [
        ("", ""),
        ("GET / HTTP/1.1\r\nHo", ""),
        (REQUEST, "here"),
        ("GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", ""),
        ("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n", "xxx"),
    ] {
        let mut stream = connect(address, sends).await;
        let read = read_to_end(&mut stream).await;
        assert!(read.contains(comes) && (comes.is_empty() == read.is_empty()), "{sends:?}: {} bytes", read.len());
    }
    let mut takes_nothing = connect(address, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    closing.cancel();
    assert!(task.join_next().await.is_some_and(|ended| ended.is_ok()), "it ends although a reader takes nothing");
    read_to_end(&mut takes_nothing).await;
}

#[tokio::test]
async fn where_all_wait_for_the_worker_a_newcomer_is_told_to_come_again_and_sees_health() {
    let (arrives, mut arrivals) = tokio::sync::mpsc::channel(2);
    let hold = move || async move {
        let _ = arrives.send(()).await;
        std::future::pending::<()>().await;
    };
    let routes = Router::new().route("/v1/held", get(hold)).route("/healthz", get(|| async { "ok" }));
    let limits = Limits { connections: 2, ..Limits::default() };
    let (address, closing, mut task) = serve(routes, limits).await;
    let request = "GET /v1/held HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(connect(address, request).await);
        arrivals.recv().await.expect("it arrives");
    }
    let mut health = connect(address, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(read_to_end(&mut health).await.ends_with("ok"));
    let mut newcomer = connect(address, request).await;
    let answer = read_to_end(&mut newcomer).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    closing.cancel();
    assert!(task.join_next().await.is_some());
}

#[tokio::test]
async fn an_answer_under_way_is_given_before_the_server_ends() {
    let (arrives, mut arrivals) = tokio::sync::mpsc::channel(1);
    let go = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&go);
    let late = move || async move {
        let _ = arrives.send(()).await;
        waits.notified().await;
        "late"
    };
    let (address, closing, mut task) = serve(Router::new().route("/", get(late)), Limits::default()).await;
    let mut resting = connect(address, "").await;
    let mut asked = connect(address, REQUEST).await;
    arrivals.recv().await.expect("it arrives");
    closing.cancel();
    read_to_end(&mut resting).await;
    go.notify_one();
    assert!(read_to_end(&mut asked).await.ends_with("late"));
    assert!(task.join_next().await.is_some());
}
