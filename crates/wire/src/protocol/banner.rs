//! The first line of each side, before TLS: program, versions, and whether TLS follows.
//!
//! `XBRS-WIRE MIN-MAX MODE NONCE\n`, MODE being `tls` or `plain`, NONCE 32 hexadecimal digits; or
//! from a joiner that refuses, `XBRS-WIRE MIN-MAX no TEXT\n`. It is text so that a person who
//! connects by mistake can recognize the protocol. Nothing in it is trusted: versions are
//! negotiated again inside TLS, and the nonces are part of the proofs.

use crate::hex::{from_hex, to_hex};
use crate::printable::{cut, printable, printable_bytes};

const MAGIC: &[u8] = b"XBRS-WIRE ";
/// Longest line, including its line end, in bytes.
pub(crate) const MAX_LINE: usize = 256;

/// A parsed first line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
pub struct Banner {
    /// Oldest version.
    pub min_version: u16,
    /// Newest version.
    pub max_version: u16,
    /// Remaining content.
    pub kind: BannerKind,
}

/// Whether the sender continues or refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BannerKind {
    /// Continue with the handshake.
    Go {
        /// Whether TLS begins after the line.
        tls: bool,
        /// Random bytes for the proofs.
        nonce: [u8; 16],
    },
    /// Refusal, with a reason.
    No(String),
}

/// Reason why the first bytes are not such a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[doc(hidden)]
pub enum BannerError {
    /// Another protocol.
    #[error("{0}")]
    Foreign(String),
    /// This protocol, but malformed.
    #[error("its first line is invalid: `{0}`")]
    Malformed(String),
}

/// Parses the first bytes. `Ok(None)`: they may be the beginning of a line, more bytes are needed.
/// `Ok(Some((banner, len)))`: the first `len` bytes are the line.
///
/// # Errors
/// As soon as the bytes cannot be such a line.
pub fn parse(bytes: &[u8]) -> Result<Option<(Banner, usize)>, BannerError> {
    let same = bytes.len().min(MAGIC.len());
    if bytes.get(..same) != MAGIC.get(..same) {
        return Err(BannerError::Foreign(foreign(bytes)));
    }
    let within = bytes.get(..MAX_LINE).unwrap_or(bytes);
    let Some(end) = within.iter().position(|b| *b == b'\n') else {
        if bytes.len() >= MAX_LINE {
            return Err(BannerError::Malformed(printable_bytes(bytes, 80)));
        }
        return Ok(None);
    };
    let line = within.get(MAGIC.len()..end).unwrap_or_default();
    let banner =
        read(line).ok_or_else(|| BannerError::Malformed(printable_bytes(line, MAX_LINE)))?;
    Ok(Some((banner, end + 1)))
}

fn read(line: &[u8]) -> Option<Banner> {
    let line = std::str::from_utf8(line).ok()?;
    let (versions, line) = line.split_once(' ')?;
    let (min, max) = versions.split_once('-')?;
    let number = |text: &str| {
        text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse::<u16>().ok()).flatten()
    };
    let (min_version, max_version) = (number(min)?, number(max)?);
    if min_version > max_version {
        return None;
    }
    let (mode, rest) = line.split_once(' ')?;
    let kind = match mode {
        "no" => BannerKind::No(rest.to_owned()),
        "tls" | "plain" => {
            let mut nonce = [0; 16];
            from_hex(rest, &mut nonce)?;
            BannerKind::Go { tls: mode == "tls", nonce }
        }
        _ => return None,
    };
    Some(Banner { min_version, max_version, kind })
}

impl Banner {
    /// Encodes the line, including its line end.
    pub fn write(&self) -> Vec<u8> {
        let Self { min_version, max_version, kind } = self;
        let rest = match kind {
            BannerKind::Go { tls, nonce } => {
                format!("{} {}", if *tls { "tls" } else { "plain" }, to_hex(nonce))
            }
            BannerKind::No(text) => {
                let text = printable(text, MAX_LINE);
                format!("no {}", cut(&text, MAX_LINE - 40))
            }
        };
        let magic = String::from_utf8_lossy(MAGIC);
        format!("{magic}{min_version}-{max_version} {rest}\n").into_bytes()
    }
}

/// Returns the newest version that two ranges share.
pub(crate) fn common_version(a: (u16, u16), b: (u16, u16)) -> Option<u16> {
    let newest = a.1.min(b.1);
    (newest >= a.0.max(b.0)).then_some(newest)
}

/// Names the protocol that begins with these bytes.
fn foreign(bytes: &[u8]) -> String {
    let known = [
        (&b"XBSTCK01"[..], "the donor of a stock transfer script (it sends xbstream data)"),
        (b"\x16\x03", "another TLS client (perhaps a stock transfer script with encryption)"),
        (b"GET ", "an HTTP client"),
        (b"HEAD ", "an HTTP client"),
        (b"POST ", "an HTTP client"),
        (b"HTTP/", "an HTTP server"),
        (b"SSH-", "an SSH peer"),
        (b"@RSYNCD", "an rsync daemon"),
    ];
    let who = known.iter().find(|(begin, _)| bytes.starts_with(begin)).map(|(_, who)| *who);
    let seen = printable_bytes(bytes, 24);
    match who {
        Some(who) => format!("it is {who}"),
        None => format!("it does not use this protocol (its data starts with `{seen}`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn others_are_named_at_their_first_bytes() {
        let read = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert!(read(b"XBSTCK01\0").contains("stock"));
        assert!(read(b"\x16\x03\x01\x02\0").contains("TLS"));
        assert!(read(b"GET / HTTP/1.1\r\n").contains("HTTP"));
        assert!(read(b"\0").contains("`\\x00`"));
        assert!(read(b"XBRS-WIRE 2-1 tls 00\n").contains("is invalid"));
        assert!(read(&[&b"XBRS-WIRE "[..], &[b'1'; 300]].concat()).contains("is invalid"));
        assert_eq!(parse(b""), Ok(None));
        assert_eq!(parse(b"XBRS-WIRE 1-1 tls 0"), Ok(None));
    }

    #[test]
    fn versions_meet_or_do_not() {
        assert_eq!(common_version((1, 3), (2, 5)), Some(3));
        assert_eq!(common_version((4, 5), (1, 3)), None);
        assert_eq!(common_version((1, 1), (1, 1)), Some(1));
    }

    proptest! {
        #[test]
        fn written_messages_are_read(min in 0_u16..100, more in 0_u16..100, tls: bool, nonce: [u8; 16], after: Vec<u8>) {
            let banner = Banner { min_version: min, max_version: min + more, kind: BannerKind::Go { tls, nonce } };
            let line = banner.write();
            prop_assert!(line.len() <= MAX_LINE);
            let all = [&line[..], &after].concat();
            prop_assert_eq!(parse(&all), Ok(Some((banner, line.len()))));
        }

        #[test]
        fn a_refusal_fits_with_any_text(text: String) {
            let banner = Banner { min_version: 1, max_version: 1, kind: BannerKind::No(text) };
            let line = banner.write();
            prop_assert!(line.len() <= MAX_LINE);
            let (read, len) = parse(&line).unwrap().unwrap();
            prop_assert_eq!(len, line.len());
            prop_assert!(matches!(read.kind, BannerKind::No(_)));
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = parse(&bytes);
            let _ = parse(&[MAGIC, &bytes].concat());
        }
    }
}
