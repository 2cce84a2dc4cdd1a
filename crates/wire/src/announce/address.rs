//! An address `host[:port]`, as the server passes it.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::printable::printable;

/// Port of the stock scripts, for addresses without one.
pub(crate) const DEFAULT_PORT: u16 = 4444;

/// Longest host name in the domain name system.
const MAX_HOST: usize = 253;

/// A host name or address, and a port. IPv6 addresses are written in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

/// Text that is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address of the form host[:port] or [IPv6][:port]")]
pub struct HostPortError {
    /// The text, truncated and escaped.
    pub text: String,
}

impl HostPort {
    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; when listening, 0 asks for any free one.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the same host with another port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        parse(text).ok_or_else(|| HostPortError { text: printable(text, 300) })
    }
}

fn parse(text: &str) -> Option<HostPort> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port =
            if port.is_empty() { DEFAULT_PORT } else { parse_port(port.strip_prefix(':')?)? };
        host.parse::<Ipv6Addr>().ok()?;
        return Some(HostPort { host: host.to_owned(), port });
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some(HostPort { host: text.to_owned(), port: DEFAULT_PORT });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, parse_port(port)?),
        None => (text, DEFAULT_PORT),
    };
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    let good = !host.is_empty()
        && host.len() <= MAX_HOST
        && !host.starts_with('-')
        && host.bytes().all(fits);
    good.then(|| HostPort { host: host.to_owned(), port })
}

fn parse_port(text: &str) -> Option<u16> {
    // `+1` would also parse as a number.
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_that_servers_give() {
        let read = |text: &str| text.parse::<HostPort>().map(|a| (a.host, a.port));
        assert_eq!(read("10.0.0.2"), Ok(("10.0.0.2".into(), 4444)));
        assert_eq!(read("db-2.example:14444"), Ok(("db-2.example".into(), 14444)));
        assert_eq!(read("[::1]"), Ok(("::1".into(), 4444)));
        assert_eq!(read("[fe80::1]:1"), Ok(("fe80::1".into(), 1)));
        assert_eq!(read("fe80::1"), Ok(("fe80::1".into(), 4444)));
        for bad in [
            "", ":1", "a b", "a:b", "a:70000", "a:+1", "[::1", "[::1]x", "[a]:1", "-a", "a;b",
            "a:1:2",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_parsed_address_is_written_alike(text in "[\\[\\]a-f0-9.:]{0,20}") {
            if let Ok(address) = text.parse::<HostPort>() {
                prop_assert_eq!(address.to_string().parse::<HostPort>().unwrap(), address);
            }
        }
    }
}
