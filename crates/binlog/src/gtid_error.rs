//! Faults in the text of a GTID.

/// Bytes of a text that an error shows.
const SHOWN: usize = 80;

/// A text is not a GTID, or not a set of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GtidError {
    /// Not a GTID of MariaDB.
    #[error("{text:?} is not a GTID of MariaDB: write DOMAIN-SERVER-SEQUENCE, such as 0-1-26")]
    MariaDb {
        /// Beginning of the text.
        text: String,
    },
    /// Not a GTID of either fork.
    #[error(
        "{text:?} is not a GTID: write DOMAIN-SERVER-SEQUENCE of MariaDB, such as 0-1-26, or UUID:NUMBER or \
         UUID:TAG:NUMBER of MySQL"
    )]
    Any {
        /// Beginning of the text.
        text: String,
    },
    /// Two transactions of one domain in a position.
    #[error("two GTIDs of domain {domain} in one position: name only the last one")]
    Domain {
        /// The domain.
        domain: u32,
    },
    /// Not a GTID of MySQL, or not a set.
    #[error(
        "{text:?} is not a GTID or a GTID set of MySQL: write UUID:NUMBER, UUID:FIRST-LAST or UUID:TAG:NUMBER"
    )]
    MySql {
        /// Beginning of the text.
        text: String,
    },
}

impl GtidError {
    pub(crate) fn mariadb(text: &str) -> Self {
        Self::MariaDb { text: shown(text) }
    }

    pub(crate) fn any(text: &str) -> Self {
        Self::Any { text: shown(text) }
    }

    pub(crate) fn mysql(text: &str) -> Self {
        Self::MySql { text: shown(text) }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
