//! Removes what no kept backup needs of the archives.
//!
//! A segment goes only if it is before the position of every kept backup in every history, *and* was received
//! long before the oldest of them began. A host that prunes may have no keys, so both rest on what can be read
//! without one; `verify` with a key finds what was removed wrongly.
// Long because what goes and what stays is one decision, and its tests make archives by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use xb_binlog::{GtidState, LogDigest, LogPosition};
use xb_repo::archive::authority::Keyless;
use xb_repo::archive::base::{Base, BasePosition};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::listing::{ListedStream, Part, Problem, is_stored, servers, streams};
use xb_repo::archive::names::{
    floor_name, rollup_name, segment_name, server_folder, stream_folder,
};
use xb_repo::archive::plan::{Histories, Piece, Stream, reach, witness};
use xb_repo::archive::record::{FORMAT, Record, RecordDigest};
use xb_repo::archive::rollup::Span;
use xb_repo::archive::stop::RestoreStop;
use xb_repo::archive::stream::Floor;
use xb_repo::error::RepoError;
use xb_repo::list::{ListedRoot, State, list_by_key};
use xb_repo::names::RunId;

use crate::binlog::archive::pieces::NeededSegment;
use crate::binlog::archive::same_log;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::objects::remove::remove_objects;
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
    /// Nothing is known that prevents a restore.
    is_restorable: bool,
    /// It has some of the databases or tables only.
    is_partial: bool,
    /// A log can be replayed onto it.
    is_replayed: bool,
    /// A trial has replayed the archived log onto it.
    is_proven: bool,
    noted: Option<BasePosition>,
    /// A position in its server's log, and the digest of the log up to there.
    log: Option<(LogPosition, LogDigest)>,
}

/// Limit on the age of a log.
struct KeptWithin {
    /// The time from which on logs are kept, of one look at the clock.
    edge: Timestamp,
    /// Whether the log of these backups, by name, is the archived one; `None` if that is unknown.
    logs: BTreeMap<String, Option<bool>>,
}

/// Objects of one server's archive that are removed.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LogVerdict {
    /// Name of the server.
    pub server: String,
    /// Number of segments that go.
    pub segments: u64,
    /// Bytes of their objects.
    pub bytes: u64,
    /// Why nothing is removed, if something prevents it.
    pub kept: Option<String>,
    /// Why the store keeps segments that an earlier removal has left, if it does. They are behind a floor: only their room is lost.
    #[serde(skip)]
    pub left: Option<String>,
    /// The backup that would be the oldest one whose log is kept, if only its log were known to be the archived one. An older one
    /// keeps its log, too.
    #[serde(skip)]
    pub doubted: Option<String>,
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
    /// Those before them that an earlier removal has left, and the bytes of each.
    left: BTreeMap<u64, u64>,
    /// Roll-ups of nothing but such segments.
    rollups: Vec<Span>,
}

/// The backups of a ROOT.
#[must_use]
pub fn kept_backups(listed: &ListedRoot) -> Vec<KeptBackup> {
    let restorable = listed.lines.iter().filter(|line| line.restorable);
    let restorable: BTreeSet<&str> = restorable.map(|line| line.name.as_str()).collect();
    let proven = listed
        .lines
        .iter()
        .filter(|line| line.verified.as_ref().is_some_and(|proof| proof.proven_until.is_some()));
    let proven: BTreeSet<&str> = proven.map(|line| line.name.as_str()).collect();
    let kept = listed.sound.iter().map(|(name, stored)| KeptBackup {
        name: name.to_string(),
        server: stored.manifest.server.clone(),
        started: stored.manifest.started,
        is_restorable: restorable.contains(name.as_str()),
        is_partial: stored.manifest.source.is_partial,
        is_replayed: BasePosition::replayed(&stored.manifest).is_some()
            && !stored.manifest.source.is_partial,
        is_proven: proven.contains(name.as_str()),
        noted: BasePosition::of(&stored.manifest),
        log: same_log::noted(&stored.manifest),
    });
    kept.collect()
}

/// Decides what goes of each archive if only these backups are kept. With `within`, a log is kept for that long at
/// most: of the backups that are older, only the newest one that the log reaches counts, so that every second since
/// then can be restored.
///
/// # Errors
/// [`BackupError::Repo`] if the store cannot be read.
pub async fn plan_log_prune(
    session: &Session,
    kept: &[KeptBackup],
    within: Option<Duration>,
) -> Result<Vec<LogVerdict>, BackupError> {
    let mut verdicts = Vec::new();
    for server in session.cancel.or(servers(&session.root)).await? {
        let found = session.cancel.or(streams(&session.root, &server, &Keyless)).await?;
        let within = match within {
            Some(within) => kept_within(session, &server, &found, kept, within).await?,
            None => None,
        };
        let mut verdict = verdict(server, &found, kept, within.as_ref());
        session.cancel.or(confirm(session, &mut verdict)).await?;
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// Reads the own head of the last segment that goes of each stream. It names all before it by digest, so what was
/// read of them in roll-ups is as true as it is.
async fn confirm(session: &Session, verdict: &mut LogVerdict) -> Result<(), BackupError> {
    for removal in verdict.removals.iter().filter(|removal| !removal.numbers.is_empty()) {
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

/// Removes what no backup needs that is kept: of those that were listed before the backups were pruned, and of
/// those that are listed now. `removed` has the names of the backups that were removed in between.
///
/// # Errors
/// [`BackupError::Repo`]. What is removed by then is behind a floor.
pub async fn prune_logs(
    session: &Session,
    mut kept: Vec<KeptBackup>,
    removed: &[String],
    within: Option<Duration>,
) -> Result<Vec<LogVerdict>, BackupError> {
    if session.cancel.or(servers(&session.root)).await?.is_empty() {
        return Ok(Vec::new());
    }
    let listed = session.cancel.or(list_by_key(&session.root)).await?;
    let is_removed = |name: &str| removed.iter().any(|of| of == name);
    kept.retain(|backup| !is_removed(&backup.name));
    // The first listing of them is old: they need their log, and stand in for no other.
    kept.iter_mut().for_each(|backup| backup.is_restorable = false);
    kept.extend(kept_backups(&listed));
    let mut verdicts = plan_log_prune(session, &kept, within).await?;
    if let Some(why) = unknown(&listed) {
        for verdict in &mut verdicts {
            verdict.keep(why.clone());
        }
    }
    remove_all(session, &mut verdicts).await?;
    Ok(verdicts)
}

/// What was left comes last: what a store refuses to delete must not hold up anything else.
async fn remove_all(session: &Session, verdicts: &mut [LogVerdict]) -> Result<(), BackupError> {
    for verdict in &*verdicts {
        for removal in &verdict.removals {
            session.cancel.or(remove(session, &verdict.server, removal)).await?;
        }
    }
    for verdict in verdicts {
        for removal in verdict.removals.iter().filter(|removal| !removal.left.is_empty()) {
            let numbers = removal.left.keys().copied();
            let names = numbers.map(segment_name);
            let deleting = async {
                let deleted = remove_named(session, &verdict.server, removal.stream, names).await;
                Ok::<_, BackupError>(deleted)
            };
            if let Err(error) = session.cancel.or(deleting).await? {
                verdict.segments -= removal.left.len() as u64;
                verdict.bytes -= removal.left.values().sum::<u64>();
                verdict.left.get_or_insert_with(|| error.to_string());
            }
        }
    }
    Ok(())
}

/// Keys of objects of a stream.
fn keys(
    session: &Session,
    server: &str,
    stream: RunId,
    names: impl Iterator<Item = String>,
) -> Result<Vec<String>, BackupError> {
    let folder = stream_folder(&server_folder(server).map_err(RepoError::from)?, stream);
    Ok(names.map(|name| session.root.key(&format!("{folder}/{name}"))).collect())
}

/// Where the streams of a copy of an archive begin: what none of these backups needs is left out.
pub(crate) fn floors(
    server: &str,
    found: &[ListedStream],
    listed: &ListedRoot,
) -> BTreeMap<RunId, Floor> {
    if unknown(listed).is_some() {
        return BTreeMap::new();
    }
    let verdict = verdict(server.to_owned(), found, &kept_backups(listed), None);
    verdict.removals.into_iter().map(|removal| (removal.stream, removal.floor)).collect()
}

/// Returns why any log may be needed: the position of a backup is unknown.
fn unknown(listed: &ListedRoot) -> Option<String> {
    let is_unknown = |state| matches!(state, State::Damaged | State::Unreadable);
    let line = listed.lines.iter().find(|line| is_unknown(line.state))?;
    Some(format!("the manifest of {} cannot be read, so that its position is unknown", line.name))
}

fn verdict(
    server: String,
    found: &[ListedStream],
    kept: &[KeptBackup],
    within: Option<&KeptWithin>,
) -> LogVerdict {
    let mut verdict = LogVerdict {
        server,
        segments: 0,
        bytes: 0,
        kept: None,
        left: None,
        doubted: None,
        removals: Vec::new(),
    };
    let is_own = |backup: &&KeptBackup| {
        backup.server.as_ref().is_none_or(|server| *server == verdict.server)
    };
    let mut kept: Vec<&KeptBackup> = kept.iter().filter(is_own).collect();
    // The newest partial one stays however old it is: its log would stay with it.
    if kept.iter().any(|backup| backup.is_restorable && !backup.is_partial) {
        kept.retain(|backup| !backup.is_partial);
    }
    let all: Vec<Stream> = found.iter().filter_map(|found| found.stream.clone()).collect();
    let histories = Histories::new(&all);
    if let Some(within) = within {
        verdict.doubted = limit(&mut kept, &verdict.server, &histories, within);
    }
    let Some(oldest) = kept.iter().map(|backup| backup.started).min() else {
        verdict.keep("no backup of it is kept".to_owned());
        return verdict;
    };
    let fault = |found: &ListedStream| {
        Some((found.id, open_problems(&histories, found).next()?.to_string()))
    };
    if let Some((id, what)) = found.iter().find_map(fault) {
        verdict.keep(format!("stream {id}: {what}; run `binlog verify`"));
        return verdict;
    }
    let noted = kept.iter().filter_map(|backup| backup.noted.as_ref());
    let bases: Vec<Base> = noted.flat_map(|noted| histories.places(noted)).collect();
    let mut needed = reach(&all, &bases);
    let witnesses = kept.iter().filter_map(|backup| witness(&all, backup.noted.as_ref()?));
    needed.extend(witnesses.map(|head| (&*head.stream, head.number)));
    let links = all.iter().filter_map(|stream| stream.head.content.begins.after());
    let followed: BTreeSet<&str> = links.map(|link| &*link.stream).collect();
    for (found, stream) in found.iter().filter_map(|found| Some((found, found.stream.as_ref()?))) {
        let is_followed = followed.contains(stream.id());
        let goes = |head: &ListedSegment| {
            let is_needed = needed.contains(&(&*head.stream, head.number));
            !is_needed && head.received[1].saturating_add(CLOCKS).is_ok_and(|at| at < oldest)
        };
        let mut numbers: Vec<u64> = Vec::new();
        let mut last: Option<&ListedSegment> = None;
        let first = stream.floor.as_ref().map_or(0, |floor| floor.number);
        let floor = stream.floor.as_ref();
        let mut before =
            floor.map_or(Some(stream.head.digest), |floor| RecordDigest::parse(&floor.head));
        let mut expected = first;
        let may_lack = !found.problems.is_empty();
        for (number, segment) in &stream.segments {
            // A receiver continues behind the last segment of what is not followed yet.
            let is_last = !is_followed && stream.segments.keys().next_back() == Some(number);
            let follows = match expected == *number {
                true => before.is_some() && segment.previous == before,
                // Those between were removed, or received again.
                false => *number <= stream.removed_below || may_lack,
            };
            if is_last || !follows || !goes(segment) {
                break;
            }
            (before, expected) = (Some(segment.digest), number.saturating_add(1));
            numbers.push(*number);
            last = Some(segment);
        }
        // The rest begins between two transactions, so that it can be read alone.
        while let Some(number) = numbers.last()
            && stream.segments.get(&(number + 1)).is_some_and(|next| next.starts_inside)
        {
            numbers.pop();
            last =
                numbers.last().and_then(|number| stream.segments.get(number)).map(|last| &**last);
        }
        let left = found.left.clone();
        let bytes = numbers.iter().filter_map(|number| found.sizes.get(number)).sum::<u64>();
        verdict.segments += (numbers.len() + left.len()) as u64;
        verdict.bytes += bytes + left.values().sum::<u64>();
        let rollups_before =
            |end: u64| found.rollups.iter().filter(move |(_, last)| *last < end).copied().collect();
        let Some(last) = last else {
            // They are behind a floor already.
            if let Some(floor) = stream.floor.clone().filter(|_| !left.is_empty()) {
                let rollups = rollups_before(floor.number);
                verdict.removals.push(Removal { stream: found.id, floor, numbers, left, rollups });
            }
            continue;
        };
        let next = stream.segments.get(&last.number.saturating_add(1));
        let at = next.map_or_else(|| last.to.clone(), |next| next.from.clone());
        let rollups = rollups_before(last.number.saturating_add(1));
        verdict.removals.push(Removal {
            stream: found.id,
            floor: Floor {
                format: FORMAT,
                stream: stream.id().to_owned(),
                number: last.number.saturating_add(1),
                head: last.digest.to_string(),
                at,
            },
            numbers,
            left,
            rollups,
        });
    }
    verdict
}

/// Finds out whether the log of each backup that may be the oldest one whose log is kept is the archived one, up to one that is. A
/// copy of a server has a log of the same name, positions and GTIDs: its bytes tell, which can be read without a key unless they are
/// sealed, and a trial that has replayed the log. `None` if nothing is archived.
async fn kept_within(
    session: &Session,
    server: &str,
    found: &[ListedStream],
    kept: &[KeptBackup],
    within: Duration,
) -> Result<Option<KeptWithin>, BackupError> {
    let all: Vec<Stream> = found.iter().filter_map(|found| found.stream.clone()).collect();
    let sealed = found.iter().filter(|found| found.is_sealed());
    let sealed: BTreeSet<String> = sealed.map(|found| found.id.to_string()).collect();
    let histories = Histories::new(&all);
    let mut logs = BTreeMap::new();
    let Some(edge) = edge(&all, within, Timestamp::now()) else { return Ok(None) };
    let mut kept: Vec<&KeptBackup> = kept.iter().collect();
    kept.sort_by_key(|backup| std::cmp::Reverse(backup.started));
    let mut doubts = 0;
    for backup in kept {
        let Some((base, first)) = backup.as_base(server, &histories, edge) else { continue };
        let is_of_mysql = matches!(base.gtids, Some(GtidState::MySql(_)));
        let is_same = match &backup.log {
            // The GTIDs of MySQL name the server.
            _ if backup.is_proven || is_of_mysql => Some(true),
            Some((at, noted)) if *at == base.position => {
                let log = histories.log_up_to(&first);
                let is_sealed = log.iter().any(|piece| sealed.contains(piece.stream));
                let log = log.iter().map(|piece| NeededSegment {
                    segment: piece.segment.clone(),
                    key: None,
                    until: piece.until,
                    server: 0,
                    repeats: None,
                });
                match is_sealed {
                    true => None,
                    false => {
                        let log = log.collect();
                        same_log::is_same(session, server, log, at.offset(), noted).await?
                    }
                }
            }
            _ => None,
        };
        logs.insert(backup.name.clone(), is_same);
        doubts += usize::from(is_same.is_none());
        if is_same == Some(true) || doubts > 1 {
            break;
        }
    }
    Ok(Some(KeptWithin { edge, logs }))
}

/// The problems of a stream, but for segments that another stream has received again: those are history.
pub(super) fn open_problems<'f>(
    histories: &Histories<'_>,
    found: &'f ListedStream,
) -> impl Iterator<Item = &'f Problem> + use<'f> {
    let has_missing = found.problems.iter().any(|problem| problem.part == Part::Missing);
    let again = found.stream.as_ref().filter(|_| has_missing);
    let is_again = again.is_some_and(|stream| histories.received_again(stream).is_some());
    found.problems.iter().filter(move |problem| problem.part != Part::Missing || !is_again)
}

impl KeptBackup {
    /// Where a replay to the end of the archive begins, if it can stand in for all older ones.
    fn as_base<'a>(
        &self,
        server: &str,
        histories: &Histories<'a>,
        edge: Timestamp,
    ) -> Option<(Base, Piece<'a>)> {
        let is_usable = self.is_restorable && self.is_replayed;
        if !is_usable || self.server.as_deref() != Some(server) {
            return None;
        }
        let base = histories.locate(self.noted.as_ref()?).filter(|base| base.taken <= edge)?;
        // On a branch that has ended, or behind a gap, it is none.
        let plan = histories.plan(&base, &RestoreStop::Latest).ok()?;
        let first = plan.pieces.first().copied()?;
        Some((base, first))
    }
}

/// Leaves out the backups for which no log is kept: those from before this time, but for the newest backup of
/// the server among them from which the end of the archive can be reached. Without one, all stay. If it cannot be told whether
/// its log is the archived one, it is returned, and the next one of them stays, too.
fn limit(
    kept: &mut Vec<&KeptBackup>,
    server: &str,
    histories: &Histories<'_>,
    within: &KeptWithin,
) -> Option<String> {
    kept.sort_by_key(|backup| std::cmp::Reverse(backup.started));
    let mut doubted = None;
    for (number, backup) in kept.iter().enumerate() {
        let is_same = within.logs.get(&backup.name).copied();
        if is_same == Some(Some(false)) || backup.as_base(server, histories, within.edge).is_none()
        {
            continue;
        }
        if is_same == Some(None) && doubted.is_none() {
            doubted = Some(backup.name.clone());
            continue;
        }
        kept.truncate(number + 1);
        break;
    }
    doubted
}

/// The time from which on logs are kept, if they are for `within`. A clock that is ahead removes nothing.
pub(crate) fn edge(streams: &[Stream], within: Duration, now: Timestamp) -> Option<Timestamp> {
    let segments = streams.iter().flat_map(|stream| stream.segments.values());
    let last = segments.map(|segment| segment.received[1]).max()?;
    now.min(last).checked_sub(within).ok()
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
    let record = Record::encode(&removal.floor, None)
        .map_err(|error| BackupError::from(crate::archive_error::ArchiveError::from(error)))?;
    let record = Bytes::from(record);
    let floor = [floor_name(removal.floor.number)].into_iter();
    for key in keys(session, server, removal.stream, floor)? {
        root.store().put(&key, record.clone().into()).await?;
        root.store().confirm_content(&key, &record).await?;
    }
    let segments = removal.numbers.iter().map(|number| segment_name(*number));
    let names = segments.chain(removal.rollups.iter().map(|span| rollup_name(*span)));
    remove_named(session, server, removal.stream, names).await
}

/// Removes objects of a stream.
async fn remove_named(
    session: &Session,
    server: &str,
    stream: RunId,
    names: impl Iterator<Item = String>,
) -> Result<(), BackupError> {
    let folder = stream_folder(&server_folder(server).map_err(RepoError::from)?, stream);
    let keys = keys(session, server, stream, names)?;
    Ok(remove_objects(&session.root, &folder, keys).await?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xb_repo::archive::record::digest;
    use xb_repo::archive::sample::{at, segment_head, stream_head};
    use xb_repo::archive::segment::SegmentHead;
    use xb_repo::archive::stream::{Link, StreamHead, StreamOrigin};
    use xb_repo::manifest::clone_facts::CloneFacts;
    use xb_repo::manifest::{Manifest, sample};
    use xb_repo::root::Root;
    use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

    use super::*;
    use crate::session::Resources;

    const UUID: &str = "11111111-2222-3333-4444-555555555555";

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    /// A stream of one segment, with transactions 1 to 9.
    fn stream() -> Stream {
        let id = "0".repeat(32);
        let head = StreamHead { started: second(100), ..stream_head(&id) };
        let head = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
        let segment = SegmentHead {
            previous: head.digest.to_string(),
            gtids_before: Some(format!("{UUID}:1")),
            gtids_after: Some(format!("{UUID}:1-9")),
            transactions: 8,
            received: [second(900); 2],
            ..segment_head(&id, 0, [4, 900], b" ")
        };
        let segment = Record::decode(&Record::encode(&segment, None).unwrap()).unwrap();
        let segments = BTreeMap::from([(0, ListedSegment::of(&segment, None))]);
        Stream {
            head,
            segments,
            stated: 1,
            end: None,
            shows_end: true,
            floor: None,
            removed_below: 0,
            covered_until: None,
            written: None,
        }
    }

    fn kept(finished: i64, change: impl FnOnce(&mut Manifest)) -> KeptBackup {
        let mut manifest = sample();
        (manifest.started, manifest.finished) = (second(finished), second(finished));
        change(&mut manifest);
        KeptBackup {
            name: finished.to_string(),
            server: Some("shop".to_owned()),
            started: manifest.started,
            is_restorable: true,
            is_partial: manifest.source.is_partial,
            is_replayed: BasePosition::replayed(&manifest).is_some(),
            is_proven: false,
            noted: BasePosition::of(&manifest),
            log: None,
        }
    }

    fn clone_of_mysql(manifest: &mut Manifest) {
        manifest.mysql_clone = Some(CloneFacts {
            has_keys: Some(false),
            version: "9.7.4".to_owned(),
            page_size: 16384,
            gtids_from: Some(format!("{UUID}:1-3")),
            gtids_to: Some(format!("{UUID}:1-4")),
            empty_tables: None,
        });
    }

    fn by_xtrabackup(text: String) -> impl FnOnce(&mut Manifest) {
        move |manifest| {
            manifest.source.tool_name = Some("xtrabackup".to_owned());
            manifest.source.binlog_pos = Some(text.into());
        }
    }

    /// A stream of which an earlier removal has left segments behind its floor.
    fn left_behind() -> (ListedStream, Floor) {
        let mut stream = stream();
        let mut segment = stream.segments.remove(&0).unwrap();
        Arc::make_mut(&mut segment).number = 7;
        stream.segments.insert(7, segment);
        let floor = Floor {
            format: FORMAT,
            stream: "0".repeat(32),
            number: 7,
            head: digest(b""),
            at: at(4),
        };
        (stream.floor, stream.removed_below) = (Some(floor.clone()), 7);
        let found = ListedStream {
            id: RunId::parse(stream.id()).unwrap(),
            stream: Some(stream),
            alive: None,
            end: None,
            sizes: BTreeMap::from([(7, 10)]),
            left: (3..7).map(|number| (number, 10)).collect(),
            rollups: vec![(0, 6), (4, 7)],
            keys: None,
            problems: Vec::new(),
            remarks: Vec::new(),
        };
        (found, floor)
    }

    /// What an earlier removal has left is behind a floor, so that no floor of now shows it.
    #[test]
    fn what_a_killed_removal_has_left_goes_with_the_next_one() {
        let (found, floor) = left_behind();
        let kept = [kept(500, by_xtrabackup("filename 'bin.000001', position '400'".to_owned()))];
        let verdict = verdict("shop".to_owned(), &[found], &kept, None);
        assert_eq!((verdict.segments, verdict.bytes), (4, 40));
        let [removal] = &verdict.removals[..] else { panic!("{verdict:?}") };
        assert!(removal.left.keys().copied().eq(3..7) && removal.numbers.is_empty());
        assert_eq!((&removal.rollups[..], &removal.floor), (&[(0, 6)][..], &floor));
    }

    /// It may be of a backup that needs the log from its beginning on.
    #[tokio::test]
    async fn a_copy_takes_the_whole_log_while_a_manifest_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let mut manifest = sample();
        (manifest.name, manifest.server) = ("n".to_owned(), Some("shop".to_owned()));
        by_xtrabackup("filename 'bin.000001', position '400'".to_owned())(&mut manifest);
        let name = xb_repo::names::BackupName::new("n").unwrap();
        root.commit(&name, &manifest, None).await.unwrap();
        let found = [left_behind().0];
        let begins = async || floors("shop", &found, &list_by_key(&root).await.unwrap());
        assert_eq!(begins().await.len(), 1);
        std::fs::write(folder.path().join(".xb-catalog/other"), "{").unwrap();
        assert!(begins().await.is_empty());
    }

    /// A store may refuse to delete what was left, as one with a retention time does.
    #[tokio::test]
    async fn what_cannot_be_deleted_holds_up_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let session = Session::new(root, Resources { memory: 1 << 20, threads: 1, parallel: 1 });
        let removal = |id: &str, left: &[u64]| {
            let floor = Floor {
                format: FORMAT,
                stream: id.repeat(32),
                number: 8,
                head: digest(b""),
                at: at(4),
            };
            Removal {
                stream: RunId::parse(&id.repeat(32)).unwrap(),
                floor,
                numbers: vec![7],
                left: left.iter().map(|number| (*number, 10)).collect(),
                rollups: Vec::new(),
            }
        };
        let removals = vec![removal("0", &[3]), removal("1", &[4])];
        let path_of = |removal: &Removal, number: u64| {
            let names = [segment_name(number)].into_iter();
            let key = keys(&session, "shop", removal.stream, names).unwrap().remove(0);
            folder.path().join(key)
        };
        let paths = [(0, 3), (0, 7), (1, 4), (1, 7)];
        let paths = paths.map(|(of, number)| path_of(&removals[of], number));
        for path in &paths {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"segment").unwrap();
        }
        // The store refuses to delete this one.
        std::fs::remove_file(&paths[0]).unwrap();
        std::os::unix::fs::symlink("/nowhere", &paths[0]).unwrap();
        let (server, kept, left) = ("shop".to_owned(), None, None);
        let doubted = None;
        let mut all =
            [LogVerdict { server, segments: 4, bytes: 40, kept, left, doubted, removals }];
        remove_all(&session, &mut all).await.unwrap();
        let is_there = paths.map(|path| path.symlink_metadata().is_ok());
        assert_eq!(is_there, [true, false, false, false]);
        assert_eq!((all[0].segments, all[0].bytes, all[0].left.is_some()), (3, 30, true));
    }

    /// A stream with these segments: their numbers, and the offsets of their beginnings and ends.
    fn stream_of(id: &str, begins: StreamOrigin, segments: &[(u64, u64, u64)]) -> ListedStream {
        let mut stream = stream();
        let mut head = stream.head.content.clone();
        let first = segments[0].1;
        (head.stream, head.begins, head.start) = (id.repeat(32), begins, at(first));
        head.gtids = Some(format!("{UUID}:1-{first}"));
        stream.head = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
        let one = stream.segments.remove(&0).unwrap();
        let mut previous = stream.head.digest;
        for (number, from, to) in segments {
            let mut segment = ListedSegment::clone(&one);
            (segment.stream, segment.number) = (id.repeat(32).as_str().into(), *number);
            (segment.from, segment.to, segment.previous) = (at(*from), at(*to), Some(previous));
            segment.gtids_before = Some(format!("{UUID}:1-{from}").as_str().into());
            segment.gtids_after = Some(format!("{UUID}:1-{to}").as_str().into());
            segment.digest =
                RecordDigest::parse(&digest(&[&to.to_be_bytes()[..], id.as_bytes()].concat()))
                    .unwrap();
            previous = segment.digest;
            stream.segments.insert(*number, Arc::new(segment));
        }
        stream.stated = segments.last().unwrap().0 + 1;
        ListedStream {
            id: RunId::parse(stream.id()).unwrap(),
            stream: Some(stream),
            alive: None,
            end: None,
            sizes: segments.iter().map(|(number, ..)| (*number, 10)).collect(),
            left: BTreeMap::new(),
            rollups: Vec::new(),
            keys: None,
            problems: Vec::new(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn what_was_received_again_holds_up_no_removal() {
        let mut lacking = stream_of("0", StreamOrigin::First, &[(0, 4, 500), (2, 900, 1300)]);
        let what = "segment 1 is missing".to_owned();
        lacking.problems.push(Problem { part: Part::Missing, what });
        let of_first = lacking.stream.as_ref().unwrap().segments[&0].digest.to_string();
        let after = Link { stream: "0".repeat(32), number: 0, head: of_first };
        let begins = StreamOrigin::Continues { after, at: None };
        let again = stream_of("1", begins, &[(0, 500, 1300), (1, 1300, 2500)]);
        let kept =
            [kept(20_000, by_xtrabackup("filename 'bin.000001', position '2000'".to_owned()))];
        let decide = |found: &[ListedStream]| verdict("shop".to_owned(), found, &kept, None);
        let all = [lacking, again];
        let decided = decide(&all);
        let removed: Vec<&[u64]> = decided.removals.iter().map(|of| &of.numbers[..]).collect();
        assert_eq!((removed, &decided.kept), (vec![&[0, 2][..], &[0]], &None));
        let alone = decide(&all[..1]).kept.unwrap();
        assert!(alone.contains("segment 1 is missing; run `binlog verify`"), "{alone}");
    }

    #[test]
    fn nothing_of_an_archive_with_a_fault_goes() {
        let found = |problems| ListedStream {
            id: RunId::parse(&"0".repeat(32)).unwrap(),
            stream: Some(stream()),
            alive: None,
            end: None,
            sizes: BTreeMap::new(),
            left: BTreeMap::new(),
            rollups: Vec::new(),
            keys: None,
            problems,
            remarks: Vec::new(),
        };
        let decide = |problems| {
            verdict("shop".to_owned(), &[found(problems)], &[kept(20_000, clone_of_mysql)], None)
        };
        assert_eq!(decide(Vec::new()).kept, None);
        let fault = Problem { part: Part::Segment, what: "segment 1 is missing".to_owned() };
        assert!(
            decide(vec![fault]).kept.unwrap().contains("segment 1 is missing; run `binlog verify`")
        );
    }

    #[test]
    fn only_a_backup_that_can_be_replayed_is_the_base_of_what_is_kept() {
        let streams = [stream()];
        let position = "filename 'bin.000001', position '400'";
        let with_gtids = format!("{position}, GTID of the last change '{UUID}:1-5'");
        for text in [with_gtids, position.to_owned()] {
            let newer = kept(500, by_xtrabackup(text));
            assert!(newer.noted.is_some());
            let (older, oldest) = (kept(400, clone_of_mysql), kept(300, clone_of_mysql));
            let mut left = vec![&oldest, &newer, &older];
            let histories = Histories::new(&streams);
            let within = |logs| KeptWithin { edge: second(800), logs };
            let doubted = limit(&mut left, "shop", &histories, &within(BTreeMap::new()));
            let names: Vec<&str> = left.iter().map(|backup| &*backup.name).collect();
            assert_eq!((names, doubted), (vec!["500", "400"], None));
            // One with another log is none; of one whose log is not known, an older one stays, too.
            for (is_same, names, doubted) in [
                (Some(true), vec!["500", "400"], None),
                (Some(false), vec!["500", "400", "300"], None),
                (None, vec!["500", "400", "300"], Some("400".to_owned())),
            ] {
                let mut left = vec![&oldest, &newer, &older];
                let within = within(BTreeMap::from([("400".to_owned(), is_same)]));
                assert_eq!(limit(&mut left, "shop", &histories, &within), doubted);
                let left: Vec<&str> = left.iter().map(|backup| &*backup.name).collect();
                assert_eq!(left, names);
            }
        }
    }
}
