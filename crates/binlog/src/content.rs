//! Digest of what a transaction does: the same in the logs of all servers that have it.
//!
//! A replica writes a transaction of its source again, and a node of a cluster that of another node. What each server
//! chooses itself does not count; everything else does, as ADR 23 lists it. Memory is the same for a transaction of
//! any size, up to a limit on the number of its tables.

use crate::any_gtid::AnyGtid;
use crate::change_format::ChangeFormat;
use crate::content_payload::PayloadContent;
use crate::event::{Entry, Event};
use crate::format::{ChecksumKind, Fork};
use crate::partial_event::{Kind, PartialEvent};
use crate::query::Verb;
use crate::transaction_digest::TransactionDigest;
use crate::transactions::{Outcome, Transaction};

const SUM: usize = 4;

/// Each server of MariaDB has temporary tables of its own, and words of its own for them.
const TEMPORARY: [&[u8]; 2] = [b"CREATE TEMPORARY ", b"DROP TEMPORARY "];

/// Content of a transaction, and the format in which its log has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Content {
    /// GTID of the transaction.
    pub gtid: AnyGtid,
    /// SHA-256 of what it does.
    pub digest: [u8; 32],
    /// How its changes are written.
    pub form: ChangeFormat,
}

/// Takes the bytes of transactions as they are in a log, in pieces of any size.
#[derive(Debug, Default)]
pub struct ContentDigest {
    transaction: TransactionDigest,
    event: PartialEvent,
    payload: PayloadContent,
}

impl ContentDigest {
    /// Begins with no transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes of the present event, which is of a log of this fork.
    pub fn take(&mut self, bytes: &[u8], fork: Fork, checksums: ChecksumKind) {
        let sum = if checksums == ChecksumKind::Crc32 { SUM } else { 0 };
        let packed = self.event.take(bytes, fork, sum);
        if !packed.is_empty() {
            self.payload.take(packed, &mut self.transaction);
        }
    }

    /// Ends the present event, which is this one. It counts if it is of a transaction.
    pub fn end_event(&mut self, entry: &Entry) {
        match &entry.event {
            Event::MariaDbBegin(begin) => {
                self.clear();
                self.transaction = TransactionDigest::of_mariadb(begin.flags.is_standalone());
            }
            Event::MySqlBegin(_) => {
                self.clear();
                self.transaction = TransactionDigest::of_mysql();
            }
            _ => {}
        }
        let (event_type, fork) = (entry.header.event_type, self.transaction.fork());
        let is_counted = match (&entry.event, Kind::of(event_type, fork)) {
            // An event of a later version may change something.
            (Event::Unknown, _) if fork == Fork::MySql => !entry.header.flags.is_ignorable(),
            (_, Kind::Nothing) => false,
            (Event::Query(query), _) => {
                matches!(query.verb, Verb::Other | Verb::XaEnd)
                    && (fork == Fork::MySql
                        || !TEMPORARY.iter().any(|of| query.text.starts_with(of)))
            }
            _ => true,
        };
        if is_counted {
            self.transaction.count(&mut self.event, event_type);
        }
        self.event.clear();
    }

    /// Ends a transaction, and returns its content. `None` if it has no GTID, or an event of it is malformed: it is equal
    /// to no other then.
    pub fn end_transaction(&mut self, ended: &Transaction) -> Option<Content> {
        let (transaction, payload) =
            (std::mem::take(&mut self.transaction), std::mem::take(&mut self.payload));
        let outcome = match ended.outcome {
            Outcome::Payload => payload.outcome()?,
            outcome => outcome,
        };
        let gtid = ended.first.gtid()?;
        let (digest, form) = transaction.end(outcome, &gtid)?;
        Some(Content { gtid, digest, form })
    }

    /// Forgets the events up to here: they are of no transaction, or of one without an end.
    pub fn clear(&mut self) {
        self.event.clear();
        (self.transaction, self.payload) = Default::default();
    }
}
