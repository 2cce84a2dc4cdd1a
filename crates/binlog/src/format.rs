//! The format description: which server wrote a log, and whether its events have checksums.

use crate::fields::Fields;

/// Length limit of the event, in bytes. MariaDB's has 252.
pub(crate) const MAX_FORMAT: u32 = 1024;
/// Version of the format of binary logs, since MySQL 5.0.
const VERSION: u16 = 4;
/// Length of the version text.
const TEXT: usize = 50;
/// Event types of the oldest servers whose events are understood: MySQL 5.6, MariaDB 10.0.
const MYSQL_TYPES: std::ops::RangeInclusive<usize> = 35..=100;
const MARIADB_TYPES: std::ops::RangeInclusive<usize> = 163..=254;

/// A family of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fork {
    /// MySQL and Percona Server.
    MySql,
    /// MariaDB.
    MariaDb,
}

/// How the events of a log are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// Not at all. The format description has a checksum even so.
    None,
    /// A CRC-32 after each event.
    Crc32,
}

/// Description of a log, from its first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatDescription {
    /// Version of the server, such as `10.11.19-MariaDB-log`.
    pub server_version: String,
    /// Family of the server. The number of event types shows it, as the version can be set freely.
    pub fork: Fork,
    /// Seconds since 1970 if the server started with this log, else 0.
    pub created: u32,
    /// Checksums of the events.
    pub checksums: ChecksumKind,
}

impl FormatDescription {
    /// Decodes the body of the event, without its own checksum. `None` if it is malformed, or of a
    /// server before MySQL 5.6 or MariaDB 10.0. ("FORMAT_DESCRIPTION_EVENT", documentation of
    /// MariaDB Server)
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(body);
        let is_known = fields.u16()? == VERSION;
        let text = fields.bytes(TEXT)?.split(|byte| *byte == 0).next()?;
        let created = fields.u32()?;
        let header = fields.u8()?;
        let (kind, types) = fields.rest().split_last()?;
        let fork = match types.len() {
            n if MYSQL_TYPES.contains(&n) => Fork::MySql,
            n if MARIADB_TYPES.contains(&n) => Fork::MariaDb,
            _ => return None,
        };
        let checksums = match kind {
            0 => ChecksumKind::None,
            1 => ChecksumKind::Crc32,
            _ => return None,
        };
        let is_usual = is_known && usize::from(header) == crate::header::HEADER_LEN;
        let server_version = String::from_utf8_lossy(text).into_owned();
        is_usual.then_some(Self { server_version, fork, created, checksums })
    }
}
