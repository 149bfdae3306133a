//! A sender that does what no client library would: half a head, a body that stops, an answer that is not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// No answer takes as long, unless there is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(240);

/// One connection.
pub(crate) struct Peer(TcpStream);

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(crate) fn says(&self, what: &str) -> bool {
        self.body.contains(what)
    }
}

impl Peer {
    /// Connects to `http://ADDR`.
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        stream.set_write_timeout(Some(ANSWER_WITHIN)).unwrap();
        Self(stream)
    }

    /// Sends what may not be taken: whoever is closed meanwhile need not know.
    pub(crate) fn sends(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends as much as is taken while it is taken; whoever waits a second for a piece gives up.
    pub(crate) fn sends_for_a_second(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        self.sends(bytes);
        self.0.set_write_timeout(Some(ANSWER_WITHIN)).unwrap();
    }

    /// How many bytes come until the connection ends.
    pub(crate) fn read_to_end(&mut self) -> usize {
        std::io::copy(&mut self.0, &mut std::io::sink()).unwrap() as usize
    }

    /// Sends the beginning of a request whose body has so many bytes.
    pub(crate) fn begins(&mut self, bytes: usize) {
        self.sends(head(&format!("Content-Length: {bytes}\r\n")));
    }

    /// Nothing more comes from this side.
    pub(crate) fn ends(&mut self) {
        self.0.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Whether something has come back, or the connection has ended.
    pub(crate) fn has_answer(&self) -> bool {
        self.0.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let has = self.0.peek(&mut [0]).is_ok();
        self.0.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        has
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> Answer {
        self.answer_if_any().expect("an answer, and not the end of the connection")
    }

    /// The next answer, unless the connection ends.
    pub(crate) fn answer_if_any(&mut self) -> Option<Answer> {
        let mut read = Vec::new();
        let end = loop {
            if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            read.push(self.byte()?);
        };
        let head = String::from_utf8(read[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if head.contains("transfer-encoding: chunked") {
            return Some(Answer { status, head, body: self.pieces()? });
        }
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some(Answer { status, head, body: String::from_utf8(body).unwrap() })
    }

    /// A body whose pieces say how long they are.
    fn pieces(&mut self) -> Option<String> {
        let mut body = Vec::new();
        loop {
            let mut size = String::new();
            while !size.ends_with("\r\n") {
                size.push(char::from(self.byte()?));
            }
            let mut piece = vec![0; usize::from_str_radix(size.trim_end(), 16).unwrap() + 2];
            self.0.read_exact(&mut piece).ok()?;
            if piece.len() == 2 {
                return Some(String::from_utf8(body).unwrap());
            }
            body.extend_from_slice(&piece[..piece.len() - 2]);
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(1) => Some(byte[0]),
            Ok(_) => None,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer within {ANSWER_WITHIN:?}: {error}"),
        }
    }
}

/// The head of `POST /v1/events` with these lines.
pub(crate) fn head(lines: &str) -> String {
    format!("POST /v1/events HTTP/1.1\r\nHost: worker\r\n{lines}\r\n")
}

/// One request on a connection of its own.
pub(crate) fn ask(address: &str, request: impl AsRef<[u8]>) -> Answer {
    let mut peer = Peer::connect(address);
    peer.sends(request);
    peer.answer()
}

/// `POST /v1/events` with these lines in its head.
pub(crate) fn post(address: &str, lines: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let mut request = head(&format!("{lines}Content-Length: {}\r\n", body.len())).into_bytes();
    request.extend_from_slice(body);
    ask(address, request)
}

/// `GET path`.
pub(crate) fn get(address: &str, path: &str) -> Answer {
    ask(address, format!("GET {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n"))
}

/// A like of a user on the post `viral`.
pub(crate) fn like(user: usize) -> String {
    format!(
        r#"{{"eventId":"e{user}","type":"like.added","postId":"viral","userId":"u{user}","occurredAt":"2026-01-01T00:00:00Z"}}"#
    )
}

/// How many likes `viral` has.
pub(crate) fn count(address: &str) -> i64 {
    let answer = get(address, "/v1/counts/viral?verify=true");
    let row = answer.json();
    assert_eq!(row["drift"], 0, "{answer:?}");
    row["count"].as_i64().unwrap()
}

/// The value of a metric, with its label.
pub(crate) fn metric(address: &str, name: &str) -> f64 {
    let page = ask(address, "GET /metrics HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n").body;
    let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).rsplit(' ').next().unwrap().parse().unwrap()
}
