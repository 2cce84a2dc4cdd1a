//! Whether the archive of a server has the position of a backup, by few requests.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use xb_binlog::{GtidState, LogPosition};
use xb_repo::archive::base::Noted;
use xb_repo::archive::newest::{Outline, outlines};
use xb_repo::archive::plan::misplaced;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::Begins;
use xb_repo::error::RepoError;
use xb_repo::manifest::Manifest;
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::session::Session;

/// Streams that are looked at, the newest first.
const STREAMS: usize = 8;
/// Segments without a transaction that are passed over at the beginning of a stream.
const EMPTY: usize = 8;
/// A receiver whose last sign of life is not older is at work.
const LIFE: SignedDuration = SignedDuration::from_secs(120);
/// Looks at an archive whose receiver is at work and behind the backup.
const LOOKS: u32 = 10;
/// Seconds between two of them.
const PAUSE: u64 = 3;

/// Whether the log can be replayed onto a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// The archive has its position, between two transactions.
    Covered,
    /// It has not, because of this.
    Uncovered(String),
}

/// What one look shows.
enum Look {
    Found(Coverage),
    /// The position lies behind the end of the archive.
    Behind {
        ends: String,
        is_alive: bool,
    },
}

/// Whether the archive of `server` has the position of a backup; `None` if it has no archive. Only heads are read,
/// without a key: `binlog verify` proves it. A receiver at work gets 30 s to store what the backup has seen.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn coverage(
    session: &Session,
    server: &str,
    manifest: &Manifest,
) -> Result<Option<Coverage>, BackupError> {
    for left in (0..LOOKS).rev() {
        let looking = look(&session.root, server, manifest);
        let looking = async { Ok::<_, BackupError>(looking.await?) };
        match session.cancel.or(looking).await? {
            None => return Ok(None),
            Some(Look::Found(coverage)) => return Ok(Some(coverage)),
            Some(Look::Behind { is_alive: true, .. }) if left > 0 => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(PAUSE)) => {}
                    _ = session.cancel.asked() => {}
                }
            }
            Some(Look::Behind { ends, .. }) => {
                return Ok(Some(Coverage::Uncovered(ends)));
            }
        }
    }
    Ok(None)
}

/// As [`coverage`], without waiting for anything.
pub(crate) async fn covers_now(
    root: &Root,
    server: &str,
    manifest: &Manifest,
) -> Result<Option<Coverage>, RepoError> {
    Ok(look(root, server, manifest).await?.map(|look| match look {
        Look::Found(coverage) => coverage,
        Look::Behind { ends, .. } => Coverage::Uncovered(ends),
    }))
}

async fn look(root: &Root, server: &str, manifest: &Manifest) -> Result<Option<Look>, RepoError> {
    let streams = outlines(root, server).await?;
    let (Some(oldest), false) = (streams.first(), streams.is_empty()) else { return Ok(None) };
    let uncovered = |what: String| Ok(Some(Look::Found(Coverage::Uncovered(what))));
    let base = match Noted::replayed(manifest) {
        Some(Noted::Position(base)) => base,
        Some(Noted::Between { from, to, taken }) => {
            return Ok(Some(look_for_clone(root, &streams, (&from, &to), taken).await?));
        }
        None if Noted::of(manifest).is_some() => {
            return uncovered("a log of MySQL is replayed onto clones only".to_owned());
        }
        None => return uncovered("it records no position in the binary log".to_owned()),
    };
    let at = &base.position;
    let (mut ends, mut differs) = (None, None);
    for stream in streams.iter().rev().take(STREAMS) {
        let start = stream.head.content.start.position();
        if start.is_none_or(|start| start.partial_cmp(at) == Some(Ordering::Greater)) {
            continue;
        }
        let Some(last) = stream.last_segment(root).await? else { continue };
        let end = last.content.end();
        if end.is_none_or(|end| end.partial_cmp(at) == Some(Ordering::Less)) {
            ends.get_or_insert_with(|| last.content.to.clone());
            continue;
        }
        let Some(segment) = stream.segment_at(root, at, last.content.number).await? else {
            continue;
        };
        match misplaced(&segment.content, &base) {
            None => return Ok(Some(Look::Found(Coverage::Covered))),
            Some(what) => differs = differs.or(Some(what)),
        }
    }
    if let Some(what) = differs {
        return uncovered(what);
    }
    let is_alive = is_alive(&streams);
    if ends.is_none() && !is_alive && streams.iter().all(|stream| stream.alive.is_none()) {
        return uncovered("nothing of the log is archived yet".to_owned());
    }
    Ok(Some(match ends {
        Some(ends) => Look::Behind {
            ends: format!("the archive ends at {ends}, before the position {at} of the backup"),
            is_alive,
        },
        None => Look::Behind {
            ends: format!(
                "the archive, which begins at {}, does not have the position {at} of the backup",
                oldest.head.content.start
            ),
            is_alive,
        },
    }))
}

/// Looks for the transactions between the bounds of a clone: one stream has to begin before the first of them, and the
/// archive to have them all.
async fn look_for_clone(
    root: &Root,
    streams: &[Outline],
    (from, to): (&GtidState, &GtidState),
    taken: Timestamp,
) -> Result<Look, RepoError> {
    let mut ends = None;
    for stream in streams.iter().rev().take(STREAMS) {
        let Some(last) = stream.last_segment(root).await? else { continue };
        let (last, is_first) = (last.content, ends.is_none());
        ends.get_or_insert_with(|| last.to.clone());
        if is_first && !last.after().is_some_and(|after| to.is_within(&after)) {
            break;
        }
        let head = &stream.head.content;
        let continues = matches!(head.begins, Begins::Continues { .. });
        let first = match head.start.position() {
            Some(start) => stream.segment_at(root, &start, last.number).await?,
            None => None,
        };
        if let Some(first) = first
            && let Some(before) = first.content.before()
            && before.is_within(from)
        {
            let is_known = continues
                || head.started <= taken
                || begins_with(root, stream, (&first.content, last.number), from).await?;
            return Ok(Look::Found(match is_known {
                true => Coverage::Covered,
                false => Coverage::Uncovered(format!(
                    "stream {} began after it, and transactions without a GTID may be lost between them",
                    head.stream
                )),
            }));
        }
        // What it continues may begin earlier.
        if !continues {
            break;
        }
    }
    let ends = ends.map_or_else(
        || "nothing of the log is archived yet".to_owned(),
        |ends| format!("the archive, which ends at {ends}, does not have all transactions from {from} to {to}, where the backup ends"),
    );
    Ok(Look::Behind { ends, is_alive: is_alive(streams) })
}

/// Whether a segment ends with transactions that a clone has, so that one of them comes first: the stream began later, with
/// older logs. Logs without a transaction are passed over.
async fn begins_with(
    root: &Root,
    stream: &Outline,
    (first, last): (&SegmentHead, u64),
    from: &GtidState,
) -> Result<bool, RepoError> {
    let mut head = first.clone();
    for _ in 0..EMPTY {
        match (head.before(), head.after()) {
            // A replay begins with the next one.
            (Some(before), Some(after)) if before != after => {
                return Ok(head.number < last && after.is_within(from));
            }
            (Some(_), Some(_)) => {}
            _ => return Ok(false),
        }
        let (log, offset) = match &head.next_log {
            Some(log) => (log.as_str(), 4),
            None => (head.to.log.as_str(), head.to.offset),
        };
        let Some(behind) = LogPosition::new(log, offset + 1) else { return Ok(false) };
        match stream.segment_at(root, &behind, last).await? {
            Some(next) => head = next.content,
            None => return Ok(false),
        }
    }
    Ok(false)
}

/// Whether a receiver gave a sign of life a short time ago, and did not end since.
fn is_alive(streams: &[Outline]) -> bool {
    let now = Timestamp::now();
    // The head is the first sign of life.
    let sign = |stream: &Outline| {
        stream.alive.as_ref().map_or(stream.head.content.started, |alive| alive.content.written)
    };
    let at_work = streams.iter().filter(|stream| !stream.has_ended);
    at_work.map(sign).any(|sign| now.duration_since(sign) < LIFE)
}
