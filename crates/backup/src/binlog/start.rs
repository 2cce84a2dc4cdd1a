//! Decides where a stream begins: what the archive has, and what the server still has.

use xb_repo::archive::newest::{outlines, stream_head};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::{LastTransaction, SegmentHead};
use xb_repo::archive::stream::{At, Begins, Link, Origin, RepeatsAt, StreamHead};
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;
use crate::binlog::search::{Outcome, Takeover};

/// A log that the server has, and its size in bytes.
pub(crate) type ServerLog = (String, u64);

/// Where a stream begins, and what it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) begins: Begins,
    /// Position of the first byte that is stored.
    pub(crate) at: At,
    /// GTIDs up to there.
    pub(crate) gtids: Option<String>,
    /// A stored transaction that ends there: the server has to send it again first, with the same bytes.
    pub(crate) overlap: Option<LastTransaction>,
    /// Transactions that the archive has from another server, and that follow again.
    pub(crate) repeats: Option<RepeatsAt>,
}

impl Start {
    /// At the beginning of a log.
    pub(crate) fn whole(log: &str, begins: Begins) -> Self {
        let at = At { log: log.to_owned(), offset: 4 };
        Self { begins, at, gtids: None, overlap: None, repeats: None }
    }
}

/// The last stored segment of the newest stream that has one.
pub(crate) async fn last_stored(
    root: &Root,
    server: &str,
) -> Result<Option<Record<SegmentHead>>, ArchiveError> {
    for outline in outlines(root, server).await?.iter().rev() {
        if let Some(head) = outline.last_segment(root).await? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Decides where a stream begins that follows `before`. The server has `logs`, the oldest first.
fn start(before: Option<&Record<SegmentHead>>, logs: &[ServerLog]) -> Result<Start, ArchiveError> {
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    let whole = Start::whole;
    let Some(before) = before else { return Ok(whole(oldest, Begins::First)) };
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
        let begins = match is_purged {
            true => Begins::Gap {
                after,
                reason: format!("the server has purged {}; its oldest log is {oldest}", to.log),
            },
            false => Begins::Branch {
                after,
                reason: format!(
                    "the server has no log {} any more: its logs begin anew at {oldest}, as after RESET MASTER, or it is another server",
                    to.log
                ),
            },
        };
        return Ok(whole(oldest, begins));
    };
    if *size < to.offset {
        let reason = format!(
            "{} has {size} bytes on the server, and {} are stored: the server lost them in a crash, its logs begin anew as after RESET MASTER, or it is another server",
            to.log, to.offset
        );
        return Ok(whole(&to.log, Begins::Branch { after, reason }));
    }
    let gtids = match &head.last {
        Some(_) => head.gtids_after.clone(),
        None => head.gtids_before.clone(),
    };
    let begins = Begins::Continues { after, at: None };
    Ok(Start { begins, at: to.clone(), gtids, overlap: head.last.clone(), repeats: None })
}

fn link(before: &Record<SegmentHead>) -> Link {
    let head = &before.content;
    Link { stream: head.stream.clone(), number: head.number, head: before.digest.clone() }
}

/// The start on another server than that of the archive's end, after a search in its logs.
pub(crate) fn on_another(
    before: &Record<SegmentHead>,
    outcome: Outcome,
    logs: &[ServerLog],
) -> Result<Start, ArchiveError> {
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    let after = link(before);
    Ok(match (outcome, &before.content.last) {
        (Outcome::Here(here), Some(last)) => {
            let Takeover { at, last: overlap, gtids, repeats } = *here;
            let begins = Begins::Continues { after, at: Some(last.to.clone()) };
            Start { begins, at, gtids: Some(gtids.to_string()), overlap, repeats }
        }
        (Outcome::Here(_), None) => {
            return Err(ArchiveError::Bug("a search for no transaction"));
        }
        (Outcome::Branch { log, reason }, _) => {
            Start::whole(&log, Begins::Branch { after, reason })
        }
        (Outcome::Unknown(reason), _) => Start::whole(oldest, Begins::Gap { after, reason }),
    })
}

/// The repeated transactions that still follow a stream's start, by the head of the stream that it follows.
pub(crate) fn repeated(of: &StreamHead, start: &Start) -> Option<RepeatsAt> {
    let repeats = of.repeats.as_ref()?;
    let Begins::Continues { .. } = start.begins else { return None };
    let (at, until) = (start.at.position()?, repeats.until.position()?);
    (at < until).then(|| repeats.clone())
}

/// Decides where a stream begins on a server that may be another one than that of `before`. If it sends a stored
/// transaction again, the bytes decide. If there is none, only its identity can: a log of the same name then is no
/// continuation, and one that it lacks was not purged.
pub(crate) async fn start_on(
    root: &Root,
    server: &str,
    before: Option<&Record<SegmentHead>>,
    (now, logs): (Origin<'_>, &[ServerLog]),
) -> Result<Start, ArchiveError> {
    let start = start(before, logs)?;
    let Some(after) = start.begins.after().filter(|_| start.overlap.is_none()) else {
        return Ok(start);
    };
    let Some(head) = stream_head(root, server, &after.stream).await? else { return Ok(start) };
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    Ok(match head.content.origin().differs_from(now) {
        None => start,
        Some(how) => behind_hole(&start, oldest, format!("this is another server: {how}")),
    })
}

/// The start on a server whose history turned out to differ, because of `reason`: at the beginning of the log
/// that has the difference. A start that does not continue stays as it is.
pub(crate) fn branch(start: Start, reason: String) -> Start {
    let Begins::Continues { after, .. } = start.begins else { return start };
    Start::whole(&start.at.log, Begins::Branch { after, reason })
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
        Some(after) => Begins::Gap { after, reason },
        None => Begins::First,
    };
    Start::whole(log, begins)
}
