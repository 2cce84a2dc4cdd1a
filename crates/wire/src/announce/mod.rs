//! The announcement in the joiner's `ready` line: its address, and how the donor authenticates it.
//!
//! `[xbrs:SECRET@]HOST:PORT/xbrs/HOW/1`, HOW being `plain`, `once-FINGERPRINT` (a one-time
//! certificate) or `cert-FINGERPRINT` (the joiner's own). The form `/module/lsn/version` is the
//! stock scripts'; every byte is one that all servers accept.

pub(crate) mod address;
pub(crate) mod secret;

use std::fmt::Write as _;

use zeroize::Zeroizing;

use self::address::HostPort;
use self::secret::{Fingerprint, Secret};
use crate::printable::printable;

/// The module name in the path, and the name before the secret.
const NAME: &str = "xbrs";
/// Version of the text, not of the protocol.
const VERSION: &str = "1";
/// The server reads the joiner's line into 512 bytes, including `ready ` and the line end.
const MAX_TEXT: usize = 512 - 8;

/// Way in which the joiner authenticates itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Neither encrypted nor authenticated.
    Plain,
    /// TLS with a certificate made for this transfer, authenticated by its fingerprint.
    OneTime(Fingerprint),
    /// TLS with a certificate set by the operator.
    Certificate(Fingerprint),
}

/// Address of a joiner and how it is authenticated; created by [`Listener`](crate::Listener),
/// parsed by the donor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    address: HostPort,
    protection: Protection,
    secret: Option<Secret>,
}

/// Reason why the text after `ready` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnouncementError {
    /// The path names another program.
    #[error(
        "the joiner uses another transfer method, `{module}`: set wsrep_sst_method=xbrs on the joiner, and install this program there"
    )]
    OtherMethod {
        /// The module it names.
        module: String,
    },
    /// The path has another version of the text.
    #[error(
        "the joiner announces version `{version}`, but this program supports {VERSION}: install the same version on both nodes"
    )]
    OtherVersion {
        /// The version it names.
        version: String,
    },
    /// The text does not have the form of an announcement.
    #[error("cannot parse the joiner's address `{text}`")]
    Malformed {
        /// The address, without its secret.
        text: String,
    },
    /// The secret has the wrong form.
    #[error("the joiner's secret arrived incomplete")]
    Secret,
    /// The line is too long for the server's buffer.
    #[error(
        "the address has {len} bytes, more than the limit of {MAX_TEXT} for a line to the server"
    )]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
}

impl Announcement {
    pub(crate) fn new(
        address: HostPort,
        protection: Protection,
        secret: Option<Secret>,
    ) -> Result<Self, AnnouncementError> {
        let announcement = Self { address, protection, secret };
        let len = announcement.text().len();
        if len > MAX_TEXT { Err(AnnouncementError::TooLong { len }) } else { Ok(announcement) }
    }

    /// Parses the donor's `--address`, and `WSREP_SST_OPT_REMOTE_AUTH` if the server has set it.
    ///
    /// # Errors
    /// If the text announces another program or another version, or cannot be parsed.
    pub fn parse(address: &str, remote_auth: Option<&str>) -> Result<Self, AnnouncementError> {
        let (inline, address) = match address.rsplit_once('@') {
            Some((auth, rest)) => (Some(auth), rest),
            None => (None, address),
        };
        let auth = inline.or(remote_auth.filter(|auth| !auth.is_empty()));
        let secret = auth.map(|auth| {
            auth.strip_prefix(NAME)
                .and_then(|rest| rest.strip_prefix(':'))
                .and_then(Secret::from_hex)
        });
        let malformed = || AnnouncementError::Malformed { text: printable(address, MAX_TEXT) };
        let mut parts = address.split('/');
        let host = parts.next().unwrap_or_default();
        let host: HostPort = host.parse().map_err(|_| malformed())?;
        // A joiner of any method names it.
        let module = parts.next().filter(|module| !module.is_empty()).ok_or_else(malformed)?;
        if module != NAME {
            return Err(AnnouncementError::OtherMethod { module: printable(module, 64) });
        }
        let how = parts.next().ok_or_else(malformed)?;
        let version = parts.next().ok_or_else(malformed)?;
        if version != VERSION {
            return Err(AnnouncementError::OtherVersion { version: printable(version, 16) });
        }
        let protection = protection(how).ok_or_else(malformed)?;
        if parts.next().is_some() {
            return Err(malformed());
        }
        // Parsed last: a joiner of another method may have a secret of another form.
        let secret = secret.map(|s| s.ok_or(AnnouncementError::Secret)).transpose()?;
        Ok(Self { address: host, protection, secret })
    }

    /// The text for the server's line, to be printed after `ready `. It holds the secret: only the
    /// server may see it.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(MAX_TEXT));
        if let Some(secret) = &self.secret {
            let _ = write!(text, "{NAME}:{}@", *secret.to_hex());
        }
        let _ = write!(text, "{}/{NAME}/", self.address);
        let _ = match self.protection {
            Protection::Plain => write!(text, "plain"),
            Protection::OneTime(fingerprint) => write!(text, "once-{fingerprint}"),
            Protection::Certificate(fingerprint) => write!(text, "cert-{fingerprint}"),
        };
        let _ = write!(text, "/{VERSION}");
        text
    }

    /// Address on which the joiner listens.
    pub fn address(&self) -> &HostPort {
        &self.address
    }

    /// Way in which the joiner authenticates itself.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Returns whether the donor can authenticate itself with a one-time secret.
    pub fn has_secret(&self) -> bool {
        self.secret.is_some()
    }

    pub(crate) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }
}

fn protection(how: &str) -> Option<Protection> {
    if how == "plain" {
        Some(Protection::Plain)
    } else if let Some(hex) = how.strip_prefix("once-") {
        Fingerprint::from_hex(hex).map(Protection::OneTime)
    } else {
        Fingerprint::from_hex(how.strip_prefix("cert-")?).map(Protection::Certificate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(secret: bool) -> Announcement {
        let secret = secret.then(|| Secret::new().unwrap());
        let print = Fingerprint::of(b"certificate");
        Announcement::new("[fe80::1]:4444".parse().unwrap(), Protection::OneTime(print), secret)
            .unwrap()
    }

    #[test]
    fn the_server_splits_it_and_the_donor_reads_it() {
        let whole = sample(true);
        let text = whole.text();
        let (auth, address) = text.split_once('@').unwrap();
        let fits = |c: u8| c.is_ascii_alphanumeric() || b"_:/.[]-".contains(&c);
        assert!(text.bytes().all(|c| fits(c) || c == b'@'));
        assert_eq!(Announcement::parse(address, Some(auth)).unwrap(), whole);
        assert_eq!(Announcement::parse(&text, None).unwrap(), whole);
        let bare = Announcement::parse(address, Some("")).unwrap();
        assert!(!bare.has_secret() && bare != whole);
        assert!(!format!("{whole:?}").contains(&auth[5..]));
    }

    #[test]
    fn others_are_named() {
        let read = |text: &str| Announcement::parse(text, None).unwrap_err().to_string();
        assert!(read("10.0.0.2:4444/xtrabackup_sst//1").contains("`xtrabackup_sst`"));
        assert!(read("10.0.0.2:4444/rsync_sst").contains("`rsync_sst`"));
        assert!(read("10.0.0.2:4444/xbrs/plain/2").contains("version `2`"));
        assert!(read("10.0.0.2:4444/xbrs/plain/1/x").contains("cannot parse"));
        assert!(read("10.0.0.2:4444/xbrs/once-12/1").contains("cannot parse"));
        for of_garbd in ["10.0.0.2", "10.0.0.2:4444", "10.0.0.2:4444/"] {
            assert!(read(of_garbd).contains("cannot parse"), "{of_garbd}");
        }
        let auth = Announcement::parse("h:1/xbrs/plain/1", Some("xbrs:12"));
        assert_eq!(auth, Err(AnnouncementError::Secret));
        // The error names the stock method, not the form of its secret.
        let stock = Announcement::parse("h:1/xtrabackup_sst//1", Some("CN:secret"));
        assert!(matches!(stock, Err(AnnouncementError::OtherMethod { .. })));
    }

    #[test]
    fn a_line_that_the_server_would_cut_is_refused() {
        let host = format!("{}:4444", ["a"; 253].concat());
        let long = Announcement::new(
            host.parse().unwrap(),
            Protection::OneTime(Fingerprint::of(b"")),
            Some(Secret::new().unwrap()),
        );
        // Even with the longest host name, the text fits.
        assert!(long.unwrap().text().len() < 400);
    }

    proptest! {
        #[test]
        fn nothing_panics(address: String, auth: Option<String>) {
            let _ = Announcement::parse(&address, auth.as_deref());
        }

        #[test]
        fn near_misses_do_not_panic(text in "(xbrs:[0-9a-f]{31,33}@)?[a-z\\[\\]:]{1,5}:[0-9]{1,6}/xbrs/(plain|once-[0-9a-f]{63,65}|cert-)/[12]?/?") {
            if let Ok(announcement) = Announcement::parse(&text, None) {
                prop_assert_eq!(Announcement::parse(&announcement.text(), None).unwrap(), announcement);
            }
        }
    }
}
