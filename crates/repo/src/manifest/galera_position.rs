//! Position of a backup in the history of a Galera cluster.

use std::fmt;

/// Position of a node in the cluster's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GaleraPosition {
    /// UUID of the cluster's history.
    pub uuid: String,
    /// Sequence number of the last write set in the backup.
    pub seqno: i64,
}

impl GaleraPosition {
    /// Parses `UUID:SEQNO`. Newer servers append a domain ID, which is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (uuid, seqno) = text.split_whitespace().next()?.split_once(':')?;
        let plausible = uuid.len() == 36
            && uuid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
            && !uuid.bytes().all(|b| b == b'0' || b == b'-');
        let seqno = seqno.parse().ok().filter(|seqno| *seqno >= 0)?;
        plausible.then(|| Self { uuid: uuid.to_owned(), seqno })
    }
}

impl fmt::Display for GaleraPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uuid, self.seqno)
    }
}
