//! Decides where a stream begins: what the archive has, and what the server still has.

use xb_repo::archive::newest::stream_head;
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::{LastTransaction, SegmentHead};
use xb_repo::archive::stream::{
    Link, Origin, StoredPosition, StoredRepeats, StreamHead, StreamOrigin,
};
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;
use crate::binlog::overlap::search_outcome::{Outcome, Takeover};

/// A log that the server has, and its size in bytes.
pub(crate) type ServerLog = (String, u64);

/// Where a stream begins, and what it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) begins: StreamOrigin,
    /// Position of the first byte that is stored.
    pub(crate) at: StoredPosition,
    /// GTIDs up to there.
    pub(crate) gtids: Option<String>,
    /// A stored transaction that ends there: the server has to send it again first, with the same bytes.
    pub(crate) overlap: Option<LastTransaction>,
    /// Transactions that the archive has from another server, and that follow again.
    pub(crate) repeats: Option<StoredRepeats>,
    /// When the log was made in which it begins, in seconds since 1970, if no transaction shows that it is the stored one.
    pub(crate) made: Option<u32>,
}

impl Start {
    /// At the beginning of a log.
    pub(crate) fn whole(log: &str, begins: StreamOrigin) -> Self {
        let at = StoredPosition { log: log.into(), offset: 4 };
        Self { begins, at, gtids: None, overlap: None, repeats: None, made: None }
    }
}

/// Decides where a stream begins that follows `before`. The server has `logs`, the oldest first.
fn start(before: Option<&Record<SegmentHead>>, logs: &[ServerLog]) -> Result<Start, ArchiveError> {
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    let whole = Start::whole;
    let Some(before) = before else { return Ok(whole(oldest, StreamOrigin::First)) };
    let head = &before.content;
    let after = link(before);
    let (from, to) = match &head.last {
        Some(last) => (&last.from, &last.to),
        None => (&head.from, &head.from),
    };
    let Some((_, size)) = logs.iter().find(|(log, _)| *log == to.log) else {
        let is_purged = match (from.position(), logs.first()) {
            (Some(ours), Some((log, _))) => {
                xb_binlog::LogPosition::new(log, 0).is_some_and(|oldest| ours < oldest)
            }
            _ => false,
        };
        if let Some(idle) = behind_purged(before, logs).filter(|_| is_purged) {
            return Ok(idle);
        }
        let begins = match is_purged {
            true => StreamOrigin::Gap {
                after,
                reason: format!("the server has purged {}; its oldest log is {oldest}", to.log),
            },
            false => StreamOrigin::Branch {
                after,
                reason: format!(
                    "the server no longer has log {}: its logs start over at {oldest}, as after RESET MASTER, or this is a different server",
                    to.log
                ),
            },
        };
        return Ok(whole(oldest, begins));
    };
    if *size < to.offset {
        let reason = format!(
            "{} has {size} bytes on the server, but {} are stored: the server lost bytes in a crash, its logs started over, as after RESET MASTER, or this is a different server",
            to.log, to.offset
        );
        return Ok(whole(&to.log, StreamOrigin::Branch { after, reason }));
    }
    let gtids = match &head.last {
        Some(_) => head.gtids_after.clone(),
        None => head.gtids_before.clone(),
    };
    let begins = StreamOrigin::Continues { after, at: None };
    let (at, overlap) = (to.clone(), head.last.clone());
    Ok(Start { begins, at, gtids, overlap, repeats: None, made: None })
}

/// The start at the beginning of the log in which the archive ends, if that has no transaction up to there: an idle server
/// purges the log with its last transaction, too. What the server sends has to begin with the GTIDs of the archive, in a log
/// that was made at the same time: after RESET MASTER, names and GTIDs come again.
fn behind_purged(before: &Record<SegmentHead>, logs: &[ServerLog]) -> Option<Start> {
    let head = &before.content;
    let (log, made) = (&head.to.log, head.log_made()?);
    let (_, size) = logs.iter().find(|(name, _)| name == log)?;
    let is_whole = head.to.offset <= *size && head.next_log.is_none() && !head.ends_inside;
    let gtids = head.gtids_after.clone().filter(|_| is_whole)?;
    let begins = StreamOrigin::Continues { after: link(before), at: None };
    Some(Start { gtids: Some(gtids), made: Some(made), ..Start::whole(log, begins) })
}

fn link(before: &Record<SegmentHead>) -> Link {
    let head = &before.content;
    Link { stream: head.stream.clone(), number: head.number, head: before.digest.to_string() }
}

/// The start on another server than that of the archive's end, after a search in its logs.
pub(crate) fn on_another(
    before: &Record<SegmentHead>,
    outcome: Outcome,
    logs: &[ServerLog],
) -> Result<Start, ArchiveError> {
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    let after = link(before);
    Ok(match outcome {
        Outcome::Here(here) => {
            let Takeover { at, last: overlap, gtids, repeats } = *here;
            // A stream of an idle server has no transaction.
            let head = &before.content;
            let end = head.last.as_ref().map_or(&head.to, |last| &last.to);
            let begins = StreamOrigin::Continues { after, at: Some(end.clone()) };
            Start { begins, at, gtids: Some(gtids.to_string()), overlap, repeats, made: None }
        }
        Outcome::Branch { log, reason } => {
            Start::whole(&log, StreamOrigin::Branch { after, reason })
        }
        Outcome::Unknown(reason) => Start::whole(oldest, StreamOrigin::Gap { after, reason }),
    })
}

/// The repeated transactions that still follow a stream's start, by the head of the stream that it follows.
pub(crate) fn repeated(of: &StreamHead, start: &Start) -> Option<StoredRepeats> {
    let repeats = of.repeats.as_ref()?;
    let StreamOrigin::Continues { .. } = start.begins else { return None };
    let (at, until) = (start.at.position()?, repeats.until.position()?);
    (at < until).then(|| repeats.clone())
}

/// Decides where a stream begins on a server that may differ from that of `before`. If it sends a stored
/// transaction again, the bytes decide. If there is none, only its identity can: a log of the same name then is no
/// continuation, and one that it lacks was not purged.
pub(crate) async fn start_on(
    root: &Root,
    server: &str,
    before: Option<&Record<SegmentHead>>,
    now: Origin<'_>,
    logs: &[ServerLog],
) -> Result<Start, ArchiveError> {
    let start = start(before, logs)?;
    let Some(after) = start.begins.after().filter(|_| start.overlap.is_none()) else {
        return Ok(start);
    };
    let Some(head) = stream_head(root, server, &after.stream).await? else { return Ok(start) };
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    Ok(match (head.content.origin().differs_from(now), before) {
        (Some(how), _) => behind_hole(&start, oldest, format!("this is another server: {how}")),
        (None, Some(before)) if before.content.starts_inside => outside(start, &head.content),
        (None, _) => start,
    })
}

/// The start behind a stream that ends within its first transaction: a server sends no part of one. It is sent again from
/// the beginning of the stream, or of the log if that is a later one.
fn outside(start: Start, head: &StreamHead) -> Start {
    if !matches!(start.begins, StreamOrigin::Continues { .. }) {
        return start;
    }
    let at = match head.start.log == start.at.log {
        true => head.start.clone(),
        false => StoredPosition { log: start.at.log.clone(), offset: 4 },
    };
    Start { at, gtids: head.gtids.clone(), ..start }
}

/// The start on a server whose history turned out to differ, because of `reason`: at the beginning of the log
/// that has the difference. A start that does not continue stays as it is.
pub(crate) fn branch(start: Start, reason: String) -> Start {
    let StreamOrigin::Continues { after, .. } = start.begins else { return start };
    Start::whole(&start.at.log, StreamOrigin::Branch { after, reason })
}

/// The start behind a log that the server cannot send to its end: at the beginning of the next one. `None` if
/// there is none yet.
pub(crate) fn behind_cut(
    start: &Start,
    logs: &[ServerLog],
    log: &str,
    reason: String,
) -> Option<Start> {
    let (next, _) = logs.iter().skip_while(|(name, _)| name != log).nth(1)?;
    Some(behind_hole(start, next, reason))
}

/// The start behind a hole in the server's own logs: at the beginning of the log that does not follow.
pub(crate) fn behind_hole(start: &Start, log: &str, reason: String) -> Start {
    let begins = match start.begins.after().cloned() {
        Some(after) => StreamOrigin::Gap { after, reason },
        None => StreamOrigin::First,
    };
    Start::whole(log, begins)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The last stored segment: a transaction of `log.000002` that ends at 900.
    fn stored() -> Record<SegmentHead> {
        let at = |offset: u64| json!({ "log": "log.000002", "offset": offset });
        let head = json!({
            "format": 1, "stream": "0".repeat(32), "number": 7, "previous": "1".repeat(64),
            "from": at(4), "to": at(1000), "description": "", "gtids_after": "0-1-9", "ends_inside": true,
            "transactions": 1, "received": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"],
            "last": { "gtid": "0-1-9", "from": at(500), "to": at(900), "sha256": "2".repeat(64) },
            "body": { "len": 0, "sha256": "3".repeat(64) },
        });
        let content: SegmentHead = serde_json::from_value(head).unwrap();
        Record::decode(&Record::encode(&content, None).unwrap()).unwrap()
    }

    /// From the log's beginning, all of it would be sent and stored again after each restart.
    #[test]
    fn a_stream_continues_behind_the_last_stored_transaction() {
        let stored = stored();
        let log = |name: &str, size| (name.to_owned(), size);
        let logs = [log("log.000001", 5000), log("log.000002", 2000)];
        let begun = start(Some(&stored), &logs).unwrap();
        assert!(
            matches!(&begun.begins, StreamOrigin::Continues { after, .. } if after.number == 7)
        );
        assert_eq!(
            (begun.at.to_string(), begun.gtids.as_deref()),
            ("log.000002:900".to_owned(), Some("0-1-9"))
        );
        assert_eq!(begun.overlap, stored.content.last);
        // A log that ends before it is not the one that was stored.
        let shorter = [log("log.000001", 5000), log("log.000002", 899)];
        let begun = start(Some(&stored), &shorter).unwrap();
        assert!(matches!(begun.begins, StreamOrigin::Branch { .. }));
        assert_eq!((begun.at.to_string(), begun.overlap), ("log.000002:4".to_owned(), None));
        // Without any, the archive begins with what the server still has.
        let first = start(None, &logs).unwrap();
        assert_eq!(
            (first.begins, first.at.to_string()),
            (StreamOrigin::First, "log.000001:4".to_owned())
        );
    }
}
