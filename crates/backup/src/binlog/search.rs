//! Finds the place in another server's logs at which the archive ends: the server has sent the last stretches of stored
//! transactions, in the order of each domain or source, with the same content, and no other ones. No I/O.

use xb_binlog::{ChecksumKind, GtidPosition, GtidState, LogPosition, SentReader, Uuid};
use xb_mysql::DumpItem;
use xb_repo::archive::segment::LastTransaction;
use xb_repo::archive::stream::{StoredPosition, StoredRepeats};

use crate::archive_error::ArchiveError;
use crate::binlog::elsewhere::ArchiveEnd;
use crate::binlog::search_by_domain::SearchByDomain;
use crate::binlog::search_by_set::SearchBySet;
use crate::binlog::sent_transactions::{SentItem, SentTransactions};

/// Facts about the other server.
#[derive(Debug, Clone)]
pub(crate) struct OtherServer {
    /// Its `server_id`.
    pub(crate) id: u32,
    /// Its `server_uuid`, of MySQL.
    pub(crate) uuid: Option<Uuid>,
    /// MariaDB: the last transactions that it has replicated.
    pub(crate) applied: GtidPosition,
    /// End of its newest log when it was asked.
    pub(crate) end: LogPosition,
    /// It is a node of Galera.
    pub(crate) is_node: bool,
}

/// How a search ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The archive's end is here.
    Here(Box<Takeover>),
    /// The server has another history, in the logs from this one on.
    Branch { log: String, reason: String },
    /// Nothing shows whether the server has the archive's history.
    Unknown(String),
}

impl Outcome {
    /// The same, with how the server differs from the one before.
    pub(crate) fn said_of(self, how: &str) -> Self {
        let all = |reason: String| format!("this is another server: {how}; {reason}");
        match self {
            Self::Here(here) => Self::Here(here),
            Self::Branch { log, reason } => Self::Branch { log, reason: all(reason) },
            Self::Unknown(reason) => Self::Unknown(all(reason)),
        }
    }
}

/// Where another server takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Takeover {
    /// Position behind the last transaction before the first one that is not stored.
    pub(crate) at: StoredPosition,
    /// The transaction that ends there, as this server has it.
    pub(crate) last: Option<LastTransaction>,
    /// The archive's GTIDs, without domains that the server's log does not have.
    pub(crate) gtids: GtidState,
    /// Stored transactions that follow.
    pub(crate) repeats: Option<StoredRepeats>,
}

/// Progress after some bytes.
#[derive(Debug)]
pub(crate) enum SearchStep {
    /// Nothing yet.
    More,
    /// The server has sent everything that it has, and lacks transactions of the archive.
    Behind(String),
    /// The search has ended.
    Ended(Outcome),
}

/// A search through what a server sends, from the beginning of one of its logs.
#[derive(Debug)]
pub(crate) struct Search {
    sent: SentTransactions,
    rule: Rule,
}

/// Servers of MariaDB have one order in each domain, those of MySQL one order of all transactions.
#[derive(Debug)]
enum Rule {
    ByDomain(SearchByDomain),
    BySet(SearchBySet),
}

impl Search {
    pub(crate) fn new(
        checksums: ChecksumKind,
        log: &str,
        archive: ArchiveEnd,
        server: OtherServer,
    ) -> Self {
        let ArchiveEnd { gtids, stretches } = archive;
        let rule = match gtids {
            GtidState::MariaDb(gtids) => {
                Rule::ByDomain(SearchByDomain::new(log, (gtids, stretches), server))
            }
            GtidState::MySql(gtids) => {
                Rule::BySet(SearchBySet::new(log, (gtids, stretches), server))
            }
        };
        Self { sent: SentTransactions::new(checksums, log), rule }
    }

    pub(crate) fn reader(&self) -> &SentReader {
        self.sent.reader()
    }

    /// Takes bytes.
    pub(crate) fn take(&mut self, dumped: DumpItem<'_>) -> Result<SearchStep, ArchiveError> {
        let DumpItem::Event(part) = dumped else { return Err(ArchiveError::Ended) };
        let mut input = part.bytes;
        loop {
            let item = match self.sent.next(&mut input) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(ArchiveError::Log(error @ xb_binlog::Error::History { .. })) => {
                    return Ok(SearchStep::Ended(Outcome::Unknown(error.to_string())));
                }
                Err(error) => return Err(error),
            };
            match self.item(item) {
                SearchStep::More => {}
                found => return Ok(found),
            }
        }
        if part.is_last {
            self.sent.end_packet()?;
        }
        Ok(SearchStep::More)
    }

    fn item(&mut self, item: SentItem) -> SearchStep {
        match &mut self.rule {
            Rule::ByDomain(search) => search.item(&self.sent, item),
            Rule::BySet(search) => search.item(&self.sent, item),
        }
    }
}

/// Returns whether the server had not more than this when it was asked. A busy one is never idle.
pub(super) fn is_past(sent: &SentTransactions, server: &OtherServer) -> bool {
    sent.reader().position().is_some_and(|at| *at >= server.end)
}

#[cfg(test)]
impl Search {
    /// The server has nothing more.
    pub(super) fn idle(&mut self) -> SearchStep {
        self.item(SentItem::Idle)
    }
}
