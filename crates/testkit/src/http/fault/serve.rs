//! One client connection, request by request.

use std::io::{self, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use crate::http::fault::google::{google_to_s3, s3_to_google};
use crate::http::fault::refusal::{coded_answer, error_answer, kept_answer};
use crate::http::fault::rule::Action;
use crate::http::fault::shared::{Seen, Shared};
use crate::http::fault::slow::Slow;
use crate::http::{Body, Head, copy_body, date, read_body};

/// Serves one client connection.
pub(super) fn serve(shared: &Shared, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    let mut ends = Ends {
        shared,
        to_client: client,
        to_server: server,
        from_client: BufReader::new(client),
        from_server: BufReader::new(server),
    };
    while let Some(mut request) = Head::read(&mut ends.from_client)? {
        if shared.google {
            google_to_s3(&mut request);
        }
        let body = request.request_body();
        if request.header("expect").is_some() {
            ends.to_client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let action = decide(shared, &request);
        match action {
            Some(Action::Unconditional) => {
                drop_headers(&mut request, &["if-none-match", "authorization"])
            }
            Some(Action::WholeObject) => drop_headers(&mut request, &["range", "authorization"]),
            _ => {}
        }
        if ends.make_up(action.as_ref(), body)? {
            continue;
        }
        if !ends.pass_request(action.as_ref(), &mut request, body)?
            || !ends.pass_answer(action.as_ref(), &request)?
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Both ends of a connection through the proxy.
struct Ends<'a> {
    shared: &'a Shared,
    to_client: &'a TcpStream,
    to_server: &'a TcpStream,
    from_client: BufReader<&'a TcpStream>,
    from_server: BufReader<&'a TcpStream>,
}

impl Ends<'_> {
    /// Answers without the server. Returns whether the action is of that kind.
    fn make_up(&mut self, action: Option<&Action>, body: Body) -> io::Result<bool> {
        let answer = match action {
            Some(Action::Answer { status, retry_after }) => error_answer(*status, *retry_after),
            Some(Action::Refuse { status, code }) => coded_answer(*status, code, None),
            Some(Action::Swallow) => SWALLOWED.to_vec(),
            Some(Action::Keep(code)) => {
                let mut content = Vec::new();
                copy_body(&mut self.from_client, &mut content, body, u64::MAX)?;
                self.to_client.write_all(&kept_answer(&content, *code))?;
                return Ok(true);
            }
            Some(Action::Reply(reply)) => {
                copy_body(&mut self.from_client, &mut io::sink(), body, u64::MAX)?;
                let n = {
                    let mut state = self.shared.lock();
                    state.replies += 1;
                    state.replies
                };
                reply.write(&mut self.to_client, n)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        copy_body(&mut self.from_client, &mut io::sink(), body, u64::MAX)?;
        self.to_client.write_all(&answer)?;
        Ok(true)
    }

    /// Passes the request on. Returns false if the connection ends instead.
    fn pass_request(
        &mut self,
        action: Option<&Action>,
        request: &mut Head,
        body: Body,
    ) -> io::Result<bool> {
        let mut limit = u64::MAX;
        match action {
            Some(Action::Stall) => {
                let waiting = self.shared.lock();
                let _end = self.shared.bell.wait_while(waiting, |state| !state.released);
                return Ok(false);
            }
            Some(Action::Slow(rate)) => {
                self.to_server.write_all(&request.raw)?;
                let mut slow = Slow { from: &mut self.from_client, rate: *rate };
                copy_body(&mut slow, &mut self.to_server, body, limit)?;
                return Ok(true);
            }
            Some(Action::Hold) => {
                copy_body(&mut self.from_client, &mut request.raw, body, limit)?;
                hold(self.shared);
                self.to_server.write_all(&request.raw)?;
                return Ok(true);
            }
            Some(Action::CutRequest(bytes)) => limit = *bytes,
            _ => {}
        }
        self.to_server.write_all(&request.raw)?;
        copy_body(&mut self.from_client, &mut self.to_server, body, limit)?;
        Ok(!matches!(action, Some(Action::CutRequest(_))))
    }

    /// Passes the response on. Returns false if the connection ends.
    fn pass_answer(&mut self, action: Option<&Action>, request: &Head) -> io::Result<bool> {
        let mut answer = read_answer(&mut self.from_server)?;
        if let Some(Action::Ahead(seconds) | Action::WrongDate(seconds)) = action {
            let passed = matches!(action, Some(Action::Ahead(_)));
            let ahead = date(SystemTime::now() + Duration::from_secs(*seconds));
            answer.rewrite(|name, value| match name {
                "date" => Some((name, ahead.clone())),
                "last-modified" if passed => Some((name, ahead.clone())),
                _ => Some((name, value.to_owned())),
            });
        }
        if let (Some(Action::PartAs200), Some(rest)) =
            (action, answer.raw.strip_prefix(b"HTTP/1.1 206 "))
        {
            answer.raw = [b"HTTP/1.1 200 ", rest].concat();
        }
        if self.shared.google {
            s3_to_google(&mut answer);
        }
        let body = answer.answer_body(request.word(0));
        match action {
            Some(Action::LoseAnswer) => {
                copy_body(&mut self.from_server, &mut io::sink(), body, u64::MAX)?;
                return Ok(false);
            }
            Some(Action::CutAnswer(limit)) => {
                self.to_client.write_all(&answer.raw)?;
                copy_body(&mut self.from_server, &mut self.to_client, body, *limit)?;
                return Ok(false);
            }
            Some(Action::Alter) => {
                let mut content = read_body(&mut self.from_server, body)?;
                content.iter_mut().take(1).for_each(|byte| *byte ^= 1);
                self.to_client.write_all(&answer.raw)?;
                self.to_client.write_all(&content)?;
            }
            Some(Action::Edit(edit)) => {
                let content = read_body(&mut self.from_server, body)?;
                let content = edit.apply(&mut answer, &content);
                self.to_client.write_all(&answer.raw)?;
                self.to_client.write_all(&content)?;
            }
            _ => {
                self.to_client.write_all(&answer.raw)?;
                copy_body(&mut self.from_server, &mut self.to_client, body, u64::MAX)?;
            }
        }
        let closes = |head: &Head| {
            head.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"))
        };
        Ok(!closes(request) && !closes(&answer))
    }
}

/// Success without content. The entity tag is that of no object.
const SWALLOWED: &[u8] = b"HTTP/1.1 200 OK\r\nETag: \"0\"\r\nContent-Length: 0\r\n\r\n";

fn drop_headers(request: &mut Head, names: &[&str]) {
    request.rewrite(|name, value| (!names.contains(&name)).then(|| (name, value.to_owned())));
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
