use super::*;
use std::io::{BufReader, Write as _};
use std::sync::mpsc::{self, Receiver};

use crate::http::{Head, copy_body, read_body};

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
fn requests_without_a_rule_pass() {
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
    let proxy = Proxy::start(&upstream, vec![Rule::new("PUT", "part=2", action).skip(1).times(2)]);
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
