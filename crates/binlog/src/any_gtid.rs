//! Identity of one transaction of either fork.

use std::fmt;
use std::str::FromStr;

use crate::gtid_error::GtidError;
use crate::mariadb_gtid::Gtid;
use crate::mysql_gtid::{GtidSource, MySqlGtid};

/// Identity of one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnyGtid {
    /// Of MariaDB.
    MariaDb(Gtid),
    /// Of MySQL.
    MySql(MySqlGtid),
}

/// A source that numbers transactions one after the other. All servers have its transactions in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GtidSequence {
    /// A domain of MariaDB.
    Domain(u32),
    /// A source of MySQL.
    Source(GtidSource),
}

impl fmt::Display for GtidSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(domain) => domain.fmt(f),
            Self::Source(source) => source.fmt(f),
        }
    }
}

impl AnyGtid {
    /// The source that numbers it.
    #[must_use]
    pub fn sequence(&self) -> GtidSequence {
        match self {
            Self::MariaDb(gtid) => GtidSequence::Domain(gtid.domain),
            Self::MySql(gtid) => GtidSequence::Source(gtid.source.clone()),
        }
    }

    /// Its number there.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            Self::MariaDb(gtid) => gtid.sequence,
            Self::MySql(gtid) => gtid.number,
        }
    }
}

impl From<Gtid> for AnyGtid {
    fn from(gtid: Gtid) -> Self {
        Self::MariaDb(gtid)
    }
}

impl From<MySqlGtid> for AnyGtid {
    fn from(gtid: MySqlGtid) -> Self {
        Self::MySql(gtid)
    }
}

impl fmt::Display for AnyGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MariaDb(gtid) => gtid.fmt(f),
            Self::MySql(gtid) => gtid.fmt(f),
        }
    }
}

impl FromStr for AnyGtid {
    type Err = GtidError;

    /// Parses `DOMAIN-SERVER-SEQUENCE`, `UUID:NUMBER` or `UUID:TAG:NUMBER`.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        let parsed = match text.contains(':') {
            true => text.parse().map(Self::MySql),
            false => text.parse().map(Self::MariaDb),
        };
        parsed.map_err(|_| GtidError::any(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_tells_the_fork() {
        let uuid = "11111111-2222-3333-4444-555555555555";
        for text in ["0-1-26", &format!("{uuid}:26"), &format!("{uuid}:tag:26")] {
            let parsed: AnyGtid = text.parse().unwrap();
            assert_eq!(matches!(parsed, AnyGtid::MySql(_)), text.contains(':'));
            assert_eq!(parsed.to_string(), text);
        }
        for bad in ["", "0-1", &format!("{uuid}:1-2"), "bin.000001:1343"] {
            assert!(bad.parse::<AnyGtid>().is_err(), "{bad}");
        }
    }
}
