//! The first packet of a server, and the client's two answers to it.
//! (MySQL: "Protocol::HandshakeV10", "Protocol::HandshakeResponse41", "Protocol::SSLRequest"; MariaDB:
//! "Connection", with the extended capabilities.)

use crate::auth::Account;
use crate::capabilities as can;
use crate::error::{Error, ServerError};
use crate::fields::{Fields, put_string, put_with_nul};
use crate::packet::MAX_PACKET;
use crate::response::ERR;

const VERSION: u8 = 10;
/// utf8mb4_general_ci, which both forks have; it is the character set of statements and names.
const COLLATION: u8 = 45;
/// MariaDB puts this before its version, for replicas that accept no two digits.
const OLD_PREFIX: &str = "5.5.5-";

/// First message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Greeting {
    /// Version, such as `10.11.19-MariaDB` or `8.4.3`.
    pub version: String,
    /// Number of the connection, for `KILL`.
    pub connection_id: u32,
    /// Capabilities, with those of MariaDB in the upper half.
    pub capabilities: u64,
    /// The challenge for the first authentication plugin.
    pub challenge: Vec<u8>,
    /// Name of the server's default authentication plugin.
    pub plugin: Vec<u8>,
}

impl Greeting {
    /// Parses a server's first packet.
    ///
    /// # Errors
    /// [`Error::Server`] if the server refuses the connection at once, such as for too many of them;
    /// [`Error::TooOld`]; [`Error::Malformed`].
    pub fn parse(packet: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields::new("greeting", packet);
        match fields.peek() {
            Some(ERR) => return Err(ServerError::parse(packet)?.into()),
            Some(VERSION) => fields.u8()?,
            _ => return Err(Error::TooOld),
        };
        let version = String::from_utf8_lossy(fields.until_nul()?).into_owned();
        let version = version.strip_prefix(OLD_PREFIX).map(str::to_owned).unwrap_or(version);
        let connection_id = fields.u32()?;
        let mut challenge = fields.bytes(8)?.to_vec();
        fields.bytes(1)?;
        let low = fields.u16()?;
        if fields.is_empty() {
            return Err(Error::TooOld);
        }
        let (_collation, _status) = (fields.u8()?, fields.u16()?);
        let mut capabilities = u64::from(low) | u64::from(fields.u16()?) << 16;
        if capabilities & can::REQUIRED != can::REQUIRED {
            return Err(Error::TooOld);
        }
        let challenge_length = usize::from(fields.u8()?);
        fields.bytes(6)?;
        let extended = fields.u32()?;
        if capabilities & can::MYSQL == 0 {
            capabilities |= u64::from(extended) << 32;
        }
        // The second part has at least 13 bytes, of which the last is NUL.
        challenge.extend_from_slice(fields.bytes(challenge_length.saturating_sub(8).max(13))?);
        if challenge.pop() != Some(0) {
            return fields.malformed();
        }
        let plugin = fields.until_nul()?.to_vec();
        Ok(Self { version, connection_id, capabilities, challenge, plugin })
    }

    /// Returns whether the server is MariaDB.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB") || self.capabilities & can::MYSQL == 0
    }

    /// Returns the capabilities of both sides, for this account.
    pub(crate) fn agreed(&self, account: &Account) -> u64 {
        let database = if account.database.is_empty() { 0 } else { can::CONNECT_WITH_DB };
        // The bit says which extension the client's filler has; MariaDB does not announce it.
        (self.capabilities & (can::WANTED | database)) | can::MYSQL
    }

    /// The request to change to TLS: the payload of the packet before the TLS handshake.
    ///
    /// # Errors
    /// [`Error::NoTls`] if the server does not offer it.
    pub(crate) fn tls_request(&self, account: &Account) -> Result<Vec<u8>, Error> {
        if self.capabilities & can::TLS == 0 {
            return Err(Error::NoTls);
        }
        Ok(head(self.agreed(account) | can::TLS))
    }

    /// The login itself, with the first answer of a plugin.
    pub(crate) fn response(
        &self,
        account: &Account,
        capabilities: u64,
        plugin: &[u8],
        answer: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut out = head(capabilities);
        put_with_nul(&mut out, &account.user);
        match u8::try_from(answer.len()) {
            _ if capabilities & can::PLUGIN_AUTH_LENENC != 0 => put_string(&mut out, answer),
            Ok(length) => {
                out.push(length);
                out.extend_from_slice(answer);
            }
            Err(_) => return Err(Error::TooOld),
        }
        if capabilities & can::CONNECT_WITH_DB != 0 {
            put_with_nul(&mut out, &account.database);
        }
        put_with_nul(&mut out, plugin);
        Ok(out)
    }
}

/// Returns the beginning of the request for TLS and of the login: 32 bytes.
fn head(capabilities: u64) -> Vec<u8> {
    let mut out = capabilities.to_le_bytes()[..4].to_vec();
    out.extend_from_slice(&MAX_PACKET.to_le_bytes()[..4]);
    out.push(COLLATION);
    // 19 bytes of filler, and none of MariaDB's extended capabilities.
    out.resize(32, 0);
    out
}
