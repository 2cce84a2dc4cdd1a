//! The transactions that another server sends, each with its content. No I/O.

use sha2::{Digest as _, Sha256};
use xb_binlog::{
    ChecksumKind, Content, ContentDigest, Event, GtidState, History, SentEvent, SentReader,
    Transaction,
};
use xb_repo::archive::segment::LastTransaction;
use xb_repo::archive::stream::StoredPosition;
use xb_repo::hex::hex;

use crate::archive_error::ArchiveError;

/// Reads what a server sends from the beginning of one of its logs.
#[derive(Debug)]
pub(crate) struct SentTransactions {
    reader: SentReader,
    history: History,
    content: ContentDigest,
    /// Bytes of the transaction that is arriving.
    digest: Sha256,
}

/// One step in what a server sends.
#[derive(Debug)]
pub(crate) enum SentItem {
    /// The server has nothing more at present.
    Idle,
    /// A log begins: the GTIDs before it are known.
    Begun,
    /// A transaction.
    Ended(Box<SentTransaction>),
}

/// A transaction that has arrived.
#[derive(Debug)]
pub(crate) struct SentTransaction {
    pub(crate) ended: Transaction,
    /// `None` if it cannot be compared.
    pub(crate) content: Option<Content>,
    /// Its place, and its bytes.
    pub(crate) stored: LastTransaction,
    /// GTIDs before it.
    pub(crate) before: Option<GtidState>,
}

impl SentTransactions {
    pub(crate) fn new(checksums: ChecksumKind, log: &str) -> Self {
        Self {
            reader: SentReader::new(checksums),
            history: History::new(log, None),
            content: ContentDigest::new(),
            digest: Sha256::new(),
        }
    }

    pub(crate) fn reader(&self) -> &SentReader {
        &self.reader
    }

    /// GTIDs that the server's logs have up to here.
    pub(crate) fn gtids(&self) -> Option<&GtidState> {
        self.history.gtids()
    }

    /// Takes bytes of a packet up to the next item.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<SentItem>, ArchiveError> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let sent = self.reader.next(input, &mut bytes)?;
            self.digest.update(&bytes);
            if let Some(format) = self.reader.format() {
                self.content.take(&bytes, format.fork, format.checksums);
            }
            let Some(sent) = sent else { return Ok(None) };
            if let Some(item) = self.event(&sent)? {
                return Ok(Some(item));
            }
        }
    }

    /// A packet has ended.
    pub(crate) fn end_packet(&mut self) -> Result<(), ArchiveError> {
        Ok(self.reader.end_packet()?)
    }

    fn event(&mut self, sent: &SentEvent) -> Result<Option<SentItem>, ArchiveError> {
        let entry = sent.entry();
        if matches!(entry.event, Event::Heartbeat) {
            return Ok(Some(SentItem::Idle));
        }
        // An event may end the transaction that it begins.
        let may_end =
            !matches!(entry.event, Event::Content | Event::UserVariable(_) | Event::Control);
        let before = if may_end { self.history.gtids().cloned() } else { None };
        let step = self.history.push(entry)?;
        if !matches!(sent, SentEvent::Log(_)) {
            self.forget();
            return Ok(None);
        }
        if let Some(ended) = step.ended {
            self.content.end_event(entry);
            let log = self.history.log().to_owned();
            let at = |offset| StoredPosition { log: log.as_str().into(), offset };
            let Some(gtid) = ended.first.gtid() else {
                return Err(ArchiveError::Anonymous { log });
            };
            let content = self.content.end_transaction(&ended);
            let stored = LastTransaction {
                gtid: gtid.to_string(),
                from: at(ended.begin),
                to: at(ended.end),
                sha256: hex(&std::mem::take(&mut self.digest).finalize()),
            };
            self.forget();
            let sent = SentTransaction { ended, content, stored, before };
            return Ok(Some(SentItem::Ended(Box::new(sent))));
        }
        if self.history.open().is_some() {
            self.content.end_event(entry);
            return Ok(None);
        }
        self.forget();
        let is_list = matches!(entry.event, Event::GtidList(_) | Event::PreviousGtids(_));
        Ok(is_list.then_some(SentItem::Begun))
    }

    /// Forgets the bytes of events: they are of no transaction, or of one that has ended.
    fn forget(&mut self) {
        self.content.clear();
        self.digest = Sha256::new();
    }
}
