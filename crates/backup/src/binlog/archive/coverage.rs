//! Finds out with few requests whether the archive of a server has the position of a backup.

use std::cmp::Ordering;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use xb_binlog::{GtidState, LogPosition};
use xb_encryptor::Keys;
use xb_repo::archive::base::BasePosition;
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::newest::{Branches, Outline, branches, outlines};
use xb_repo::archive::plan::misplaced;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::StreamOrigin;
use xb_repo::error::RepoError;
use xb_repo::manifest::Manifest;
use xb_repo::root::Root;

use crate::binlog::archive::own_log::OwnLog;
use crate::binlog::archive::state::StateFile;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;

/// Streams that are looked at, the newest first.
const STREAMS: usize = 8;
/// Segments that are passed over at the beginning of a stream: without a transaction, or within one.
const PASSED: usize = 64;
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

/// Result of one check.
enum CoverageCheck {
    Found(Coverage),
    /// The position lies behind the end of the archive.
    Behind {
        ends: String,
        is_alive: bool,
    },
}

/// What this host has, and can tell more by.
#[derive(Debug, Clone, Copy)]
pub struct CoverageFacts<'a> {
    /// Keys that may open the archive.
    pub keys: &'a Keys,
    /// Folder in which a receiver of this host remembers its last segment.
    pub state: Option<&'a Path>,
}

/// Returns whether the archive of `server` has the position of a backup; `None` if it has no archive. Only heads are read, and
/// the bytes of the log that its digest in the manifest is of, if they are not sealed or the keys open them: `binlog verify` proves
/// the rest. A receiver at work gets 30 s to store what the backup has seen.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn coverage(
    session: &Session,
    server: &str,
    manifest: &Manifest,
    facts: CoverageFacts<'_>,
) -> Result<Option<Coverage>, BackupError> {
    for left in (0..LOOKS).rev() {
        let looking = look(&session.root, server, manifest, Some((session, facts.keys)));
        let looking = async { Ok::<_, BackupError>(looking.await?) };
        match session.cancel.or(looking).await? {
            None => return Ok(gone(&session.root, server, facts.state)),
            Some(CoverageCheck::Found(coverage)) => return Ok(Some(coverage)),
            Some(CoverageCheck::Behind { is_alive: true, .. }) if left > 0 => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(PAUSE)) => {}
                    _ = session.cancel.cancelled() => {}
                }
            }
            Some(CoverageCheck::Behind { ends, .. }) => {
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
    Ok(look(root, server, manifest, None).await?.map(|look| match look {
        CoverageCheck::Found(coverage) => coverage,
        CoverageCheck::Behind { ends, .. } => Coverage::Uncovered(ends),
    }))
}

/// What is to be said of a server without an archive, of which this host has stored one.
fn gone(root: &Root, server: &str, state: Option<&Path>) -> Option<Coverage> {
    // A receiver names a state that cannot be read.
    let last = StateFile::new(state?, root, server).read().ok()??;
    Some(Coverage::Uncovered(format!(
        "the archive is gone, which this host has stored here up to {}; is its disk mounted?",
        last.content.to
    )))
}

async fn look(
    root: &Root,
    server: &str,
    manifest: &Manifest,
    by_bytes: Option<(&Session, &Keys)>,
) -> Result<Option<CoverageCheck>, RepoError> {
    let streams = outlines(root, server).await?;
    let (Some(oldest), false) = (streams.first(), streams.is_empty()) else { return Ok(None) };
    let uncovered = |what: String| Ok(Some(CoverageCheck::Found(Coverage::Uncovered(what))));
    let branches = branches(root, &streams).await?;
    let base = match BasePosition::replayed(manifest) {
        Some(BasePosition::Position(base)) => base,
        Some(BasePosition::Between { from, to, taken }) => {
            return Ok(Some(look_for_clone(root, &streams, &branches, &from, &to, taken).await?));
        }
        None if BasePosition::of(manifest).is_some() => {
            return uncovered("a log of MySQL is replayed onto clones only".to_owned());
        }
        None => return uncovered("it records no position in the binary log".to_owned()),
    };
    let at = &base.position;
    let (mut ends, mut differs, mut left) = (None, None, None);
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
        match misplaced(&ListedSegment::of(&segment, None), &base) {
            // The present history has the position, or has left it.
            None => match left_by(&branches, stream, base.taken) {
                None => {
                    let last = last.content.number;
                    let other = match by_bytes {
                        Some((session, keys)) => {
                            let own = OwnLog { session, server, keys, streams: &streams };
                            own.differs(manifest, stream, last).await?
                        }
                        None => None,
                    };
                    match other {
                        None => return Ok(Some(CoverageCheck::Found(Coverage::Covered))),
                        Some(what) => differs = differs.or(Some(what)),
                    }
                }
                Some(what) => left = left.or(Some(what)),
            },
            Some(what) => differs = differs.or(Some(what)),
        }
    }
    let is_alive = is_alive(&streams);
    if let Some((what, is_behind)) = left {
        // What a receiver at work has yet to store of the branch may have it.
        return Ok(Some(CoverageCheck::Behind { ends: what, is_alive: is_alive && is_behind }));
    }
    if let Some(what) = differs {
        // After RESET MASTER or a restore, an old log has the name of a new one, of which the newest stream has less.
        let is_alive = is_alive && ends.is_some();
        return Ok(Some(CoverageCheck::Behind { ends: what, is_alive }));
    }
    if ends.is_none() && !is_alive && streams.iter().all(|stream| stream.alive.is_none()) {
        return uncovered("no part of the log is archived yet".to_owned());
    }
    Ok(Some(match ends {
        Some(ends) => CoverageCheck::Behind {
            ends: format!("the archive ends at {ends}, before the position {at} of the backup"),
            is_alive,
        },
        None => CoverageCheck::Behind {
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
    branches: &Branches<'_>,
    from: &GtidState,
    to: &GtidState,
    taken: Timestamp,
) -> Result<CoverageCheck, RepoError> {
    let mut ends = None;
    for stream in streams.iter().rev().take(STREAMS) {
        let Some(last) = stream.last_segment(root).await? else { continue };
        let (last, is_first) = (last.content, ends.is_none());
        ends.get_or_insert_with(|| last.to.clone());
        let head = &stream.head.content;
        let has_all = |mut after: GtidState| {
            after.unite(&head.outside());
            to.is_within(&after)
        };
        if is_first && !last.after().is_some_and(has_all) {
            break;
        }
        let continues = matches!(head.begins, StreamOrigin::Continues { .. });
        let first = match head.start.position() {
            Some(start) => stream.segment_at(root, &start, last.number).await?,
            None => None,
        };
        if let Some(first) = first
            && let Some(before) = first.content.before()
            && before.is_within(from)
        {
            if let Some((what, _)) = left_by(branches, stream, taken) {
                return Ok(CoverageCheck::Found(Coverage::Uncovered(what)));
            }
            let is_known = continues
                || head.started <= taken
                || begins_with(root, stream, &first.content, last.number, from).await?;
            return Ok(CoverageCheck::Found(match is_known {
                true => Coverage::Covered,
                false => Coverage::Uncovered(format!(
                    "stream {} began after it, and transactions without a GTID may be lost between them",
                    head.stream
                )),
            }));
        }
        // The stream that it continues may begin earlier.
        if !continues {
            break;
        }
    }
    let ends = ends.map_or_else(
        || "no part of the log is archived yet".to_owned(),
        |ends| format!("the archive, which ends at {ends}, does not have all transactions from {from} to {to}, where the backup ends"),
    );
    Ok(CoverageCheck::Behind { ends, is_alive: is_alive(streams) })
}

/// Why the present history does not continue from a backup whose position this stream has, and whether it may have that position
/// itself; `None` if nothing speaks against it.
fn left_by(branches: &Branches<'_>, stream: &Outline, taken: Timestamp) -> Option<(String, bool)> {
    let branch = branches.left_by(&stream.head.content.stream, taken)?;
    let reason = match &branch.begins {
        StreamOrigin::Branch { reason, .. } => reason,
        _ => "",
    };
    let what = format!(
        "the server's history starts over with stream {} ({reason}), and the backup belongs to the history before that",
        branch.stream
    );
    Some((what, branch.started <= taken))
}

/// Returns whether a clone has the first transactions of a stream, so that the stream began later, with older logs: a later
/// segment that does not begin within a transaction has before it only what the clone has. A replay begins there.
async fn begins_with(
    root: &Root,
    stream: &Outline,
    first: &SegmentHead,
    last: u64,
    from: &GtidState,
) -> Result<bool, RepoError> {
    let is_known = |state: Option<GtidState>| state.is_some_and(|state| state.is_within(from));
    let mut head = first.clone();
    for _ in 0..PASSED {
        if !is_known(head.after()) {
            return Ok(false);
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
        if !head.starts_inside && head.before() != first.before() {
            return Ok(is_known(head.before()));
        }
    }
    Ok(false)
}

/// Returns whether a receiver gave a sign of life a short time ago, and did not end since.
fn is_alive(streams: &[Outline]) -> bool {
    let now = Timestamp::now();
    // The head is the first sign of life.
    let sign = |stream: &Outline| {
        stream.alive.as_ref().map_or(stream.head.content.started, |alive| alive.content.written)
    };
    let at_work = streams.iter().filter(|stream| !stream.has_ended);
    at_work.map(sign).any(|sign| now.duration_since(sign) < LIFE)
}

#[cfg(test)]
mod tests {

    use xb_repo::archive::names::segment_name;
    use xb_repo::archive::record::Record;
    use xb_repo::archive::sample::{at, segment_head, stream_head};
    use xb_repo::archive::stream::StreamHead;
    use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

    use super::*;

    const STREAM: &str = "00112233445566778899aabbccddeeff";

    /// Bytes in place of the native stream of a segment.
    const BODY: &[u8] = b"whatever";

    fn gtids(last: u64) -> String {
        format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{last}")
    }

    /// A segment with the transactions from behind the first number to the second.
    fn segment(
        number: u64,
        (before, after): (u64, u64),
        (starts_inside, ends_inside): (bool, bool),
    ) -> SegmentHead {
        let from = 200 + number * 100;
        SegmentHead {
            description: "0f".repeat(100),
            gtids_before: Some(gtids(before)),
            gtids_after: Some(gtids(after)),
            starts_inside,
            ends_inside,
            transactions: after - before,
            ..segment_head(STREAM, number, [from, from + 100], BODY)
        }
    }

    /// Returns whether the first transactions of this stream are known to be those of a clone with all up to number `from`.
    async fn is_known(segments: &[SegmentHead], from: u64) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let stream = StreamHead { start: at(200), ..stream_head(STREAM) };
        let place = folder.path().join(".xb-binlog/shop").join(STREAM);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("head"), Record::encode(&stream, None).unwrap()).unwrap();
        for head in segments {
            let object = [&Record::encode(head, None).unwrap()[..], BODY].concat();
            std::fs::write(place.join(segment_name(head.number)), object).unwrap();
        }
        let streams = outlines(&root, "shop").await.unwrap();
        let last = segments.last().unwrap().number;
        let state = gtids(from).parse().unwrap();
        begins_with(&root, &streams[0], &segments[0], last, &state).await.unwrap()
    }

    #[tokio::test]
    async fn a_stream_begins_with_a_clones_transactions_only_if_a_replay_can_begin_behind_them() {
        // The fifth transaction begins in the second segment, and ends in the fourth.
        let segments = [
            segment(0, (3, 3), (false, false)),
            segment(1, (3, 4), (false, true)),
            segment(2, (4, 4), (true, true)),
            segment(3, (4, 6), (true, false)),
            segment(4, (6, 7), (false, false)),
        ];
        for (from, expected) in [(3, false), (4, false), (5, false), (6, true), (9, true)] {
            assert_eq!(is_known(&segments, from).await, expected, "{from}");
        }
        // Nothing follows yet.
        assert!(!is_known(&segments[..4], 9).await);
    }
}
