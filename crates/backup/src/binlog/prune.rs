//! Removes what no kept backup needs of the archives.
//!
//! A segment goes only if it is before the position of every kept backup in every history, *and* was received
//! long before the oldest of them began. A host that prunes may have no keys, so both rest on what can be read
//! without one; `verify` with a key finds what was removed wrongly.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use xb_repo::archive::listing::{Found, is_stored, servers, streams};
use xb_repo::archive::names::{
    floor_name, rollup_name, segment_name, server_folder, stream_folder,
};
use xb_repo::archive::plan::{Base, Stream, reach};
use xb_repo::archive::record::{FORMAT, Record};
use xb_repo::archive::rollup::Span;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::Floor;
use xb_repo::error::RepoError;
use xb_repo::list::{ListedRoot, State, list_by_key};
use xb_repo::names::RunId;
use xb_repo::restorable::Sound;

use crate::error::BackupError;
use crate::session::Session;

/// Difference of two clocks that is allowed for.
const CLOCKS: SignedDuration = SignedDuration::from_hours(1);

/// A kept backup, as far as the archives are concerned.
#[derive(Debug, Clone)]
pub struct KeptBackup {
    /// Its name.
    pub name: String,
    server: Option<String>,
    started: Timestamp,
    base: Option<Base>,
}

/// What goes of the archive of one server.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LogVerdict {
    /// Name of the server.
    pub server: String,
    /// Number of segments that go.
    pub segments: u64,
    /// Bytes of their objects.
    pub bytes: u64,
    /// Why nothing goes, if something stands against it.
    pub kept: Option<String>,
    #[serde(skip)]
    removals: Vec<Removal>,
}

/// The beginning of a stream that goes.
#[derive(Debug, Clone)]
struct Removal {
    stream: RunId,
    floor: Floor,
    /// Numbers of the segments.
    numbers: Vec<u64>,
    /// Roll-ups of nothing but such segments.
    rollups: Vec<Span>,
}

/// The kept backups of a ROOT: all of `sound` but those that go.
#[must_use]
pub fn kept_backups(sound: &Sound, goes: impl Fn(&str) -> bool) -> Vec<KeptBackup> {
    let kept = sound.iter().filter(|(name, _)| !goes(name.as_str()));
    let of = |(name, stored): (&xb_repo::names::BackupName, &xb_repo::manifest::StoredManifest)| {
        let manifest = &stored.manifest;
        KeptBackup {
            name: name.to_string(),
            server: manifest.server.clone(),
            started: manifest.started,
            base: Base::of(manifest),
        }
    };
    kept.map(of).collect()
}

/// Decides what goes of each archive if only these backups are kept.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn plan_log_prune(
    session: &Session,
    kept: &[KeptBackup],
) -> Result<Vec<LogVerdict>, BackupError> {
    let mut verdicts = Vec::new();
    for server in session.cancel.or(to_backup(servers(&session.root))).await? {
        let found = session.cancel.or(to_backup(streams(&session.root, &server))).await?;
        let mut verdict = verdict(server, &found, kept);
        session.cancel.or(confirm(session, &mut verdict)).await?;
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// Reads the own head of the last segment that goes of each stream. It names all before it by digest, so what was
/// read of them in roll-ups is as true as it is.
async fn confirm(session: &Session, verdict: &mut LogVerdict) -> Result<(), BackupError> {
    for removal in &verdict.removals {
        let Floor { stream, number, head, .. } = &removal.floor;
        let number = number.saturating_sub(1);
        if !is_stored(&session.root, &verdict.server, stream, number, head).await? {
            let why = format!(
                "stream {stream}, segment {number}: its head is not that of its roll-up; run `binlog verify`"
            );
            verdict.keep(why);
            break;
        }
    }
    Ok(())
}

async fn to_backup<T>(work: impl Future<Output = Result<T, RepoError>>) -> Result<T, BackupError> {
    Ok(work.await?)
}

/// Removes what no backup needs that is kept: of those that were listed before the backups were pruned, and of
/// those that are listed now. `gone` has the names of the backups that were removed in between.
///
/// # Errors
/// [`BackupError::Repo`]. What is removed by then is behind a floor.
pub async fn prune_logs(
    session: &Session,
    mut kept: Vec<KeptBackup>,
    gone: &[String],
) -> Result<Vec<LogVerdict>, BackupError> {
    if session.cancel.or(to_backup(servers(&session.root))).await?.is_empty() {
        return Ok(Vec::new());
    }
    let listed = session.cancel.or(to_backup(list_by_key(&session.root))).await?;
    let is_gone = |name: &str| gone.iter().any(|of| of == name);
    kept.retain(|backup| !is_gone(&backup.name));
    kept.extend(kept_backups(&listed.sound, |_| false));
    let mut verdicts = plan_log_prune(session, &kept).await?;
    if let Some(why) = unknown(&listed) {
        for verdict in &mut verdicts {
            verdict.keep(why.clone());
        }
    }
    for verdict in &verdicts {
        for removal in &verdict.removals {
            session.cancel.or(remove(session, &verdict.server, removal)).await?;
        }
    }
    Ok(verdicts)
}

/// Why any log may be needed: the position of a backup is unknown.
fn unknown(listed: &ListedRoot) -> Option<String> {
    let is_unknown = |state| matches!(state, State::Damaged | State::Unreadable);
    let line = listed.lines.iter().find(|line| is_unknown(line.state))?;
    Some(format!("the manifest of {} cannot be read, so that its position is unknown", line.name))
}

fn verdict(server: String, found: &[Found], kept: &[KeptBackup]) -> LogVerdict {
    let mut verdict =
        LogVerdict { server, segments: 0, bytes: 0, kept: None, removals: Vec::new() };
    let is_own = |backup: &&KeptBackup| {
        backup.server.as_ref().is_none_or(|server| *server == verdict.server)
    };
    let kept: Vec<&KeptBackup> = kept.iter().filter(is_own).collect();
    let Some(oldest) = kept.iter().map(|backup| backup.started).min() else {
        verdict.keep("no backup of it is kept".to_owned());
        return verdict;
    };
    if let Some(found) = found.iter().find(|found| !found.problems.is_empty()) {
        let id = found.id;
        let what = found.problems.first().map(ToString::to_string).unwrap_or_default();
        verdict.keep(format!("stream {id}: {what}; run `binlog verify`"));
        return verdict;
    }
    let all: Vec<Stream> = found.iter().filter_map(|found| found.stream.clone()).collect();
    let needed: BTreeSet<(String, u64)> = kept
        .iter()
        .filter_map(|backup| backup.base.as_ref())
        .flat_map(|base| reach(&all, base))
        .map(|piece| (piece.stream.to_owned(), piece.segment.content.number))
        .collect();
    for (found, stream) in found.iter().filter_map(|found| Some((found, found.stream.as_ref()?))) {
        let is_followed = all.iter().any(|other| {
            other.head.content.begins.after().is_some_and(|link| link.stream == stream.id())
        });
        let goes = |segment: &Record<SegmentHead>| {
            let head = &segment.content;
            let is_needed = needed.contains(&(head.stream.clone(), head.number));
            !is_needed && head.received[1].saturating_add(CLOCKS).is_ok_and(|at| at < oldest)
        };
        let mut numbers: Vec<u64> = Vec::new();
        let mut last: Option<&Record<SegmentHead>> = None;
        let first = stream.floor.as_ref().map_or(0, |floor| floor.number);
        let mut before = stream.floor.as_ref().map_or(&stream.head.digest, |floor| &floor.head);
        for (expected, (number, segment)) in (first..).zip(&stream.segments) {
            // A receiver continues behind the last segment of what is not followed yet.
            let is_last = !is_followed && stream.segments.keys().next_back() == Some(number);
            let follows = segment.content.previous == *before;
            if expected != *number || is_last || !follows || !goes(segment) {
                break;
            }
            before = &segment.digest;
            numbers.push(*number);
            last = Some(segment);
        }
        let Some(last) = last else { continue };
        let next = stream.segments.get(&last.content.number.saturating_add(1));
        let at = next.map_or_else(|| last.content.to.clone(), |next| next.content.from.clone());
        let end = last.content.number;
        let rollups = found.rollups.iter().filter(|(_, last)| *last <= end).copied().collect();
        verdict.segments += numbers.len() as u64;
        verdict.bytes += numbers.iter().filter_map(|number| found.sizes.get(number)).sum::<u64>();
        verdict.removals.push(Removal {
            stream: found.id,
            floor: Floor {
                format: FORMAT,
                stream: stream.id().to_owned(),
                number: last.content.number.saturating_add(1),
                head: last.digest.clone(),
                at,
            },
            numbers,
            rollups,
        });
    }
    verdict
}

impl LogVerdict {
    fn keep(&mut self, why: String) {
        (self.segments, self.bytes) = (0, 0);
        self.removals.clear();
        self.kept = Some(why);
    }
}

/// The floor first: a reader that finds a segment missing knows why.
async fn remove(session: &Session, server: &str, removal: &Removal) -> Result<(), BackupError> {
    let root = &session.root;
    let folder = stream_folder(&server_folder(server).map_err(RepoError::from)?, removal.stream);
    let record = Record::encode(&removal.floor, None)
        .map_err(|error| BackupError::from(crate::archive_error::ArchiveError::from(error)))?;
    let key = root.key(&format!("{folder}/{}", floor_name(removal.floor.number)));
    root.store().put(&key, record.into()).await?;
    let segments = removal.numbers.iter().map(|number| segment_name(*number));
    let names = segments.chain(removal.rollups.iter().map(|span| rollup_name(*span)));
    let keys = names.map(|name| root.key(&format!("{folder}/{name}")));
    Ok(root.store().delete_all(keys.collect()).await?)
}
