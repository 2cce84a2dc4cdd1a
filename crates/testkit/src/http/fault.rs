//! Proxy in front of an HTTP server that fails on request, in the same way each time.
//!
//! Each [`Rule`] counts the requests that match it and acts on some of them. The first rule that
//! acts on a request decides; all other requests pass unchanged.
//!
//! ```no_run
//! use xb_testkit::fault::{Action, Proxy, Rule};
//!
//! let bucket = xb_testkit::s3::bucket();
//! // The second put of a data object gets "slow down" three times in a row.
//! let rule = Rule::new("PUT", "/000000", Action::answer(503)).skip(1).times(3);
//! let proxy = Proxy::start(bucket.address(), vec![rule]);
//! let endpoint = proxy.endpoint();
//! # drop(endpoint);
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::http::reply::Reply;
use crate::http::{Head, copy_body, read_body};
use crate::stores::s3::sign::date;

/// Time without a byte after which a server counts as dead.
const UPSTREAM_LIMIT: Duration = Duration::from_secs(120);

/// Action on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The body is read, the server never sees the request, and this status is returned.
    Answer {
        /// HTTP status.
        status: u16,
        /// Seconds in the `Retry-After` header, if it is sent.
        retry_after: Option<u32>,
    },
    /// As `Answer`, with a given S3 error code.
    Refuse {
        /// HTTP status.
        status: u16,
        /// Text of the `Code` element.
        code: &'static str,
    },
    /// As `Answer`, with a response that the test makes up.
    Reply(Reply),
    /// The body is read at this many bytes per second, then the request proceeds as usual.
    Slow(u64),
    /// The connection is reset after this many bytes of the request's body were passed on.
    CutRequest(u64),
    /// The connection ends after this many bytes of the response's body were passed on.
    CutAnswer(u64),
    /// The server handles the request, but its response is dropped with the connection.
    LoseAnswer,
    /// The first byte of the response's body is changed.
    Alter,
    /// Nothing is passed on or returned until [`Proxy::release`], then the connection ends.
    Stall,
    /// The whole request is read, counted by [`Proxy::held`], and passed on at [`Proxy::release`]:
    /// a request that was long on its way.
    Hold,
    /// The request is passed on; the `Date` of its response is this many seconds ahead.
    Ahead(u64),
}

impl Action {
    /// Returns a plain error status, as a store in trouble sends it.
    #[must_use]
    pub fn answer(status: u16) -> Self {
        Self::Answer { status, retry_after: None }
    }
}

/// Match condition and action for requests.
#[derive(Debug, Clone)]
pub struct Rule {
    method: String,
    part: String,
    /// Header that a matching request has, in lower case; empty: any request.
    header: &'static str,
    skip: u64,
    times: u64,
    every: u64,
    action: Action,
    seen: u64,
}

impl Rule {
    /// Matches all requests of this method (empty: any) whose path with its query contains `part`.
    #[must_use]
    pub fn new(method: &str, part: &str, action: Action) -> Self {
        let (method, part) = (method.to_owned(), part.to_owned());
        Self { method, part, header: "", skip: 0, times: u64::MAX, every: 1, action, seen: 0 }
    }

    /// Matches only requests with this header, given in lower case.
    #[must_use]
    pub fn with_header(mut self, header: &'static str) -> Self {
        self.header = header;
        self
    }

    /// Lets the first `n` matching requests pass.
    #[must_use]
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Acts on only `n` matching requests.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Acts only on every `n`-th matching request, starting with the first.
    #[must_use]
    pub fn every(mut self, n: u64) -> Self {
        self.every = n;
        self
    }

    fn fits(&self, method: &str, path: &str) -> bool {
        (self.method.is_empty() || self.method == method) && path.contains(&self.part)
    }

    /// Counts a request and returns the action if the rule applies to it.
    fn count(&mut self, request: &Head) -> Option<Action> {
        let has_header = self.header.is_empty() || request.header(self.header).is_some();
        if !has_header || !self.fits(request.word(0), request.word(1)) {
            return None;
        }
        self.seen += 1;
        let nth = self.seen - 1;
        let counts =
            nth >= self.skip && nth - self.skip < self.times && nth.is_multiple_of(self.every);
        counts.then(|| self.action.clone())
    }
}

/// Request that arrived at the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// HTTP method.
    pub method: String,
    /// Path with the query.
    pub path: String,
    /// Action on the request; `None` if it was passed on.
    pub action: Option<Action>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    seen: Vec<Seen>,
    /// Both ends of every open connection, to be closed at the end.
    open: BTreeMap<u64, [TcpStream; 2]>,
    released: bool,
    /// Number of made-up responses so far.
    replies: u64,
    held: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    bell: Condvar,
    ended: AtomicBool,
    /// Whether to translate headers from Google's names.
    google: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Running proxy; dropping it ends all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy on a free loopback port in front of `upstream` (`HOST:PORT`).
    ///
    /// # Panics
    /// No port is available.
    #[must_use]
    pub fn start(upstream: &str, rules: Vec<Rule>) -> Self {
        Self::run("127.0.0.1:0", upstream, rules, false)
    }

    /// Starts a proxy at `address`, for a server that is down for a while.
    ///
    /// # Panics
    /// The port is in use.
    #[must_use]
    pub fn start_at(address: &str, upstream: &str, rules: Vec<Rule>) -> Self {
        Self::run(address, upstream, rules, false)
    }

    /// Starts a substitute for Google Cloud Storage: its XML interface is that of S3 with different
    /// header names. The bucket behind it must accept anonymous requests
    /// ([`crate::stores::s3::open_bucket`]). It tests the requests on the wire, not Google's authorization.
    ///
    /// # Panics
    /// No port is available.
    #[must_use]
    pub fn google(upstream: &str, rules: Vec<Rule>) -> Self {
        Self::run("127.0.0.1:0", upstream, rules, true)
    }

    fn run(address: &str, upstream: &str, rules: Vec<Rule>, google: bool) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("address");
        let shared = Arc::new(Shared { google, ..Shared::default() });
        shared.lock().rules = rules;
        let (ours, upstream) = (Arc::clone(&shared), upstream.to_owned());
        thread::spawn(move || {
            let mut connections = 0;
            for client in listener.incoming() {
                if ours.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let (shared, upstream) = (Arc::clone(&ours), upstream.clone());
                connections += 1;
                thread::spawn(move || {
                    // Broken connections are expected in this proxy.
                    let _ = connect(&shared, connections, client, &upstream);
                });
            }
        });
        Self { address, shared }
    }

    /// Returns `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests so far, in order of arrival.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// Counts the requests of this method (empty: any) whose path contains `part`.
    #[must_use]
    pub fn count(&self, method: &str, part: &str) -> usize {
        let wanted = Rule::new(method, part, Action::Stall);
        self.shared.lock().seen.iter().filter(|s| wanted.fits(&s.method, &s.path)).count()
    }

    /// Replaces the rules; the counts restart at 0.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.shared.lock().rules = rules;
    }

    /// Counts the requests that were held so far.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.lock().held
    }

    /// Ends the stalled connections, and from now on also those that would stall. Passes on the
    /// requests that were held; from now on, none is.
    pub fn release(&self) {
        self.shared.lock().released = true;
        self.shared.bell.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.release();
        for stream in self.shared.lock().open.values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the accepting thread so that it sees the end.
        let _ = TcpStream::connect(self.address);
    }
}

/// Forwards a client's connection and closes both ends when it is over.
fn connect(shared: &Shared, id: u64, client: TcpStream, upstream: &str) -> io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    server.set_read_timeout(Some(UPSTREAM_LIMIT))?;
    shared.lock().open.insert(id, [client.try_clone()?, server.try_clone()?]);
    let served = serve(shared, &client, &server);
    for end in shared.lock().open.remove(&id).iter().flatten() {
        let _ = end.shutdown(Shutdown::Both);
    }
    served
}

/// Serves one client connection, request by request.
fn serve(shared: &Shared, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    let (mut to_client, mut to_server) = (client, server);
    let (mut from_client, mut from_server) = (BufReader::new(client), BufReader::new(server));

    while let Some(mut request) = Head::read(&mut from_client)? {
        if shared.google {
            google_to_s3(&mut request);
        }
        let body = request.request_body();
        if request.header("expect").is_some() {
            to_client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let action = decide(shared, &request);
        match action {
            Some(Action::Answer { status, retry_after }) => {
                copy_body(&mut from_client, &mut io::sink(), body, u64::MAX)?;
                to_client.write_all(&error_answer(status, retry_after))?;
                continue;
            }
            Some(Action::Refuse { status, code }) => {
                copy_body(&mut from_client, &mut io::sink(), body, u64::MAX)?;
                to_client.write_all(&coded_answer(status, code, None))?;
                continue;
            }
            Some(Action::Reply(reply)) => {
                copy_body(&mut from_client, &mut io::sink(), body, u64::MAX)?;
                let n = {
                    let mut state = shared.lock();
                    state.replies += 1;
                    state.replies
                };
                reply.write(&mut to_client, n)?;
                continue;
            }
            Some(Action::Slow(rate)) => {
                to_server.write_all(&request.raw)?;
                copy_body(
                    &mut Slow { from: &mut from_client, rate },
                    &mut to_server,
                    body,
                    u64::MAX,
                )?;
                let mut answer = read_answer(&mut from_server)?;
                if shared.google {
                    s3_to_google(&mut answer);
                }
                to_client.write_all(&answer.raw)?;
                let body = answer.answer_body(request.word(0));
                copy_body(&mut from_server, &mut to_client, body, u64::MAX)?;
                continue;
            }
            Some(Action::Stall) => {
                let waiting = shared.lock();
                let _end = shared.bell.wait_while(waiting, |state| !state.released);
                return Ok(());
            }
            Some(Action::CutRequest(limit)) => {
                to_server.write_all(&request.raw)?;
                copy_body(&mut from_client, &mut to_server, body, limit)?;
                return Ok(());
            }
            Some(Action::Hold) => {
                copy_body(&mut from_client, &mut request.raw, body, u64::MAX)?;
                hold(shared);
                to_server.write_all(&request.raw)?;
            }
            None
            | Some(Action::CutAnswer(_) | Action::LoseAnswer | Action::Alter | Action::Ahead(_)) => {
                to_server.write_all(&request.raw)?;
                copy_body(&mut from_client, &mut to_server, body, u64::MAX)?;
            }
        }
        let mut answer = read_answer(&mut from_server)?;
        if let Some(Action::Ahead(seconds)) = action {
            answer.rewrite(|name, value| match name {
                "date" => Some((name, date(SystemTime::now() + Duration::from_secs(seconds)))),
                _ => Some((name, value.to_owned())),
            });
        }
        if shared.google {
            s3_to_google(&mut answer);
        }
        let body = answer.answer_body(request.word(0));
        match action {
            Some(Action::LoseAnswer) => {
                copy_body(&mut from_server, &mut io::sink(), body, u64::MAX)?;
                return Ok(());
            }
            Some(Action::CutAnswer(limit)) => {
                to_client.write_all(&answer.raw)?;
                copy_body(&mut from_server, &mut to_client, body, limit)?;
                return Ok(());
            }
            Some(Action::Alter) => {
                let mut content = read_body(&mut from_server, body)?;
                content.iter_mut().take(1).for_each(|byte| *byte ^= 1);
                to_client.write_all(&answer.raw)?;
                to_client.write_all(&content)?;
            }
            _ => {
                to_client.write_all(&answer.raw)?;
                copy_body(&mut from_server, &mut to_client, body, u64::MAX)?;
            }
        }
        let close = |head: &Head| {
            head.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"))
        };
        if close(&request) || close(&answer) {
            return Ok(());
        }
    }
    Ok(())
}

/// Waits until the held requests are passed on.
fn hold(shared: &Shared) {
    let mut waiting = shared.lock();
    waiting.held += 1;
    let _passing = shared.bell.wait_while(waiting, |state| !state.released);
}

/// Reads the final response and skips interim ones (1xx), which are only for this proxy.
fn read_answer(from: &mut BufReader<impl Read>) -> io::Result<Head> {
    loop {
        let head = Head::read(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if !(100..200).contains(&head.status()) {
            return Ok(head);
        }
    }
}

fn decide(shared: &Shared, request: &Head) -> Option<Action> {
    let (method, path) = (request.word(0), request.word(1));
    let mut state = shared.lock();
    // Every matching rule counts the request, including rules after the one that acts.
    let actions: Vec<_> = state.rules.iter_mut().map(|rule| rule.count(request)).collect();
    let action = actions.into_iter().flatten().next();
    let (method, path) = (method.to_owned(), path.to_owned());
    state.seen.push(Seen { method, path, action: action.clone() });
    action
}

/// Reader with at most `rate` bytes per second, in steps of a sixteenth of a second.
struct Slow<'a, R> {
    from: &'a mut R,
    rate: u64,
}

impl<R: BufRead> Read for Slow<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.rate / 16).unwrap_or(usize::MAX).max(1).min(into.len());
        let read = self.from.read(&mut into[..most])?;
        let nanos = read as u64 * 1_000_000_000 / self.rate;
        thread::sleep(Duration::from_nanos(nanos));
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Slow<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let rate = self.rate;
        let most = usize::try_from(rate / 16).unwrap_or(usize::MAX).max(1);
        let buffer = self.from.fill_buf()?;
        let piece = &buffer[..most.min(buffer.len())];
        thread::sleep(Duration::from_nanos(piece.len() as u64 * 1_000_000_000 / rate));
        Ok(piece)
    }

    fn consume(&mut self, amount: usize) {
        self.from.consume(amount);
    }
}

/// Translates Google's header names to those of S3 and drops the authorization.
fn google_to_s3(request: &mut Head) {
    request.rewrite(|name, value| match name {
        "authorization" => None,
        "x-goog-if-generation-match" if value == "0" => Some(("If-None-Match", "*".to_owned())),
        "x-goog-if-generation-match" => Some(("If-Match", value.to_owned())),
        "x-goog-copy-source" => Some(("x-amz-copy-source", value.to_owned())),
        "x-goog-storage-class" => Some(("x-amz-storage-class", value.to_owned())),
        _ => Some((name, value.to_owned())),
    });
}

/// Translates the response: the ETag of an object serves as its generation.
fn s3_to_google(answer: &mut Head) {
    if let Some(etag) = answer.header("etag") {
        answer.add("x-goog-generation", &etag);
    }
}

fn error_answer(status: u16, retry_after: Option<u32>) -> Vec<u8> {
    let code = match status {
        429 | 503 => "SlowDown",
        409 => "ConditionalRequestConflict",
        403 => "AccessDenied",
        404 => "NoSuchKey",
        _ => "InternalError",
    };
    coded_answer(status, code, retry_after)
}

fn coded_answer(status: u16, code: &str, retry_after: Option<u32>) -> Vec<u8> {
    let body = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>told to</Message></Error>"#
    );
    let wait = retry_after.map_or_else(String::new, |s| format!("Retry-After: {s}\r\n"));
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\n{wait}\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::read_body;
    use std::sync::mpsc::{self, Receiver};

    /// Starts a server that returns each request's body as the response, and reports the request.
    fn echo_server() -> (String, Receiver<(String, usize)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (report, reports) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let report = report.clone();
                thread::spawn(move || -> io::Result<()> {
                    let mut from = BufReader::new(stream.try_clone()?);
                    let mut to = stream;
                    while let Some(head) = Head::read(&mut from)? {
                        let mut body = Vec::new();
                        let whole = copy_body(&mut from, &mut body, head.request_body(), u64::MAX);
                        let _ = report.send((head.first.clone(), body.len()));
                        whole?;
                        let length = body.len();
                        write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                        to.write_all(&body)?;
                    }
                    Ok(())
                });
            }
        });
        (address, reports)
    }

    struct Client(BufReader<TcpStream>);

    impl Client {
        fn new(proxy: &Proxy) -> Self {
            let stream = TcpStream::connect(proxy.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            Self(BufReader::new(stream))
        }

        fn send(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<(Head, Vec<u8>)> {
            let to = self.0.get_mut();
            write!(to, "{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len())?;
            to.write_all(body)?;
            let head = Head::read(&mut self.0)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let body = read_body(&mut self.0, head.answer_body(method))?;
            Ok((head, body))
        }
    }

    #[test]
    fn passes_on_what_no_rule_fits() {
        let (upstream, _reports) = echo_server();
        let proxy = Proxy::start(&upstream, vec![Rule::new("DELETE", "", Action::answer(500))]);
        let mut client = Client::new(&proxy);
        let body = crate::contents::data::noise(1, 300_000);
        for n in 0..3 {
            let (head, back) = client.send("PUT", &format!("/key{n}"), &body).unwrap();
            assert_eq!(head.status(), 200);
            assert!(back == body);
        }
        assert_eq!(proxy.count("PUT", "/key"), 3);
        assert_eq!(proxy.count("", "/key1"), 1);
        assert_eq!(proxy.count("GET", ""), 0);
        assert!(proxy.seen().iter().all(|s| s.action.is_none()));
    }

    #[test]
    fn answers_the_stretch_it_is_told_to() {
        let (upstream, reports) = echo_server();
        let action = Action::Answer { status: 503, retry_after: Some(7) };
        let proxy =
            Proxy::start(&upstream, vec![Rule::new("PUT", "part=2", action).skip(1).times(2)]);
        let mut client = Client::new(&proxy);
        let statuses: Vec<u16> = (0..4)
            .map(|_| client.send("PUT", "/k?part=2", b"body").unwrap())
            .inspect(|(head, _)| {
                let wait = (head.status() == 503).then(|| "7".to_owned());
                assert_eq!(head.header("retry-after"), wait);
            })
            .map(|(head, _)| head.status())
            .collect();
        assert_eq!(statuses, [200, 503, 503, 200]);
        assert_eq!(reports.try_iter().count(), 2);
    }

    #[test]
    fn cuts_a_request_in_its_body() {
        let (upstream, reports) = echo_server();
        let proxy =
            Proxy::start(&upstream, vec![Rule::new("PUT", "", Action::CutRequest(10)).times(1)]);
        assert!(Client::new(&proxy).send("PUT", "/k", &[b'x'; 100]).is_err());
        let wait = Duration::from_secs(20);
        assert_eq!(reports.recv_timeout(wait).unwrap(), ("PUT /k HTTP/1.1".to_owned(), 10));
        assert!(Client::new(&proxy).send("PUT", "/k", &[b'x'; 100]).is_ok());
    }

    #[test]
    fn loses_and_cuts_answers_after_the_work_is_done() {
        let (upstream, reports) = echo_server();
        let rules = vec![
            Rule::new("PUT", "lose", Action::LoseAnswer),
            Rule::new("PUT", "cut", Action::CutAnswer(3)),
        ];
        let proxy = Proxy::start(&upstream, rules);
        let wait = Duration::from_secs(20);
        for path in ["/lose", "/cut"] {
            let error = Client::new(&proxy).send("PUT", path, b"content").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{path}");
            assert_eq!(reports.recv_timeout(wait).unwrap().1, 7);
        }
    }

    #[test]
    fn stalls_until_released() {
        let (upstream, reports) = echo_server();
        let proxy = Proxy::start(&upstream, vec![Rule::new("GET", "", Action::Stall)]);
        let mut client = Client::new(&proxy);
        client.0.get_mut().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = client.send("GET", "/k", b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        proxy.release();
        client.0.get_mut().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(Head::read(&mut client.0).unwrap().is_none());
        assert_eq!(reports.try_iter().count(), 0);
    }
}
