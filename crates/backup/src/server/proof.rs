//! How a server that is cloned proves who it is.

use std::time::Duration;

use xb_mysql::{Access, Fingerprint, Target, Trust};

use crate::error::BackupError;

/// Time limit of each step of asking a server for its certificate.
const STEP_LIMIT: Duration = Duration::from_secs(10);

/// A server over TCP whose certificate nothing vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnprovenServer {
    /// Its host, as it was given.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl UnprovenServer {
    /// The server of `access`, if nothing vouches for it. A socket needs no proof.
    #[must_use]
    pub fn of(access: &Access) -> Option<Self> {
        match &access.target {
            Target::Tcp { host, port, trust: Trust::Unproven, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// Asks for its certificate, and returns the fingerprint of it: 64 hexadecimal digits. Nothing else is
    /// sent.
    ///
    /// # Errors
    /// [`BackupError::Clone`].
    pub fn fingerprint(&self) -> Result<String, BackupError> {
        let found = xb_mysql::fingerprint(&self.host, self.port, STEP_LIMIT);
        Ok(found.map_err(xb_clone::Error::from)?.to_string())
    }
}

/// `HOST:PORT`.
impl std::fmt::Display for UnprovenServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Demands a certificate with this fingerprint, as [`UnprovenServer::fingerprint`] returns it.
#[must_use]
pub fn pinned(mut access: Access, fingerprint: &str) -> Access {
    if let (Target::Tcp { trust, .. }, Ok(found)) =
        (&mut access.target, fingerprint.parse::<Fingerprint>())
    {
        *trust = Trust::Fingerprint(found);
    }
    access
}
