//! Responses of a hostile server, for the fault proxy.

use std::io::{self, Write};
use std::time::Duration;

/// A response that the proxy makes up. The server never sees the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    status: u16,
    /// Header lines, without line ends.
    headers: Vec<String>,
    body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    /// These bytes. `{n}` stands for the number of the request that gets them.
    Text(String),
    /// The same piece forever, at intervals.
    Endless(Vec<u8>, Duration),
}

impl Reply {
    /// Response with this text. `{n}` in it stands for the number of the request that the rule has
    /// answered so.
    #[must_use]
    pub fn text(status: u16, text: &str) -> Self {
        Self { status, headers: Vec::new(), body: Body::Text(text.to_owned()) }
    }

    /// Response whose body never ends: `piece` again and again, with a pause of `every` after each.
    #[must_use]
    pub fn endless(status: u16, piece: &[u8], every: Duration) -> Self {
        Self { status, headers: Vec::new(), body: Body::Endless(piece.to_vec(), every) }
    }

    /// Adds a header line, such as `Location: http://elsewhere/`. A `Content-Length` replaces the
    /// right one.
    #[must_use]
    pub fn header(mut self, line: impl Into<String>) -> Self {
        self.headers.push(line.into());
        self
    }

    /// Writes the response to request number `n`. An endless one ends with the connection.
    pub(crate) fn write(&self, to: &mut impl Write, n: u64) -> io::Result<()> {
        write!(to, "HTTP/1.1 {} Made-Up\r\n", self.status)?;
        for line in &self.headers {
            write!(to, "{line}\r\n")?;
        }
        let stated = self
            .headers
            .iter()
            .any(|line| line.to_ascii_lowercase().starts_with("content-length:"));
        match &self.body {
            Body::Text(text) => {
                let text = text.replace("{n}", &n.to_string());
                if !stated {
                    write!(to, "Content-Length: {}\r\n", text.len())?;
                }
                write!(to, "\r\n{text}")
            }
            Body::Endless(piece, every) => {
                if !stated {
                    write!(to, "Transfer-Encoding: chunked\r\n")?;
                }
                write!(to, "\r\n")?;
                loop {
                    if !stated {
                        write!(to, "{:x}\r\n", piece.len())?;
                    }
                    to.write_all(piece)?;
                    if !stated {
                        write!(to, "\r\n")?;
                    }
                    if !every.is_zero() {
                        to.flush()?;
                        std::thread::sleep(*every);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_written_as_asked() {
        let mut out = Vec::new();
        Reply::text(200, "page {n}").header("X: y").write(&mut out, 7).unwrap();
        assert_eq!(out, b"HTTP/1.1 200 Made-Up\r\nX: y\r\nContent-Length: 6\r\n\r\npage 7");
        let mut room = [0; 90];
        let endless = Reply::endless(200, b"ab", Duration::ZERO);
        assert!(endless.write(&mut &mut room[..], 0).is_err());
        assert!(String::from_utf8_lossy(&room).contains("\r\n\r\n2\r\nab\r\n2\r\nab\r\n"));
    }
}
