//! Finds the place on another server of the same data at which the archive ends: behind the last stored transaction, with
//! all stored transactions before it and no other one.

use sha2::{Digest as _, Sha256};
use xb_binlog::{AnyGtid, ChecksumKind, Content, Event, GtidState, History, Sent, SentReader};
use xb_mysql::Dumped;
use xb_repo::archive::segment::LastTransaction;
use xb_repo::archive::stream::At;
use xb_repo::hex::hex;

use crate::archive_error::ArchiveError;
use crate::binlog::start::{Search, Start};

/// A search through what the server sends, from the beginning of one of its logs.
pub(super) struct Joint {
    reader: SentReader,
    history: History,
    wanted: LastTransaction,
    search: Search,
    is_seen: bool,
    /// First bytes of the event or transaction that is arriving, and the digest of all of them.
    beginning: Vec<u8>,
    digest: Sha256,
}

/// What came of some bytes.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing yet.
    More,
    /// The server has sent everything that it has, and lacks transactions of the archive.
    Behind(String),
    /// The place is here, and this transaction before it.
    Here(At, LastTransaction),
    /// The server ended the connection.
    End,
}

impl Joint {
    /// `None` if `start` is known without a search.
    pub(super) fn new(checksums: ChecksumKind, start: &Start) -> Option<Self> {
        let (search, wanted) = (start.search.clone()?, start.overlap.clone()?);
        Some(Self {
            reader: SentReader::new(checksums),
            history: History::new(&start.at.log, None),
            wanted,
            search,
            is_seen: false,
            beginning: Vec::new(),
            digest: Sha256::new(),
        })
    }

    pub(super) fn reader(&self) -> &SentReader {
        &self.reader
    }

    /// The reader and the history at the place that was found.
    pub(super) fn end(self) -> (SentReader, History) {
        (self.reader, self.history)
    }

    /// Takes bytes. Parts of a packet end with an event, so that nothing behind the place is taken.
    pub(super) fn take(&mut self, dumped: Dumped<'_>) -> Result<Found, ArchiveError> {
        let Dumped::Event(part) = dumped else { return Ok(Found::End) };
        let mut input = part.bytes;
        let mut bytes = Vec::new();
        let mut found = Found::More;
        loop {
            bytes.clear();
            let sent = self.reader.next(&mut input, &mut bytes)?;
            self.digest.update(&bytes);
            let room = Content::NEEDED - self.beginning.len().min(Content::NEEDED);
            self.beginning.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
            let Some(sent) = sent else { break };
            found = self.event(&sent)?;
        }
        if part.is_last {
            self.reader.end_packet()?;
        }
        Ok(found)
    }

    fn event(&mut self, sent: &Sent) -> Result<Found, ArchiveError> {
        let entry = sent.entry();
        let wanted = &self.wanted.gtid;
        let has = self.history.gtids().map(ToString::to_string).unwrap_or_default();
        let has = if has.is_empty() { "no transaction".to_owned() } else { has };
        if matches!(entry.event, Event::Heartbeat) {
            let what = format!("it has {has}, and not yet {wanted}, which is stored");
            return match self.search.may_be_behind {
                true => Ok(Found::Behind(what)),
                false => Err(ArchiveError::Branches(format!(
                    "it has {has}, and no longer {wanted}, which is stored"
                ))),
            };
        }
        let step = self.history.push(entry)?;
        if matches!(entry.event, Event::GtidList(_) | Event::PreviousGtids(_))
            && !self.history.gtids().is_none_or(|gtids| gtids.is_within(&self.search.gtids))
        {
            let found = self.history.gtids().map(ToString::to_string).unwrap_or_default();
            return Err(ArchiveError::Branches(format!(
                "its log {} begins behind {found}, and the archive has {}",
                self.history.log(),
                self.search.gtids
            )));
        }
        let Some(ended) = step.ended else {
            if self.history.open().is_none() {
                self.beginning.clear();
                self.digest = Sha256::new();
            }
            return Ok(Found::More);
        };
        let bytes = std::mem::take(&mut self.beginning);
        let digest = std::mem::take(&mut self.digest).finalize();
        let log = self.history.log().to_owned();
        let Some(gtid) = ended.first.gtid() else {
            return Err(ArchiveError::Anonymous { log });
        };
        let checksums = self.reader.format().map_or(ChecksumKind::None, |f| f.checksums);
        let content = Content::of(&bytes, checksums).map(|content| hex(&content.0));
        if gtid.to_string() == *wanted {
            if content != self.wanted.content {
                return Err(ArchiveError::Branches(format!(
                    "its transaction {wanted} at {log}:{} does something else than the stored one",
                    ended.begin
                )));
            }
            self.is_seen = true;
        } else if !has_exactly(&self.search.gtids, &gtid) {
            return Err(ArchiveError::Branches(format!(
                "it has the transaction {gtid}, which is not stored, in place of {wanted} or before it"
            )));
        }
        if !self.is_seen || self.history.gtids() != Some(&self.search.gtids) {
            return Ok(Found::More);
        }
        let at = |offset| At { log: log.clone(), offset };
        let last = LastTransaction {
            gtid: gtid.to_string(),
            from: at(ended.begin),
            to: at(ended.end),
            sha256: hex(&digest),
            content,
        };
        Ok(Found::Here(at(ended.end), last))
    }
}

/// Whether a transaction is stored: of MariaDB, the last one of a domain by all of its numbers.
fn has_exactly(stored: &GtidState, gtid: &AnyGtid) -> bool {
    match (stored, gtid) {
        (GtidState::MariaDb(stored), AnyGtid::MariaDb(gtid)) => {
            let last = stored.get(gtid.domain);
            last.is_some_and(|last| gtid.sequence < last.sequence || *gtid == last)
        }
        _ => stored.contains(gtid),
    }
}
