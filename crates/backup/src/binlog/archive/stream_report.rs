//! What a listing and a verification say about one stream of an archive.

use jiff::Timestamp;
use serde::Serialize;
use xb_repo::archive::listing::{ListedStream, Part};
use xb_repo::archive::plan::{MISSING, PlanError};
use xb_repo::archive::stream::{Origin, StreamHead, StreamOrigin};

use crate::binlog::archive::open::OF_KEYS;

/// A stream.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct StreamReport {
    /// ID of the stream.
    pub stream: String,
    /// When it began.
    pub started: Option<Timestamp>,
    /// `first`, `continues`, `gap` or `branch`.
    pub begins: Option<String>,
    /// Why, of a gap or a branch.
    pub reason: Option<String>,
    /// The server that it was received from.
    pub origin: Option<OriginReport>,
    /// Position in the logs of the server before up to which its stream counts, if this one took over from it.
    pub takes_over_at: Option<String>,
    /// Position of its first byte.
    pub from: Option<String>,
    /// Position behind its last byte.
    pub to: Option<String>,
    /// GTIDs up to there.
    pub gtids: Option<String>,
    /// Number of its segments.
    pub segments: u64,
    /// Transactions in them.
    pub transactions: u64,
    /// Bytes of its objects.
    pub bytes: u64,
    /// Everything up to this time is in it.
    pub covered_until: Option<Timestamp>,
    /// When the receiver last gave a sign of life.
    pub alive: Option<Timestamp>,
    /// Whether it is sealed.
    pub sealed: bool,
    /// A text that says what is wrong with it.
    pub problems: Vec<String>,
    /// The keys do not open it, which is one of its problems.
    #[serde(skip)]
    pub is_locked: bool,
    /// Those of the problems that say no more than that segments are missing.
    #[serde(skip)]
    lacking: Vec<String>,
    /// Segments that are missing because they were removed, as texts. They are among the gaps.
    #[serde(skip)]
    pub(crate) removed: Vec<String>,
    /// Remarks on states that cost requests, on segments that were received again, and on clocks that went back.
    pub remarks: Vec<String>,
}

impl StreamReport {
    /// Makes a remark of what is missing: this stream has received it again.
    pub(crate) fn pass_over_missing(&mut self, again: &str) {
        let lacking = std::mem::take(&mut self.lacking);
        self.problems.retain(|problem| !lacking.contains(problem));
        if let Some(first) = lacking.first() {
            self.remarks
                .push(format!("stream {again} has received again what is missing: {first}"));
        }
    }

    /// Returns whether nothing is damaged, missing or altered, as far as it could be read.
    pub(crate) fn is_undamaged(&self) -> bool {
        let is_of_keys = |problem: &String| self.is_locked && problem.starts_with(OF_KEYS);
        self.problems.iter().all(is_of_keys)
    }
}

/// A server of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OriginReport {
    /// Its `server_id`.
    pub server_id: u32,
    /// Its `server_uuid`, of MySQL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_uuid: Option<String>,
    /// Its `wsrep_node_name`, of Galera.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `HOST:PORT`, as it states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl OriginReport {
    fn of(head: &StreamHead) -> Self {
        let (server_uuid, node) = (head.server_uuid.clone(), head.node.clone());
        Self { server_id: head.server_id, server_uuid, node, host: head.host.clone() }
    }

    /// Returns the identity, without the name of the host.
    #[must_use]
    pub fn identity(&self) -> String {
        let (uuid, node) = (self.server_uuid.as_deref(), self.node.as_deref());
        Origin { id: self.server_id, uuid, node }.to_string()
    }
}

/// `server_id 2 (db2:3306)`
impl std::fmt::Display for OriginReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.identity())?;
        self.host.as_ref().map_or(Ok(()), |host| write!(f, " ({host})"))
    }
}

/// The report of a stream: `problems` that reading it has shown beside those of its listing, and those of them that say no more than that
/// it is `lacking` segments.
pub(crate) fn stream_report(
    found: &ListedStream,
    problems: &[String],
    lacking: &[String],
    is_locked: bool,
) -> StreamReport {
    let missing = found.problems.iter().filter(|problem| problem.part == Part::Missing);
    let mut lacking: Vec<String> =
        missing.map(ToString::to_string).chain(lacking.iter().cloned()).collect();
    let problems = found.problems.iter().map(ToString::to_string).chain(problems.iter().cloned());
    let mut report = StreamReport {
        stream: found.id.to_string(),
        started: None,
        begins: None,
        reason: None,
        origin: None,
        takes_over_at: None,
        from: None,
        to: None,
        gtids: None,
        segments: found.sizes.len() as u64,
        transactions: 0,
        bytes: found.sizes.values().sum(),
        covered_until: found.alive.as_ref().and_then(|alive| alive.content.covered_until),
        alive: found.alive.as_ref().map(|alive| alive.content.written),
        sealed: found.is_sealed(),
        problems: problems.collect(),
        is_locked,
        lacking: Vec::new(),
        removed: Vec::new(),
        remarks: found.remarks.clone(),
    };
    let Some(stream) = &found.stream else { return report };
    let head = &stream.head.content;
    let is_missing =
        |error: &PlanError| matches!(error, PlanError::Segment { what, .. } if what == MISSING);
    report.started = Some(head.started);
    report.from = Some(head.start.to_string());
    report.origin = Some(OriginReport::of(head));
    if let StreamOrigin::Continues { at: Some(at), .. } = &head.begins {
        report.takes_over_at = Some(at.to_string());
    }
    let (kind, reason) = match &head.begins {
        StreamOrigin::First => ("first", None),
        StreamOrigin::Continues { .. } => ("continues", None),
        StreamOrigin::Gap { reason, .. } => ("gap", Some(reason.clone())),
        StreamOrigin::Branch { reason, .. } => ("branch", Some(reason.clone())),
    };
    report.begins = Some(kind.to_owned());
    report.reason = reason;
    let (pieces, breaks) = stream.chain();
    if let Some(last) = pieces.last() {
        report.covered_until = report.covered_until.max(last.segment.last_commit());
        report.to = Some(last.segment.to.to_string());
        report.gtids = last.segment.gtids_after.as_deref().map(str::to_owned);
    }
    // The heads of an archive without a key may state anything.
    let stated = pieces.iter().map(|piece| piece.segment.transactions);
    report.transactions = stated.fold(0, u64::saturating_add);
    for (_, error) in breaks.iter().filter(|(_, error)| !is_named(found, error)) {
        let text = error.to_string();
        if is_missing(error) {
            lacking.push(text.clone());
        }
        let into = if is_removed(error) { &mut report.removed } else { &mut report.problems };
        if !into.contains(&text) {
            into.push(text);
        }
    }
    report.lacking = lacking;
    report
}

/// Returns whether a problem of the stream says already why a segment cannot be read.
fn is_named(found: &ListedStream, error: &PlanError) -> bool {
    let PlanError::Segment { number, what, .. } = error else { return false };
    let [one, other] = [format!("segment {number} "), format!("segment {number}:")];
    let names = |what: &str| what.starts_with(&one) || what.starts_with(&other);
    what == MISSING && found.problems.iter().any(|problem| names(&problem.what))
}

/// Returns whether segments are missing that were removed as a floor says, which is a gap for backups before it, and no damage.
fn is_removed(error: &PlanError) -> bool {
    matches!(error, PlanError::Gap { .. })
}
