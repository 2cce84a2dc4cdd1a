//! Records of a stream: its head, how far it reaches, its end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_binlog::{GtidSet, GtidState, LogPosition, Repeats, SystemZone};

use crate::archive::record::{Content, FORMAT, FORMAT_OF_ANOTHER};
pub use crate::archive::shared_text::SharedText;
use crate::names::RunId;

/// A position in a log of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPosition {
    /// Name of the log.
    pub log: SharedText,
    /// Offset in bytes.
    pub offset: u64,
}

impl StoredPosition {
    /// The position; `None` if the name is not a plain file name.
    #[must_use]
    pub fn position(&self) -> Option<LogPosition> {
        LogPosition::new(&self.log, self.offset)
    }
}

impl From<&LogPosition> for StoredPosition {
    fn from(position: &LogPosition) -> Self {
        Self { log: position.log().into(), offset: position.offset() }
    }
}

impl std::fmt::Display for StoredPosition {
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
    /// `wsrep_node_name` of a node of Galera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `HOST:PORT`, as the server states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Position at which the first segment begins.
    pub start: StoredPosition,
    /// GTIDs up to there; `None` if the list at the beginning of the log shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtids: Option<String>,
    /// Of a server of MySQL: transactions that its data has, and that none of its logs ever had, such as those of the backup
    /// that it was set up from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// Origin of the stream.
    pub begins: StreamOrigin,
    /// Transactions that the archive has from another server, and that this one's log has again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<StoredRepeats>,
    /// Global variables of the server that change what its statements do, and that its log lacks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// A position in the server's log at which it had them; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_at: Option<StoredPosition>,
    /// Local time of the server's system; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_zone: Option<SystemZone>,
    /// Engines that the server has; none if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<String>,
    /// Reasons why a replay of the log may give other data than the server had, by its settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Key slots, if the stream is sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sealed: Vec<String>,
}

/// Identity of a server.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// Its `server_id`.
    pub id: u32,
    /// Its `server_uuid`, if it is one of MySQL and states it.
    pub uuid: Option<&'a str>,
    /// Its `wsrep_node_name`, if it is a node of Galera: all nodes may have one `server_id`.
    pub node: Option<&'a str>,
}

impl Origin<'_> {
    /// Returns the difference of another server from this one; `None` if it may be the same.
    #[must_use]
    pub fn differs_from(self, now: Origin<'_>) -> Option<String> {
        match (self.uuid, now.uuid) {
            (Some(before), Some(now)) => {
                return (before != now)
                    .then(|| format!("its server_uuid is {now}, that of the archive's {before}"));
            }
            _ if self.id != now.id => {
                return Some(format!(
                    "its server_id is {}, that of the archive's {}",
                    now.id, self.id
                ));
            }
            _ => {}
        }
        let (before, now) = self.node.zip(now.node)?;
        (before != now).then(|| format!("it is node {now}, and the archive's is {before}"))
    }
}

/// `server_id 2`, `server_uuid …`, `node n2 (server_id 1)`
impl std::fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.uuid, self.node) {
            (Some(uuid), _) => write!(f, "server_uuid {uuid}"),
            (None, Some(node)) => write!(f, "node {node} (server_id {})", self.id),
            (None, None) => write!(f, "server_id {}", self.id),
        }
    }
}

/// Transactions that an archive has from one server, and that the log of another one has again: servers write the
/// domains of MariaDB in different orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRepeats {
    /// GTIDs up to which the archive has them.
    pub gtids: String,
    /// Position behind which the log has none of them.
    pub until: StoredPosition,
}

impl StoredRepeats {
    /// The same for a reader of the log; `None` if it is malformed.
    #[must_use]
    pub fn parse(&self) -> Option<Repeats> {
        Some(Repeats { gtids: self.gtids.parse().ok()?, until: self.until.position()? })
    }
}

impl StreamHead {
    /// The server that it was received from.
    #[must_use]
    pub fn origin(&self) -> Origin<'_> {
        let (uuid, node) = (self.server_uuid.as_deref(), self.node.as_deref());
        Origin { id: self.server_id, uuid, node }
    }

    /// The transactions that the server has, and that none of its logs ever had.
    #[must_use]
    pub fn outside(&self) -> GtidSet {
        self.outside.as_deref().and_then(|set| set.parse().ok()).unwrap_or_default()
    }

    /// The format that it needs.
    #[must_use]
    pub fn needed_format(&self) -> u32 {
        let is_moved = matches!(self.begins, StreamOrigin::Continues { at: Some(_), .. });
        if is_moved || self.repeats.is_some() { FORMAT_OF_ANOTHER } else { FORMAT }
    }

    /// Transactions that the archive has already, for a reader of its log.
    #[must_use]
    pub fn repeats(&self) -> Option<Repeats> {
        self.repeats.as_ref().and_then(StoredRepeats::parse)
    }

    /// End of the part that counts of the stream before this one, in that one's logs; `None` if all of it counts.
    #[must_use]
    pub fn takes_over_at(&self, before: &Self) -> Option<&StoredPosition> {
        match &self.begins {
            StreamOrigin::Continues { at, .. } => Some(at.as_ref().unwrap_or(&self.start)),
            // The names of another server's logs mean nothing here.
            _ if self.is_of_another_server(before) => None,
            _ => Some(&self.start),
        }
    }

    /// Returns whether the server is not the one of the stream before, as far as the records show.
    #[must_use]
    pub(crate) fn is_of_another_server(&self, before: &Self) -> bool {
        match &self.begins {
            StreamOrigin::Continues { at, .. } => at.is_some(),
            _ => before.origin().differs_from(self.origin()).is_some(),
        }
    }
}

/// Origin of a stream: the end of another stream, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum StreamOrigin {
    /// Nothing: it is the first of its server.
    First,
    /// It continues what another stream has: at least one stored transaction was received again, with the same bytes;
    /// from another server, with the same content. Or the server has purged that, and wrote none since: then all of its log
    /// that the other stream ends with is received again.
    Continues {
        /// The last segment that it follows.
        after: Link,
        /// Position up to which the other stream counts, if its server is another one, which has the same
        /// transactions up to there in logs of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<StoredPosition>,
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
        /// The difference.
        reason: String,
    },
}

/// The reason of a gap in which the server ran without a log begins with this.
pub const UNLOGGED: &str = "the server ran without a binary log";

impl StreamOrigin {
    /// Whether what is lacking was never logged, so that no other receiver has it.
    #[must_use]
    pub fn is_behind_unlogged(&self) -> bool {
        matches!(self, Self::Gap { reason, .. } if reason.starts_with(UNLOGGED))
    }

    /// The segment that the stream follows.
    #[must_use]
    pub fn after(&self) -> Option<&Link> {
        match self {
            Self::First => None,
            Self::Continues { after, .. }
            | Self::Gap { after, .. }
            | Self::Branch { after, .. } => Some(after),
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
        if self.settings_at.as_ref().is_some_and(|at| at.position().is_none()) {
            return Some("the position of the settings");
        }
        if self.gtids.as_ref().is_some_and(|gtids| gtids.parse::<GtidState>().is_err()) {
            return Some("the GTIDs");
        }
        if self.repeats.as_ref().is_some_and(|repeats| repeats.parse().is_none()) {
            return Some("the transactions that are repeated");
        }
        if self.repeats.is_some() && !matches!(self.begins, StreamOrigin::Continues { .. }) {
            return Some("transactions that are repeated of no stream");
        }
        if self.format < self.needed_format() {
            return Some("a format whose readers know no other server");
        }
        if let StreamOrigin::Continues { at: Some(at), .. } = &self.begins
            && at.position().is_none()
        {
            return Some("the position in the logs of the server before");
        }
        let is_linked = self.begins.after().is_none_or(|link| is_stream(&link.stream));
        (!is_linked).then_some("the stream that it follows")
    }
}

/// End of a stream. Written again and again, and authenticated: an archive that ends before it has
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
    pub position: StoredPosition,
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

/// Beginning of the rest of a stream: `prune` has removed, or is about to remove, the segments before it,
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
    pub at: StoredPosition,
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
