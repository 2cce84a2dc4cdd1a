//! Archives log files from the disk of a server that is lost.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use xb_binlog::{LogPosition, MAGIC};
use xb_repo::archive::listing::servers;
use xb_repo::archive::names::server_folder;
use xb_repo::archive::newest::{
    last_stored, missing_before, one_segment_head, outlines, stream_head,
};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::{Origin, StreamHead, StreamOrigin};
use xb_repo::error::RepoError;
use xb_repo::root::Root;
use xb_uploader::{Operation, StoreError, StoreErrorKind};

use crate::archive_error::ArchiveError;
use crate::binlog::overlap::start::{ServerLog, Start, start_on};
use crate::binlog::receive::notice::{Notice, Tell};
use crate::binlog::receive::receiver::{ArchiveSettings, Receiver};
use crate::binlog::receive::segmenter::segment_size;
use crate::binlog::receive::session::{Server, send};
use crate::binlog::receive::watch::Watch;
use crate::binlog::source::log_files::{LogFile, open};
use crate::binlog::source::role::Role;
use crate::binlog::source::write_access::WriteAccess;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;

/// Streams that are looked at for a hole, from the last one on.
const STREAMS: usize = 16;

/// Report of archived log files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushReport {
    /// Position behind the last byte that was stored, as `FILE:POSITION`; `None` if the archive had everything.
    pub position: Option<String>,
    /// Segments that were stored.
    pub segments: u64,
    /// Bytes at the end of the last file that are not a whole transaction, and were left out.
    pub left: u64,
}

/// Archives what log files have behind the end of the archive, as one stream that ends. The file that the archive ends in
/// has to be among them: its last stored transaction is compared byte by byte. If segments are missing before that end, and the files
/// have them, they continue the archive before these. With `may_be_first`, there need be no archive of the server.
///
/// # Errors
/// [`ArchiveError::NoContinuation`] and [`ArchiveError::File`]; and, unlike a receiver, whatever prevents
/// storing: what was stored by then is whole, and the next call continues with it.
pub async fn push(
    session: &Session,
    settings: &ArchiveSettings,
    paths: Vec<PathBuf>,
    may_be_first: bool,
    tell: impl Fn(Notice) + Send + Sync + 'static,
) -> Result<PushReport, BackupError> {
    let report = Arc::new(Mutex::new(PushReport::default()));
    let kept = Arc::clone(&report);
    let (away, mut is_away) = watch::channel(String::new());
    let tell: Tell = Arc::new(tell);
    let told = Arc::clone(&tell);
    let mut receiver = Receiver::new(
        session,
        settings,
        Arc::new(move |notice| {
            if let Notice::Stored { position, .. } = &notice {
                let mut report = kept.lock().unwrap_or_else(PoisonError::into_inner);
                report.position = Some(position.clone());
                report.segments += 1;
            }
            match notice {
                Notice::StoreAway(why) => drop(away.send(why)),
                notice => told(notice),
            }
        }),
    );
    receiver.may_begin_anew = may_be_first;
    let opening = tokio::task::spawn_blocking(move || open(&paths));
    let files = opening.await.map_err(|_| BackupError::Bug("the thread that opens panicked"))??;
    let logs: Vec<ServerLog> = files.iter().map(|file| (file.name.clone(), file.size)).collect();
    // Says if the archive lacks what this host remembers.
    session.cancel.or(receiver.last_known()).await?;
    // What this host remembers may be older, if another one has received since.
    let before = session.cancel.or(last_stored(&session.root, &settings.server)).await?;
    // Files do not state a server_uuid.
    let id = files.last().ok_or(ArchiveError::NoLog)?.server_id;
    let now = Origin { id, uuid: None, node: None };
    let start =
        continuation(&session.root, &settings.server, before.as_ref(), now, &logs, &files, &tell);
    let start = session.cancel.or(start).await?;
    match &start.begins {
        StreamOrigin::Continues { .. } => {}
        StreamOrigin::First if may_be_first => {}
        StreamOrigin::First => {
            let known = session.cancel.or(servers(&session.root)).await?.join(", ");
            let what = match known.is_empty() {
                true => "no log is archived in this place".to_owned(),
                false => format!(
                    "no log of {} is archived here, but logs of {known} are",
                    settings.server
                ),
            };
            return Err(ArchiveError::NoContinuation(what).into());
        }
        StreamOrigin::Gap { reason, .. } => {
            let end = before.map(|before| before.content.to.to_string()).unwrap_or_default();
            let first = logs.first().map(|(log, _)| log.as_str()).unwrap_or_default();
            let what = format!("it ends at {end}, and the first file is {first}: {reason}");
            return Err(ArchiveError::NoContinuation(what).into());
        }
        StreamOrigin::Branch { reason, .. } => {
            return Err(ArchiveError::NoContinuation(reason.clone()).into());
        }
    }
    let server = session.cancel.or(server(session, &settings.server, &files, logs)).await?;
    let last = files.last().map(|file| (file.name.clone(), file.size));
    let begun = start.at.to_string();
    let size = segment_size(session.resources.memory);
    let sending = send(files, &start, size, !settings.accept_no_crc)?;
    let mut has_stored = false;
    let outcome = tokio::select! {
        // A receiver waits for the store, whose retries are over; the files stay where they are.
        biased;
        Ok(()) = is_away.changed() => Err(ArchiveError::Ended),
        outcome = receiver.run((server, start, sending), Watch::default(), &mut has_stored) => outcome,
    };
    let why = is_away.borrow().clone();
    // The run may have ended although the last of its records is not stored.
    let outcome = match outcome {
        Err(ArchiveError::Ended) if !why.is_empty() && session.cancel.is_cancelled() => Ok(()),
        Err(ArchiveError::Ended) if !why.is_empty() => {
            let key = session.root.key(&server_folder(&settings.server).map_err(RepoError::from)?);
            Err(StoreError::new(Operation::Put, key, StoreErrorKind::Unavailable, why).into())
        }
        outcome => outcome,
    };
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match outcome {
        Ok(()) => return session.cancel.or(std::future::pending::<Result<_, BackupError>>()).await,
        Err(ArchiveError::Ended) => {}
        Err(error @ ArchiveError::AnotherLog { .. }) => {
            return Err(ArchiveError::NoContinuation(error.to_string()).into());
        }
        Err(ArchiveError::Differs(what)) => return Err(ArchiveError::NoContinuation(what).into()),
        Err(error) => return Err(error.into()),
    }
    let reached = report.position.as_ref().unwrap_or(&begun).rsplit_once(':');
    if let (Some((log, offset)), Some((last, size))) = (reached, last)
        && let Ok(offset) = offset.parse::<u64>()
    {
        report.left = size.saturating_sub(if log == last { offset } else { MAGIC.len() as u64 });
    }
    Ok(report)
}

/// Segments that are missing before the end of an archive.
struct Hole {
    /// Says which.
    what: String,
    /// The last segment before them.
    before: Option<Record<SegmentHead>>,
}

/// The holes of the history that ends with segment `last`, the last one first, as far as its last streams are of one server.
async fn holes(root: &Root, server: &str, last: &SegmentHead) -> Result<Vec<Hole>, ArchiveError> {
    let mut holes = Vec::new();
    let (mut stream, mut end) = (last.stream.clone(), last.number);
    for _ in 0..STREAMS {
        let head = stream_head(root, server, &stream).await?;
        let link = head.and_then(|head| match head.content.begins {
            StreamOrigin::Continues { after, at: None } => Some(after),
            _ => None,
        });
        if let Some(missing) = missing_before(root, server, &stream, end).await? {
            let before = match (missing.checked_sub(1), &link) {
                (Some(before), _) => one_segment_head(root, server, &stream, before).await?,
                (None, Some(link)) => {
                    one_segment_head(root, server, &link.stream, link.number).await?
                }
                (None, None) => None,
            };
            let what = format!(
                "segment {missing} of stream {stream} is missing, although there are later ones, up to {}",
                last.to
            );
            holes.push(Hole { what, before });
        }
        let Some(link) = link else { break };
        (stream, end) = (link.stream, link.number.saturating_add(1));
    }
    Ok(holes)
}

/// What files have where an archive ends. Otherwise the stream that begins last would end before the archive does, or in another
/// history: a server that went back to an earlier state has logs of the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InFiles {
    Missing,
    /// Other transactions.
    Differs,
    Equal,
}

impl InFiles {
    fn of(last: &SegmentHead, logs: &[ServerLog], files: &[LogFile]) -> Result<Self, ArchiveError> {
        let end = logs.last().and_then(|(log, size)| LogPosition::new(log, *size));
        let Some(stored) = last.last.as_ref().filter(|_| end >= last.end()) else {
            return Ok(Self::Missing);
        };
        match files.iter().find(|file| *file.name == *stored.to.log) {
            None => Ok(Self::Missing),
            Some(file) => Ok(if file.has(stored)? { Self::Equal } else { Self::Differs }),
        }
    }
}

/// Where the files continue the archive: at its end, or before a hole in it, if they have all from there on.
async fn continuation(
    root: &Root,
    server: &str,
    last: Option<&Record<SegmentHead>>,
    now: Origin<'_>,
    logs: &[ServerLog],
    files: &[LogFile],
    tell: &Tell,
) -> Result<Start, ArchiveError> {
    let at_end = start_on(root, server, last, now, logs).await?;
    let (Some(last), StreamOrigin::Continues { .. }) = (last, &at_end.begins) else {
        return Ok(at_end);
    };
    let holes = holes(root, server, &last.content).await?;
    let Some(newest) = holes.last() else { return Ok(at_end) };
    let in_files = tokio::task::block_in_place(|| InFiles::of(&last.content, logs, files))?;
    for hole in holes.iter().rev().filter(|_| in_files == InFiles::Equal) {
        let Some(before) = &hole.before else { continue };
        let start = start_on(root, server, Some(before), now, logs).await?;
        if let StreamOrigin::Continues { .. } = start.begins {
            tell(Notice::Hole(format!(
                "{}; all from {} on is archived again",
                hole.what, start.at
            )));
            return Ok(start);
        }
    }
    let from = newest.before.as_ref().map(|before| format!(" from {} on", before.content.to.log));
    let from = from.unwrap_or_default();
    tell(Notice::Hole(match in_files {
        InFiles::Differs => format!(
            "{}, and these files, which have other transactions at {}, cannot fill it: give those of the server that wrote the archive",
            newest.what, last.content.to
        ),
        InFiles::Missing | InFiles::Equal => format!(
            "{}, which these files do not fill: give all files{from} up to the last one, and that part is archived again",
            newest.what
        ),
    }));
    Ok(at_end)
}

/// Returns the facts about the server: the files state its version, and the archive the settings that a replay needs.
async fn server(
    session: &Session,
    name: &str,
    files: &[LogFile],
    logs: Vec<ServerLog>,
) -> Result<Server, ArchiveError> {
    let last = files.last().ok_or(ArchiveError::NoLog)?;
    let known = outlines(&session.root, name).await?;
    let known = known.last().map(|outline| &outline.head.content);
    Ok(Server {
        version: last.format.server_version.clone(),
        id: last.server_id,
        write_access: WriteAccess::default(),
        role: Role {
            outside: known.map(StreamHead::outside).unwrap_or_default(),
            ..Role::default()
        },
        uuid: known.and_then(|head| head.server_uuid.clone()),
        logs,
        settings: known.map(|head| head.settings.clone()).unwrap_or_default(),
        // Of another stream's time.
        settings_at: None,
        system_zone: known.and_then(|head| head.system_zone.clone()),
        engines: known.map(|head| head.engines.clone()).unwrap_or_default(),
        doubts: known.map(|head| head.doubts.clone()).unwrap_or_default(),
        ahead: 0,
    })
}
