//! Finds the place in another server's logs at which the archive ends: the server has sent the last stretches of stored
//! transactions, in the order of each domain or source, with the same content, and no other ones. No I/O.

use xb_binlog::{ChecksumKind, GtidState, SentReader};
use xb_mysql::DumpItem;

use crate::archive_error::ArchiveError;
use crate::binlog::overlap::elsewhere::ArchiveEnd;
use crate::binlog::overlap::search_by_domain::SearchByDomain;
use crate::binlog::overlap::search_by_set::SearchBySet;
use crate::binlog::overlap::search_outcome::{OtherServer, Outcome, SearchStep, StretchSearch};
use crate::binlog::overlap::sent_transactions::{SentItem, SentTransactions};

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
        let search = StretchSearch::new(log, stretches, server);
        let rule = match gtids {
            GtidState::MariaDb(gtids) => Rule::ByDomain(SearchByDomain::new(gtids, search)),
            GtidState::MySql(gtids) => Rule::BySet(SearchBySet::new(gtids, search)),
        };
        Self { sent: SentTransactions::new(checksums, log), rule }
    }

    pub(crate) fn reader(&self) -> &SentReader {
        self.sent.reader()
    }

    /// Takes bytes.
    pub(crate) fn take(&mut self, dumped: DumpItem<'_>) -> Result<SearchStep, ArchiveError> {
        let DumpItem::Event(part) = dumped else { return Err(ArchiveError::Ended) };
        let (mut input, mut step) = (part.bytes, SearchStep::More);
        loop {
            let item = match self.sent.next(&mut input) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(ArchiveError::Log(error @ xb_binlog::Error::History { .. })) => {
                    return Ok(SearchStep::Ended(Outcome::Unknown(error.to_string())));
                }
                Err(error) => return Err(error),
            };
            step = self.item(item);
            if let SearchStep::Ended(_) = step {
                return Ok(step);
            }
        }
        if part.is_last {
            self.sent.end_packet()?;
        }
        Ok(step)
    }

    fn item(&mut self, item: SentItem) -> SearchStep {
        match &mut self.rule {
            Rule::ByDomain(search) => search.item(&self.sent, item),
            Rule::BySet(search) => search.item(&self.sent, item),
        }
    }
}

#[cfg(test)]
impl Search {
    /// The server has nothing more.
    pub(crate) fn idle(&mut self) -> SearchStep {
        self.item(SentItem::Idle)
    }
}
