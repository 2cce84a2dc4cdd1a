//! Records of a stream: its head, how far it reaches, its end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_binlog::{GtidState, LogPosition};

use crate::archive::record::Content;
use crate::names::RunId;

/// A position in a log of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// Name of the log.
    pub log: String,
    /// Offset in bytes.
    pub offset: u64,
}

impl At {
    /// The position; `None` if the name is not a plain file name.
    #[must_use]
    pub fn position(&self) -> Option<LogPosition> {
        LogPosition::new(&self.log, self.offset)
    }
}

impl From<&LogPosition> for At {
    fn from(position: &LogPosition) -> Self {
        Self { log: position.log().to_owned(), offset: position.offset() }
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.log, self.offset)
    }
}

/// The head of a stream. The first segment names it by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHead {
    /// Version of the format.
    pub format: u32,
    /// ID of the stream, as in its folder's name.
    pub stream: String,
    /// Name of the server, as in the folder's.
    pub server: String,
    /// Program and version that wrote it.
    pub tool: String,
    /// When the stream began, by the receiver's clock.
    pub started: Timestamp,
    /// Version of the server, such as `10.11.19-MariaDB-log` or `9.7.4`.
    pub server_version: String,
    /// `server_id` of the server.
    pub server_id: u32,
    /// `server_uuid` of a server of MySQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_uuid: Option<String>,
    /// Where the first segment begins.
    pub start: At,
    /// GTIDs up to there; `None` if the list at the beginning of the log shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids: Option<String>,
    /// What it follows.
    pub begins: Begins,
    /// Global variables of the server that change what its statements do, and that its log lacks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Key slots, if the stream is sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sealed: Vec<String>,
}

/// Who a server is.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// Its `server_id`.
    pub id: u32,
    /// Its `server_uuid`, if it is one of MySQL and states it.
    pub uuid: Option<&'a str>,
}

impl Origin<'_> {
    /// How another server differs from this one; `None` if it may be the same.
    #[must_use]
    pub fn differs_from(self, now: Origin<'_>) -> Option<String> {
        match (self.uuid, now.uuid) {
            (Some(before), Some(now)) => (before != now)
                .then(|| format!("its server_uuid is {now}, that of the archive's {before}")),
            _ => (self.id != now.id)
                .then(|| format!("its server_id is {}, that of the archive's {}", now.id, self.id)),
        }
    }
}

impl StreamHead {
    /// The server that it was received from.
    #[must_use]
    pub fn origin(&self) -> Origin<'_> {
        Origin { id: self.server_id, uuid: self.server_uuid.as_deref() }
    }
}

/// What a stream follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Begins {
    /// Nothing: it is the first of its server.
    First,
    /// It continues what another stream has: the bytes of at least one stored transaction were received again,
    /// and are equal.
    Continues {
        /// The last segment that it follows.
        after: Link,
    },
    /// Logs between another stream and this one are lost.
    Gap {
        /// The last segment before the gap.
        after: Link,
        /// Why.
        reason: String,
    },
    /// The server's history differs from what another stream has: it begins at or before the difference.
    Branch {
        /// The last segment of the other history.
        after: Link,
        /// What differs.
        reason: String,
    },
}

impl Begins {
    /// The segment that the stream follows.
    #[must_use]
    pub fn after(&self) -> Option<&Link> {
        match self {
            Self::First => None,
            Self::Continues { after } | Self::Gap { after, .. } | Self::Branch { after, .. } => {
                Some(after)
            }
        }
    }
}

/// A segment of another stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// ID of the stream.
    pub stream: String,
    /// Number of the segment.
    pub number: u64,
    /// Digest of its head.
    pub head: String,
}

impl Content for StreamHead {
    fn format(&self) -> u32 {
        self.format
    }

    fn flaw(&self) -> Option<&'static str> {
        let is_stream = |text: &str| RunId::parse(text).is_some();
        if !is_stream(&self.stream) {
            return Some("the ID of the stream");
        }
        if self.start.position().is_none() {
            return Some("the name of the log");
        }
        if self.gtids.as_ref().is_some_and(|gtids| gtids.parse::<GtidState>().is_err()) {
            return Some("the GTIDs");
        }
        let is_linked = self.begins.after().is_none_or(|link| is_stream(&link.stream));
        (!is_linked).then_some("the stream that it follows")
    }
}

/// How far a stream reaches. Written again and again, and authenticated: an archive that ends before it has
/// lost its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Version of the format.
    pub format: u32,
    /// ID of the stream.
    pub stream: String,
    /// Number of segments that are stored, from 0 without a hole.
    pub segments: u64,
    /// Digest of the head of the last one, or of the stream's.
    pub head: String,
    /// Position behind the last one.
    pub position: At,
    /// Everything that the server had committed at this time is stored, by the receiver's clock. Known when
    /// the server was idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered_until: Option<Timestamp>,
    /// Every commit between these times, by the receiver's clock, has waited until it was stored: the server's counters
    /// show that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<[Timestamp; 2]>,
    /// When this record was written, by the receiver's clock.
    pub written: Timestamp,
    /// Why the receiver does not receive or store, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Content for Alive {
    fn format(&self) -> u32 {
        self.format
    }

    fn flaw(&self) -> Option<&'static str> {
        RunId::parse(&self.stream).is_none().then_some("the ID of the stream")
    }
}

/// The end of a stream whose receiver was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Version of the format.
    pub format: u32,
    /// ID of the stream.
    pub stream: String,
    /// Number of its segments.
    pub segments: u64,
    /// Digest of the head of the last one, or of the stream's.
    pub head: String,
}

impl Content for End {
    fn format(&self) -> u32 {
        self.format
    }

    fn flaw(&self) -> Option<&'static str> {
        RunId::parse(&self.stream).is_none().then_some("the ID of the stream")
    }
}

/// Where what is left of a stream begins: `prune` has removed, or is about to remove, the segments before it,
/// which no kept backup needs. A later one has a higher number; the highest counts.
///
/// It is not authenticated, because who prunes has no keys. A backup that needs what lies before it shows that it
/// is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// Version of the format.
    pub format: u32,
    /// ID of the stream.
    pub stream: String,
    /// Number of the first segment that is left.
    pub number: u64,
    /// Digest of the head of the segment before it, which the first one names.
    pub head: String,
    /// Position of the first byte that is left.
    pub at: At,
}

impl Content for Floor {
    fn format(&self) -> u32 {
        self.format
    }

    fn flaw(&self) -> Option<&'static str> {
        match (RunId::parse(&self.stream), self.number) {
            (None, _) => Some("the ID of the stream"),
            (_, 0) => Some("the number of the segment"),
            _ => self.at.position().is_none().then_some("the name of the log"),
        }
    }
}
