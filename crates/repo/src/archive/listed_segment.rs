//! The part of a segment's head that a plan needs. An archive has hundreds of thousands of heads: the rest of each is read with
//! its segment.

use std::sync::Arc;

use jiff::Timestamp;
use xb_binlog::{GtidState, LogPosition};
use xb_encryptor::MacKey;

use crate::archive::record::{Record, RecordDigest};
use crate::archive::segment::{AHEAD, Commits, SegmentHead, StoredBarrier};
use crate::archive::shared_text::{SharedText, TextPool};
use crate::archive::stream::StoredPosition;

/// A segment as an archive lists it. The fields are those of its [`SegmentHead`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSegment {
    /// SHA-256 of its head: what names it in another record.
    pub digest: RecordDigest,
    /// ID of its stream.
    pub stream: SharedText,
    /// Number of the segment in its stream, from 0.
    pub number: u64,
    /// Digest of the head of the segment before, or of the stream's.
    pub previous: Option<RecordDigest>,
    /// Position of its first byte.
    pub from: StoredPosition,
    /// Position behind its last byte, in the same log.
    pub to: StoredPosition,
    /// The log ends here, and this one follows.
    pub next_log: Option<SharedText>,
    /// When its log was made, by the server's clock, in seconds since 1970, if that is stated.
    pub log_made: Option<u32>,
    /// Its log begins with it, and is the first one since the server was started.
    pub is_of_start: bool,
    /// GTIDs before its first transaction; `None` if its first log shows them.
    pub gtids_before: Option<SharedText>,
    /// GTIDs after its last whole transaction.
    pub gtids_after: Option<SharedText>,
    /// A transaction is open at its beginning.
    pub starts_inside: bool,
    /// A transaction is open at its end.
    pub ends_inside: bool,
    /// Transactions that end in it.
    pub transactions: u64,
    /// The last transaction of each server before another one wrote on in the same domain.
    pub turns: Option<Box<[SharedText]>>,
    /// Times of those that are not ahead of the receiver's clock.
    pub commits: Option<Commits>,
    /// When its first and its last byte were received, by the receiver's clock.
    pub received: [Timestamp; 2],
    /// Place of the last whole transaction up to its end: its first byte, and behind its last.
    pub last: Option<Box<[StoredPosition; 2]>>,
    /// Barriers.
    pub barriers: Box<[StoredBarrier]>,
    /// Barriers that are not listed.
    pub more_barriers: u64,
    /// Bytes of its events, as they are stored.
    pub stored_len: u64,
    /// Whether a holder of the stream's key wrote it; `false` if that is not known.
    pub is_authentic: bool,
}

impl ListedSegment {
    /// The part of a head, which is authentic if `key` says so.
    #[must_use]
    pub fn of(head: &Record<SegmentHead>, key: Option<&MacKey>) -> Arc<Self> {
        Self::sharing(head, key, &mut TextPool::default())
    }

    /// The same, with texts that others have, too.
    pub(super) fn sharing(
        head: &Record<SegmentHead>,
        key: Option<&MacKey>,
        pool: &mut TextPool,
    ) -> Arc<Self> {
        let is_authentic = key.is_some_and(|key| head.authenticate(key).is_ok());
        let (digest, head) = (head.digest, &head.content);
        let mut share = |text: &str| pool.share(text);
        let mut at =
            |at: &StoredPosition| StoredPosition { log: share(&at.log), offset: at.offset };
        let (from, to) = (at(&head.from), at(&head.to));
        let last = head.last.as_ref().map(|last| Box::new([at(&last.from), at(&last.to)]));
        let mut shared = |text: &Option<String>| text.as_ref().map(|text| share(text));
        let (next_log, gtids_before, gtids_after) =
            (shared(&head.next_log), shared(&head.gtids_before), shared(&head.gtids_after));
        let turns = head.turns.as_ref().map(|turns| turns.iter().map(|turn| share(turn)).collect());
        Arc::new(Self {
            digest,
            stream: share(&head.stream),
            number: head.number,
            previous: RecordDigest::parse(&head.previous),
            from,
            to,
            next_log,
            log_made: head.log_made(),
            is_of_start: head.is_of_start(),
            gtids_before,
            gtids_after,
            starts_inside: head.starts_inside,
            ends_inside: head.ends_inside,
            transactions: head.transactions,
            turns,
            commits: head.commits,
            received: head.received,
            last,
            barriers: head.barriers.clone().into(),
            more_barriers: head.more_barriers,
            stored_len: head.body.len,
            is_authentic,
        })
    }

    /// Position of its first byte.
    #[must_use]
    pub fn begin(&self) -> Option<LogPosition> {
        self.from.position()
    }

    /// Position behind its last byte.
    #[must_use]
    pub fn end(&self) -> Option<LogPosition> {
        self.to.position()
    }

    /// Returns whether the next byte of the server after this segment lies at `next`.
    #[must_use]
    pub(crate) fn is_followed_by(&self, next: &StoredPosition) -> bool {
        match &self.next_log {
            Some(log) => next.log == *log && next.offset == 4,
            None => *next == self.to,
        }
    }

    /// The latest time that a transaction of this segment may have to decide a stop, in seconds since 1970.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.received[1].as_second().saturating_add(AHEAD)
    }

    /// Time of its last transaction; if a session has set a later time than that at which it was received, that one.
    #[must_use]
    pub fn last_commit(&self) -> Option<Timestamp> {
        let last = Timestamp::from_second(self.commits?.last.into()).ok()?;
        Some(last.min(self.received[1]))
    }

    /// GTIDs before its first transaction.
    #[must_use]
    pub fn before(&self) -> Option<GtidState> {
        self.gtids_before.as_ref()?.parse().ok()
    }

    /// GTIDs after its last whole transaction.
    #[must_use]
    pub fn after(&self) -> Option<GtidState> {
        self.gtids_after.as_ref()?.parse().ok()
    }
}
