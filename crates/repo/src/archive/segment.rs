//! The head of a segment.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_binlog::{AnyGtid, Barrier, Gtid, GtidState, LogPosition, Stretch};

use crate::archive::domain::DomainContent;
use crate::archive::record::Content;
use crate::archive::stream::StoredPosition;
use crate::hex::unhex;
use crate::names::RunId;

/// Hexadecimal digits of the time at the beginning of a format description event: when the log was made.
const TIME_DIGITS: usize = 8;
/// Digits of the time at which the server was started, 0 if its log is a later one: behind the header, a version and the
/// server's version.
const CREATED_DIGITS: std::ops::Range<usize> = 2 * (19 + 2 + 50)..2 * (19 + 2 + 50 + 4);
/// Offset of the first event of a log.
const FIRST_OFFSET: u64 = 4;
/// Barriers that a head lists; it counts the others.
pub const MAX_BARRIERS: usize = 64;
/// Turns that a head lists; what lies behind the last of as many is not known.
pub const MAX_TURNS: usize = 64;
/// Seconds that the time of a transaction may be ahead of the receiver's clock. One that is further ahead has
/// a wrong time, and decides no stop.
pub const AHEAD: i64 = 5;

/// The head of a segment: what its events are, without them. A segment has events of one log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentHead {
    /// Version of the format.
    pub format: u32,
    /// ID of its stream.
    pub stream: String,
    /// Number of the segment in its stream, from 0.
    pub number: u64,
    /// Digest of the head of the segment before, or of the stream's.
    pub previous: String,
    /// Position of its first byte.
    pub from: StoredPosition,
    /// Position behind its last byte, in the same log.
    pub to: StoredPosition,
    /// The log ends here, and this one follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_log: Option<String>,
    /// The format description event of the log, hexadecimal: what a reader needs to read the events.
    pub description: String,
    /// GTIDs before its first transaction; `None` if its first log shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids_before: Option<String>,
    /// GTIDs after its last whole transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids_after: Option<String>,
    /// A transaction is open at its beginning.
    #[serde(default)]
    pub starts_inside: bool,
    /// A transaction is open at its end.
    #[serde(default)]
    pub ends_inside: bool,
    /// Transactions that end in it.
    pub transactions: u64,
    /// Content of these transactions in each domain of MariaDB or of each source of MySQL, without those that the archive
    /// had already. `None` if it is not known: of an earlier version of the writer, or if an event is malformed or a GTID
    /// out of order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<DomainContent>>,
    /// Of MariaDB, the last transaction of each server before another one wrote on in the same domain, in order, without those
    /// that the archive had already: the first [`MAX_TURNS`]. `None` of an earlier version of the writer, and of MySQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Vec<String>>,
    /// Times of those that are not ahead of the receiver's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<Commits>,
    /// When its first and its last byte were received, by the receiver's clock.
    pub received: [Timestamp; 2],
    /// The last whole transaction up to its end, by whose bytes a later receiver recognises the server's
    /// history. It may lie in an earlier segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastTransaction>,
    /// Barriers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barriers: Vec<StoredBarrier>,
    /// Barriers that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_barriers: u64,
    /// XA transactions that are prepared at its end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prepared: u64,
    /// Two-phase `ALTER TABLE` that have begun and not ended at its end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub altering: u64,
    /// The events, as they are stored.
    pub body: Body,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Times of transactions, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commits {
    /// Time of the first transaction.
    pub first: u32,
    /// Time of the last transaction.
    pub last: u32,
    /// The latest.
    pub greatest: u32,
}

/// A transaction by its place and its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTransaction {
    /// Its GTID.
    pub gtid: String,
    /// Position of its first byte.
    pub from: StoredPosition,
    /// Position behind its last byte.
    pub to: StoredPosition,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// A barrier and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBarrier {
    /// `incident` or `tablespace`.
    pub kind: String,
    /// Position of the event.
    pub at: StoredPosition,
}

impl StoredBarrier {
    /// A barrier at a position.
    #[must_use]
    pub fn new(barrier: Barrier, at: StoredPosition) -> Self {
        let kind = match barrier {
            Barrier::Incident => "incident",
            Barrier::Tablespace => "tablespace",
        };
        Self { kind: kind.to_owned(), at }
    }

    /// Says for people what has happened there.
    #[must_use]
    pub fn meaning(&self) -> &'static str {
        match self.kind.as_str() {
            "incident" => "the server lost changes, and recorded that in its log",
            _ => "a statement may have moved a tablespace, whose file is not in the log",
        }
    }
}

/// The native stream behind the head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// Its stream ID, from which the key of a sealed one is derived; `None` without a seal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its length in bytes.
    pub len: u64,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

impl SegmentHead {
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

    /// When its log was made, by the server's clock, in seconds since 1970, if that is stated.
    #[must_use]
    pub fn log_made(&self) -> Option<u32> {
        let made = unhex::<4>(self.description.get(..TIME_DIGITS)?).map(u32::from_le_bytes);
        made.filter(|made| *made > 0)
    }

    /// Returns whether its log begins with it, and is the first one since the server was started.
    #[must_use]
    pub fn is_of_start(&self) -> bool {
        let created = self.description.get(CREATED_DIGITS).and_then(unhex::<4>);
        self.from.offset == FIRST_OFFSET && created.is_some_and(|created| created != [0; 4])
    }

    /// Time of its last transaction; if a session has set a later time than that at which it was received, that one.
    #[must_use]
    pub fn last_commit(&self) -> Option<Timestamp> {
        let last = Timestamp::from_second(self.commits?.last.into()).ok()?;
        Some(last.min(self.received[1]))
    }

    /// GTIDs after its last whole transaction.
    #[must_use]
    pub fn after(&self) -> Option<GtidState> {
        self.gtids_after.as_ref()?.parse().ok()
    }

    /// Returns the content of its transactions, if it is known.
    #[must_use]
    pub fn stretch(&self) -> Option<Stretch> {
        DomainContent::stretch(self.domains.as_ref()?)
    }

    /// GTIDs before its first transaction.
    #[must_use]
    pub fn before(&self) -> Option<GtidState> {
        self.gtids_before.as_ref()?.parse().ok()
    }
}

impl Content for SegmentHead {
    fn format(&self) -> u32 {
        self.format
    }

    fn flaw(&self) -> Option<&'static str> {
        let are_gtids = |text: &Option<String>| {
            text.as_ref().is_none_or(|text| text.parse::<GtidState>().is_ok())
        };
        let is_digest = |text: &str| unhex::<32>(text).is_some();
        let checks = [
            (RunId::parse(&self.stream).is_some(), "the ID of the stream"),
            (self.begin().is_some() && self.end().is_some(), "the name of the log"),
            (
                self.from.log == self.to.log && self.from.offset < self.to.offset,
                "its positions are not in order",
            ),
            (
                self.next_log.as_ref().is_none_or(|log| LogPosition::new(log, 4).is_some()),
                "the name of the next log",
            ),
            (are_gtids(&self.gtids_before) && are_gtids(&self.gtids_after), "the GTIDs"),
            (
                self.turns.iter().flatten().all(|turn| turn.parse::<Gtid>().is_ok()),
                "the last transactions of its servers",
            ),
            (is_digest(&self.previous) && is_digest(&self.body.sha256), "a digest"),
            (self.body.id.as_ref().is_none_or(|id| unhex::<16>(id).is_some()), "the stream ID"),
            (
                self.last.as_ref().is_none_or(|last| {
                    last.gtid.parse::<AnyGtid>().is_ok()
                        && last.from.position().is_some()
                        && last.from.log == last.to.log
                        && last.from.offset < last.to.offset
                        && is_digest(&last.sha256)
                }),
                "its last transaction",
            ),
            (self.received[0] <= self.received[1], "its times are not in order"),
        ];
        checks.iter().find(|(is_fine, _)| !is_fine).map(|(_, what)| *what)
    }
}
