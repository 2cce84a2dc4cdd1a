//! Subset of HTTP/1.1 for the fault proxy and the small S3 client.

pub mod fault;
pub mod reply;

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Maximum length of a head; longer ones are rejected.
const MAX_HEAD: u64 = 64 * 1024;

/// Head of a request or a response.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// First line, without its line end.
    pub(crate) first: String,
    /// The whole head as received, including the blank line.
    pub(crate) raw: Vec<u8>,
}

/// Length of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Chunked,
    UntilClose,
}

impl Head {
    /// Reads a head; `None` if the connection ends before its first byte.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut raw = Vec::new();
        loop {
            let line = from.by_ref().take(MAX_HEAD).read_until(b'\n', &mut raw)?;
            if line == 0 && raw.is_empty() {
                return Ok(None);
            }
            if line == 0 || raw.len() as u64 >= MAX_HEAD {
                return Err(io::Error::new(ErrorKind::InvalidData, "bad head"));
            }
            if raw.ends_with(b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&raw);
                let first = text.lines().next().unwrap_or_default().to_owned();
                return Ok(Some(Self { first, raw }));
            }
        }
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.raw);
        text.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    /// Replaces name and value of each header, or removes it. Names are in lower case.
    pub(crate) fn rewrite(
        &mut self,
        change: impl for<'n> Fn(&'n str, &str) -> Option<(&'n str, String)>,
    ) {
        let text = String::from_utf8_lossy(&self.raw).into_owned();
        let mut out = format!("{}\r\n", self.first);
        for (name, value) in text.lines().skip(1).filter_map(|line| line.split_once(':')) {
            let name = name.to_ascii_lowercase();
            if let Some((name, value)) = change(&name, value.trim()) {
                out.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        out.push_str("\r\n");
        self.raw = out.into_bytes();
    }

    /// Adds a header.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.raw.truncate(self.raw.len() - 2);
        self.raw.extend_from_slice(format!("{name}: {value}\r\n\r\n").as_bytes());
    }

    /// Returns the n-th word of the first line: method and path, or version and status.
    pub(crate) fn word(&self, n: usize) -> &str {
        self.first.split(' ').nth(n).unwrap_or_default()
    }

    /// Returns the status of a response, or 0 if it has none.
    pub(crate) fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    /// Returns the length of a request's body.
    pub(crate) fn request_body(&self) -> Body {
        match self.stated_body() {
            Body::UntilClose => Body::Length(0),
            stated => stated,
        }
    }

    /// Returns the length of the body in the response to a request of this method.
    pub(crate) fn answer_body(&self, method: &str) -> Body {
        let none = method == "HEAD" || matches!(self.status(), 100..=199 | 204 | 304);
        if none { Body::Length(0) } else { self.stated_body() }
    }

    fn stated_body(&self) -> Body {
        if self.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
            return Body::Chunked;
        }
        self.header("content-length")
            .and_then(|v| v.parse().ok())
            .map_or(Body::UntilClose, Body::Length)
    }
}

/// Copies a body in its wire format, at most `limit` bytes of it. Returns the number of bytes
/// copied and whether this was the whole body.
pub(crate) fn copy_body(
    from: &mut impl BufRead,
    to: &mut impl Write,
    body: Body,
    limit: u64,
) -> io::Result<(u64, bool)> {
    match body {
        Body::Length(len) => {
            let copied = io::copy(&mut from.by_ref().take(len.min(limit)), to)?;
            if copied < len.min(limit) {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Ok((copied, copied == len))
        }
        Body::UntilClose => {
            let copied = io::copy(&mut from.by_ref().take(limit), to)?;
            Ok((copied, copied < limit))
        }
        Body::Chunked => copy_chunked(from, to, limit),
    }
}

fn copy_chunked(
    from: &mut impl BufRead,
    to: &mut impl Write,
    limit: u64,
) -> io::Result<(u64, bool)> {
    let mut copied = 0;
    loop {
        let mut line = Vec::new();
        from.by_ref().take(MAX_HEAD).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line);
        let digits = text.trim().split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(digits, 16)
            .map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        to.write_all(&line)?;
        // The piece and its line end; after the last piece, one blank line.
        let rest = (size + 2).min(limit.saturating_sub(copied));
        if io::copy(&mut from.by_ref().take(rest), to)? < rest {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        copied += rest;
        if rest < size + 2 {
            return Ok((copied, false));
        }
        if size == 0 {
            return Ok((copied, true));
        }
    }
}

/// Reads and decodes a small body.
pub(crate) fn read_body(from: &mut impl BufRead, body: Body) -> io::Result<Vec<u8>> {
    let mut wire = Vec::new();
    copy_body(from, &mut wire, body, u64::MAX)?;
    if body != Body::Chunked {
        return Ok(wire);
    }
    let mut out = Vec::new();
    let mut rest = &wire[..];
    loop {
        let mut line = String::new();
        rest.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16)
            .map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        if size == 0 {
            return Ok(out);
        }
        let (piece, after) = rest.split_at(size);
        out.extend_from_slice(piece);
        rest = after.get(2..).unwrap_or_default();
    }
}

/// Formats a time as the `Date` header of HTTP.
pub(crate) fn date(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).expect("a time of today");
    rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).expect("a time of today")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_bodies() {
        let mut wire = &b"PUT /a?b=c HTTP/1.1\r\nContent-Length: 3\r\nX: y\r\n\r\nabcGET"[..];
        let head = Head::read(&mut wire).unwrap().unwrap();
        assert_eq!((head.word(0), head.word(1)), ("PUT", "/a?b=c"));
        assert_eq!(head.header("x").as_deref(), Some("y"));
        assert_eq!(read_body(&mut wire, head.request_body()).unwrap(), b"abc");
        assert_eq!(wire, b"GET");
        assert!(Head::read(&mut wire).is_err());
        assert!(Head::read(&mut &b""[..]).unwrap().is_none());
    }

    #[test]
    fn chunked_bodies() {
        let wire = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\nrest";
        let mut from = &wire[..];
        let mut copy = Vec::new();
        assert!(copy_body(&mut from, &mut copy, Body::Chunked, u64::MAX).unwrap().1);
        assert_eq!(from, b"rest");
        assert_eq!(copy, wire[..wire.len() - 4]);
        let plain = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(read_body(&mut &plain[..], Body::Chunked).unwrap(), b"abcde");
        let cut = copy_body(&mut &wire[..], &mut Vec::new(), Body::Chunked, 2).unwrap();
        assert_eq!(cut, (2, false));
    }
}
