//! Question and outcome of a search in another server's logs.

use std::fmt::Display;

use xb_binlog::{Content, GtidPosition, GtidSet, GtidState, LogPosition, Overlap, Uuid};
use xb_repo::archive::segment::LastTransaction;
use xb_repo::archive::stream::{StoredPosition, StoredRepeats};

use crate::binlog::overlap::sent_transactions::SentTransactions;

/// Facts about the other server.
#[derive(Debug, Clone)]
pub(crate) struct OtherServer {
    /// Its `server_id`.
    pub(crate) id: u32,
    /// Its `server_uuid`, of MySQL.
    pub(crate) uuid: Option<Uuid>,
    /// MariaDB: the last transactions that it has replicated.
    pub(crate) applied: GtidPosition,
    /// MySQL: the transactions that it had before it was asked for its logs, in them or not.
    pub(crate) executed: GtidSet,
    /// End of its newest log when it was asked.
    pub(crate) end: LogPosition,
    /// It is a node of Galera.
    pub(crate) is_node: bool,
}

/// Comparison of the archive's last stretches with what a server sends, from the beginning of one of its logs.
#[derive(Debug)]
pub(crate) struct StretchSearch {
    first_log: String,
    pub(crate) stretches: Vec<Overlap>,
    pub(crate) server: OtherServer,
    /// A stored transaction with an event that cannot be compared.
    unread: Option<String>,
}

impl StretchSearch {
    pub(crate) fn new(log: &str, stretches: Vec<Overlap>, server: OtherServer) -> Self {
        Self { first_log: log.to_owned(), stretches, server, unread: None }
    }

    pub(crate) fn first_log(&self) -> &str {
        &self.first_log
    }

    /// Takes a stored transaction as the server has it; without its content, it cannot be compared.
    pub(crate) fn push(&mut self, gtid: impl Display, content: Option<Content>) {
        match content {
            Some(content) => self.stretches.iter_mut().for_each(|one| {
                one.push(&content);
            }),
            None => drop(self.unread.get_or_insert_with(|| gtid.to_string())),
        }
    }

    /// The outcome if something could not be compared.
    pub(crate) fn unread(&self) -> Option<Outcome> {
        let gtid = self.unread.as_ref()?;
        Some(Outcome::Unknown(format!("{gtid} has events that cannot be compared")))
    }

    pub(crate) fn branch(&self, reason: String) -> Outcome {
        Outcome::Branch { log: self.first_log.clone(), reason }
    }

    /// Returns whether the server had not more than this when it was asked. A busy one is never idle.
    pub(crate) fn is_past(&self, sent: &SentTransactions) -> bool {
        sent.reader().position().is_some_and(|at| *at >= self.server.end)
    }
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
