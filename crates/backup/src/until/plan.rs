//! Chooses the backup, finds the stop in the archive, and reads everything between them once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use xb_binlog::{AnyGtid, LogDigest, LogPosition, RelayPlan};
use xb_repo::archive::base::{Base, BasePosition};
use xb_repo::archive::plan::{Histories, Piece, Plan, PlanError};
use xb_repo::archive::stop::RestoreStop;
use xb_repo::error::RepoError;
use xb_repo::list::{ListedRoot, Listing, State, list_by_key};
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::verification::Level;

use crate::binlog::archive::choose_archive::choose_archive;
use crate::binlog::archive::pieces::{NeededSegment, fetch};
use crate::binlog::archive::same_log;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::read::find::stock_files;
use crate::read::request::GetRequest;
use crate::restore::choose::{ChosenBackup, links};
use crate::restore::prepare::PrepareTool;
use crate::restore::request::AfterRestore;
use crate::session::Session;
use crate::until::archive::Archive;
use crate::until::beginning::{before_stop, displaced, gtids_at};
use crate::until::origin::{OriginSettings, heads, origin};
use crate::until::request::UntilRequest;
use crate::until::scan::{AdjacentTransaction, Scanned, Scanner, Span};
use crate::until_error::UntilError;

/// Backups that a message names.
const NAMED: usize = 5;

/// A restore to a stop, every byte of whose logs was read and checked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UntilPlan {
    /// Name of the backup.
    pub backup: String,
    /// Name of the server.
    pub server: String,
    /// Position of the backup, as `FILE:POSITION`.
    pub from: String,
    /// Position of the stop.
    pub to: String,
    /// GTIDs of the data at the stop.
    pub gtids: String,
    /// The last transaction that is applied or left out; `None` if there is none.
    pub last: Option<AdjacentTransaction>,
    /// The first transaction behind the stop, if it is known.
    pub next: Option<AdjacentTransaction>,
    /// Number of transactions to apply.
    pub transactions: u64,
    /// Number of transactions that are left out.
    pub left_out: u64,
    /// Number of transactions that are applied after the first one that is left out.
    pub later: u64,
    /// Bytes of the logs to replay.
    pub log_bytes: u64,
    /// Number of segments to fetch.
    pub segments: usize,
    /// Remarks for the user.
    pub remarks: Vec<String>,
    pub(super) work: ReplayWork,
}

impl UntilPlan {
    /// Time of the last transaction, or of the backup's end if there is none. If a session has set a later time than that at
    /// which it was received, that one.
    pub(crate) fn time(&self) -> Timestamp {
        let received = self.work.needed.last().map(|needed| needed.segment.received[1]);
        let time = self.last.as_ref().map_or(self.work.taken, |last| last.time);
        received.map_or(time, |received| time.min(received))
    }

    /// The stop.
    pub(crate) fn stop(&self) -> Option<&LogPosition> {
        match &self.work.relay.stop {
            xb_binlog::ReplayStop::At(position) => Some(position),
            _ => None,
        }
    }

    /// Reasons why the data may differ from what the server had, by its settings.
    pub(crate) fn doubts(&self) -> &[String] {
        &self.work.doubts
    }

    /// Whether the backup has only some of the server's tables.
    pub(crate) fn is_partial(&self) -> bool {
        self.work.is_partial
    }

    /// Whether the present history of the archive has left the one in which the stop lies.
    pub(crate) fn is_left(&self) -> bool {
        self.work.is_left
    }

    /// `server_id` of the server whose log the stop lies in; `None` if nothing is replayed.
    pub(crate) fn source_id(&self) -> Option<u32> {
        self.work.source_id
    }
}

/// Requirements of a replay of a plan.
#[derive(Debug, Clone)]
pub(super) struct ReplayWork {
    pub(super) name: BackupName,
    /// The run that wrote the backup.
    pub(super) run: String,
    pub(super) start: LogPosition,
    /// Time of the backup's end.
    pub(super) taken: Timestamp,
    pub(super) relay: RelayPlan,
    /// The present history of the archive is another one.
    pub(super) is_left: bool,
    pub(super) needed: Arc<[NeededSegment]>,
    pub(super) origin: OriginSettings,
    /// Versions of the server, of the backup and of the log.
    pub(super) versions: Vec<String>,
    /// `server_id` of the server whose log the stop lies in.
    pub(super) source_id: Option<u32>,
    /// The backup has only some of the server's tables.
    pub(super) is_partial: bool,
    /// Reasons why the data may differ from what the server had.
    pub(super) doubts: Vec<String>,
}

/// Plans a restore to a stop: nothing is written. `get` has the keys, and gets the name of the backup.
///
/// Reads and checks every event between the backup and the stop. With several backups that fit, the newest one
/// is taken.
///
/// # Errors
/// [`UntilError`], if there is no proven way to the stop; [`BackupError::Keys`] if the keys do not open what is
/// needed; [`BackupError::Repo`].
pub async fn plan_until(
    session: &Session,
    request: &UntilRequest,
    get: &mut GetRequest,
) -> Result<UntilPlan, BackupError> {
    session.observer.begin_phase("logs");
    if let Some(name) = &request.name {
        get.name = name.clone();
        let proven = proven(session, get).await.map_err(or_place)?;
        let of_backup = proven.1.server.as_deref();
        let archive = session.cancel.or(archive(session, request, of_backup, get)).await?;
        return plan_from(session, request, &archive, (name, proven)).await;
    }
    let archive = session.cancel.or(archive(session, request, None, get)).await?;
    let listed = session.cancel.or(listed(session)).await?;
    let (mut passed, mut remarks) = (PassedBackups::default(), Vec::new());
    loop {
        let is_by_bytes;
        (get.name, is_by_bytes) = match newest_fitting(&listed, &archive, &request.stop, &passed) {
            Ok(fitting) => fitting,
            Err(error) => {
                let candidates = candidates(&listed, &archive);
                let noted = candidates.iter().filter_map(|(_, of)| BasePosition::replayed(of));
                let unused = archive.needs_unused(noted, &request.stop);
                return Err(unused.unwrap_or_else(|| error.into()));
            }
        };
        let proven = proven(session, get).await?;
        let error = match plan_from(session, request, &archive, (&get.name, proven)).await {
            Err(BackupError::Until(error)) => error,
            planned => {
                return planned.map(|mut plan| {
                    plan.remarks.splice(..0, remarks);
                    plan
                });
            }
        };
        // Nothing but its bytes could have shown that it is of a history that has the stop.
        if is_by_bytes && passed.not_by_bytes.insert(get.name.clone()) {
            continue;
        }
        // Only the events show that it was taken after the stop, or that its position is wrong: an older one may do.
        let why = match &*error {
            error if error.is_before_backup() => {
                format!("{}: it was taken after the stop", get.name)
            }
            UntilError::Displaced { what, .. } => {
                let name = &get.name;
                remarks.push(format!(
                    "skipped a newer backup, {name}, because it does not fit the archive: {what}"
                ));
                format!("{name}: it does not fit the archive: {what}")
            }
            error @ UntilError::AnotherLog { .. } => {
                remarks.push(format!("skipped a newer backup: {error}"));
                error.to_string()
            }
            _ => return Err(BackupError::Until(error)),
        };
        if passed.why.insert(get.name.clone(), why).is_some() {
            return Err(BackupError::Until(error));
        }
    }
}

/// What was named may be the place of the backups, of which the newest one is meant.
fn or_place(error: BackupError) -> BackupError {
    match error {
        BackupError::Repo(error @ RepoError::Folder { .. }) => {
            UntilError::Place(error.to_string()).into()
        }
        other => other,
    }
}

/// The same from one backup.
async fn plan_from(
    session: &Session,
    request: &UntilRequest,
    archive: &Archive,
    (name, (noted, taken_from)): (&BackupName, (BasePosition, BackupOrigin)),
) -> Result<UntilPlan, BackupError> {
    let name = name.clone();
    let no_position = || UntilError::NoPosition { backup: name.to_string() };
    let unplaced = || UntilError::Unplaced { backup: name.to_string() };
    let histories = Histories::new(&archive.streams);
    let base = histories.locate(&noted).ok_or_else(unplaced)?;
    let gtids = base.gtids.clone().ok_or_else(no_position)?;
    let of_log = taken_from.log.as_ref().filter(|(at, _)| *at == base.position);
    let (stop, histories) = (&request.stop, &histories);
    let search =
        HistorySearch { session, archive, histories, backup: &name, base: &base, of_log, stop };
    let (planned, base) = match search.planned().await? {
        Ok(planned) => planned,
        Err(error) => {
            if let Some(unused) = archive.needs_unused(std::iter::once(noted), &request.stop) {
                return Err(unused);
            }
            if matches!(error, PlanError::BeforeBackup { .. }) {
                match session.cancel.or(listed(session)).await {
                    Ok(listed) => {
                        too_early(&candidates(&listed, archive), archive, &request.stop)?;
                    }
                    Err(interrupted @ BackupError::Interrupted(_)) => return Err(interrupted),
                    // Without the listing, nothing can be added to the error.
                    Err(_) => {}
                }
            }
            return Err(UntilError::Plan { backup: name.to_string(), error }.into());
        }
    };
    let needed = needed(&planned.pieces, archive);
    let mut relay = RelayPlan {
        start: gtids.clone(),
        stop: xb_binlog::ReplayStop::End,
        servers: 0,
        leave_out: request.leave_out.clone(),
        may_leave_out_ddl: request.may_leave_out_ddl,
        never_ended: BTreeSet::new(),
        outside: planned.outside.clone(),
    };
    let in_data = |gtid: &&AnyGtid| base.at_most.as_ref().is_some_and(|most| most.contains(gtid));
    if let Some(gtid) = request.leave_out.iter().find(in_data) {
        let (backup, gtid) = (name.to_string(), gtid.to_string());
        return Err(UntilError::InData { backup, gtid }.into());
    }
    let outside = planned.pieces.first().map(|piece| piece.outside(&base));
    let of_plan = |error| UntilError::Plan { backup: name.to_string(), error };
    let (end, servers) = planned.end(&base.position).map_err(of_plan)?;
    let span = Span {
        start: base.position.clone(),
        gtids,
        outside: outside.unwrap_or_default(),
        stop: request.stop.clone(),
        end,
        servers,
        must_be_found: planned.must_be_found,
        plan: relay.clone(),
    };
    let scanned = scan(session, (&archive.server, &name), &needed, span).await?;
    past_backup(&base, &scanned, request).map_err(of_plan)?;
    relay.stop = xb_binlog::ReplayStop::At(scanned.stop.clone());
    relay.servers = scanned.servers;
    relay.never_ended.clone_from(&scanned.end.never_ended);
    let (origin, mut versions, mut remarks) = origin(archive, &planned);
    let mut doubts = doubts(archive, &planned);
    versions.extend(taken_from.version);
    let run = taken_from.run;
    if planned.is_left {
        remarks.push(left(planned.left_by.as_ref()));
    }
    if request.stop == RestoreStop::Latest {
        remarks.extend(histories.stranded().iter().map(ToString::to_string));
    }
    remarks.extend(relay.never_ended.iter().map(|gtid| {
        format!("the ALTER TABLE that begins with transaction {gtid} never ended, because its server crashed or another server took over: the replay skips it")
    }));
    doubts.extend(scanned.end.doubts.iter().map(|(doubt, at)| {
        format!("the data may differ from that of the server: the statement at {at} {doubt}")
    }));
    if taken_from.is_partial {
        doubts.push("the backup is partial: the data has only the tables that it has, and those that the log makes".to_owned());
    }
    remarks.extend(doubts.iter().cloned());
    if planned.numbers_recur {
        remarks.push(format!(
            "the server restarted its GTID numbering before the backup or after the stop, so a second transaction may also have the GTID of {}: `binlog show` shows it, and a stop at FILE:POSITION is exact",
            request.stop
        ));
    }
    if scanned.ahead > 0 {
        remarks.push(format!(
            "{} transactions have a time ahead of the receiver's clock; their times were ignored",
            scanned.ahead
        ));
    }
    Ok(described(
        &archive.server,
        ReplayWork {
            name,
            run,
            start: base.position,
            taken: base.taken,
            relay,
            is_left: planned.is_left,
            needed,
            origin,
            versions,
            source_id: source_id(archive, &planned, scanned.servers),
            is_partial: taken_from.is_partial,
            doubts,
        },
        scanned,
        remarks,
    ))
}

/// A search for the history that a backup is of.
struct HistorySearch<'a, 'b> {
    session: &'b Session,
    archive: &'b Archive,
    histories: &'b Histories<'a>,
    /// Name of the backup.
    backup: &'b BackupName,
    base: &'b Base,
    /// Its position, and the digest of its log up to there, if it has one.
    of_log: Option<&'b (LogPosition, LogDigest)>,
    stop: &'b RestoreStop,
}

/// A plan and its base, or why there is none.
type Planned<'a> = Result<(Plan<'a>, Base), PlanError>;

impl<'a> HistorySearch<'a, '_> {
    /// Plans a replay in the history whose log is that of the backup, byte by byte. If bytes are missing, clocks tell the history.
    async fn planned(&self) -> Result<Planned<'a>, BackupError> {
        if let Some(planned) = self.by_bytes().await? {
            return Ok(Ok(planned));
        }
        let by_clocks = self.by_clocks().await;
        let may_be_elsewhere = match &by_clocks {
            Ok(Err(error)) => matches!(
                error,
                PlanError::NoStart { .. } | PlanError::Branch { .. } | PlanError::NotReached { .. }
            ),
            Err(BackupError::Until(error)) => matches!(**error, UntilError::AnotherLog { .. }),
            _ => false,
        };
        if may_be_elsewhere && let Some(planned) = self.by_bytes_elsewhere().await? {
            return Ok(Ok(planned));
        }
        by_clocks
    }

    /// The same in a history that the present one left, if that does not have the log of the backup itself: then it may yet come to
    /// the stop.
    async fn by_bytes_elsewhere(&self) -> Result<Option<(Plan<'a>, Base)>, BackupError> {
        if self.of_log.is_none() {
            return Ok(None);
        }
        let shown = Base { is_shown_by_bytes: true, ..self.base.clone() };
        match self.histories.plan(&shown, &RestoreStop::Latest) {
            Ok(present) if self.begins_in_log_of_backup(&present).await? != Some(false) => {
                return Ok(None);
            }
            Ok(_) | Err(PlanError::NoStart { .. } | PlanError::Branch { .. }) => {}
            Err(_) => return Ok(None),
        }
        for planned in self.histories.left_plans(&shown, self.stop) {
            if self.begins_in_log_of_backup(&planned).await? == Some(true) {
                return Ok(Some((planned, shown)));
            }
        }
        Ok(None)
    }

    /// A plan that no clock decides; `None` if nothing shows that the log in which it begins is that of the backup.
    async fn by_bytes(&self) -> Result<Option<(Plan<'a>, Base)>, BackupError> {
        if self.of_log.is_none() {
            return Ok(None);
        }
        let shown = Base { is_shown_by_bytes: true, ..self.base.clone() };
        let Ok(planned) = self.histories.plan(&shown, self.stop) else { return Ok(None) };
        let is_same = self.begins_in_log_of_backup(&planned).await?;
        Ok((is_same == Some(true)).then_some((planned, shown)))
    }

    /// A plan by the times at which the backup was taken and the log was received, unless bytes show that this log is another one.
    async fn by_clocks(&self) -> Result<Planned<'a>, BackupError> {
        let planned = match self.histories.plan(self.base, self.stop) {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        if let (Some((at, _)), Some(first)) = (self.of_log, planned.pieces.first())
            && self.begins_in_log_of_backup(&planned).await? == Some(false)
        {
            return Err(UntilError::AnotherLog {
                backup: self.backup.to_string(),
                log: at.log().to_owned(),
                stream: first.stream.to_owned(),
            }
            .into());
        }
        Ok(Ok((planned, self.base.clone())))
    }

    /// Whether the log in which a plan begins is that of the backup; `None` if that cannot be told.
    async fn begins_in_log_of_backup(
        &self,
        planned: &Plan<'a>,
    ) -> Result<Option<bool>, BackupError> {
        let Some((at, noted)) = self.of_log else { return Ok(None) };
        let log = planned.pieces.first().map(|first| self.histories.log_up_to(first));
        let log = needed(&log.unwrap_or_default(), self.archive).to_vec();
        same_log::is_same(self.session, &self.archive.server, log, at.offset(), noted).await
    }
}

fn described(server: &str, work: ReplayWork, scanned: Scanned, remarks: Vec<String>) -> UntilPlan {
    let Scanned { stop, end, last, next, bytes, .. } = scanned;
    UntilPlan {
        backup: work.name.to_string(),
        server: server.to_owned(),
        from: work.start.to_string(),
        to: stop.to_string(),
        gtids: end.gtids.to_string(),
        last,
        next,
        transactions: end.transactions.saturating_sub(end.never_ended.len() as u64),
        left_out: end.left_out,
        later: end.later,
        log_bytes: bytes,
        segments: work.needed.len(),
        remarks,
        work,
    }
}

/// What is to be known of a stop outside the present history: servers number their transactions alike there, so a GTID does
/// not tell the two apart.
fn left(by: Option<&PlanError>) -> String {
    let left = "the stop lies in a history that the archive has left";
    match by {
        Some(PlanError::Branch { stream, reason }) => format!(
            "{left}: the present one begins with stream {stream} ({reason}), and its transactions of the same GTIDs may be others"
        ),
        _ => left.to_owned(),
    }
}

/// The archive that the request means.
async fn archive(
    session: &Session,
    request: &UntilRequest,
    of_backup: Option<&str>,
    get: &GetRequest,
) -> Result<Archive, BackupError> {
    let server = choose_archive(session, request.server.as_deref(), of_backup).await?;
    Archive::read(session, server, request, get).await
}

async fn listed(session: &Session) -> Result<ListedRoot, BackupError> {
    Ok(list_by_key(&session.root).await?)
}

/// The backups of the archive's server that can be restored, the newest first.
fn candidates<'a>(listed: &'a ListedRoot, archive: &Archive) -> Vec<(BackupName, &'a Manifest)> {
    let can_be_restored = |line: &&Listing| line.state == State::Complete && line.restorable;
    // Of the same data, a consolidated backup that a trial restore has proven, then the server's own, then one that is
    // not proven.
    let mut candidates: Vec<((Timestamp, u8), BackupName, &Manifest)> = listed
        .lines
        .iter()
        .filter(can_be_restored)
        .filter_map(|line| {
            let (name, stored) = listed.sound.get_key_value(&BackupName::new(&line.name).ok()?)?;
            let manifest = &stored.manifest;
            let is_own = manifest.server.as_ref().is_none_or(|of| *of == archive.server);
            let rank = match (manifest.stands_for(), line.is_verified(Level::Restore)) {
                (Some(_), true) => 2,
                (None, _) => 1,
                (Some(_), false) => 0,
            };
            is_own.then(|| ((manifest.finished, rank), name.clone(), manifest))
        })
        .collect();
    candidates.sort_by(|one, two| (two.0, &two.1).cmp(&(one.0, &one.1)));
    // Those that lack some of the server's tables come last, however new they are.
    candidates.sort_by_key(|(_, _, manifest)| manifest.source.is_partial);
    candidates.into_iter().map(|(_, name, manifest)| (name, manifest)).collect()
}

/// Refuses a stop before the first moment that any backup reaches.
fn too_early(
    candidates: &[(BackupName, &Manifest)],
    archive: &Archive,
    stop: &RestoreStop,
) -> Result<(), UntilError> {
    let histories = Histories::new(&archive.streams);
    let whole = candidates.iter().rev().filter(|(_, manifest)| !manifest.source.is_partial);
    for (name, manifest) in whole {
        let noted = BasePosition::replayed(manifest);
        let base = noted.and_then(|noted| histories.locate(&noted));
        match base.map(|base| (histories.plan(&base, stop), base)) {
            Some((Err(PlanError::BeforeBackup { .. }), base)) => {
                return Err(UntilError::TooEarly {
                    stop: stop.to_string(),
                    server: archive.server.clone(),
                    backup: name.to_string(),
                    first: format!(
                        "{}, {}",
                        base.taken.strftime("%Y-%m-%dT%H:%M:%SZ"),
                        base.position
                    ),
                });
            }
            Some((Err(PlanError::NoStart { .. } | PlanError::Branch { .. }), _)) | None => {}
            Some(_) => return Ok(()),
        }
    }
    Ok(())
}

/// What was found of backups when their logs were read.
#[derive(Default)]
struct PassedBackups {
    /// Those that do not fit, and why.
    why: BTreeMap<BackupName, String>,
    /// Those of which no bytes show that they are of a history to which their times do not lead.
    not_by_bytes: BTreeSet<BackupName>,
}

/// The newest backup that can be restored and from which the archive reaches the stop, and whether only the bytes of its log can
/// show that. Those that were `passed` over do not fit.
fn newest_fitting(
    listed: &ListedRoot,
    archive: &Archive,
    stop: &RestoreStop,
    passed: &PassedBackups,
) -> Result<(BackupName, bool), UntilError> {
    let candidates = candidates(listed, archive);
    let histories = Histories::new(&archive.streams);
    let mut why = Vec::new();
    let mut unreached = None;
    for (name, manifest) in &candidates {
        let backup = name.to_string();
        let base = match BasePosition::replayed(manifest) {
            Some(noted) => histories.locate(&noted).ok_or(UntilError::Unplaced { backup }),
            None if BasePosition::of(manifest).is_some() => Err(UntilError::NoClone { backup }),
            None => Err(UntilError::NoPosition { backup }),
        };
        let base = match base {
            Ok(base) => base,
            Err(error) => {
                why.push(error.to_string());
                continue;
            }
        };
        let may_be_shown = || {
            let is_at = |(at, _): &(LogPosition, LogDigest)| *at == base.position;
            let shown = Base { is_shown_by_bytes: true, ..base.clone() };
            same_log::noted(manifest).is_some_and(|noted| is_at(&noted))
                && !passed.not_by_bytes.contains(name)
                && (histories.plan(&shown, stop).is_ok()
                    || !histories.left_plans(&shown, stop).is_empty())
        };
        match histories.plan(&base, stop) {
            _ if let Some(reason) = passed.why.get(name) => why.push(reason.clone()),
            Ok(_) => return Ok((name.clone(), false)),
            Err(_) if may_be_shown() => return Ok((name.clone(), true)),
            // An older backup may do, on the same history.
            Err(
                error @ (PlanError::BeforeBackup { .. }
                | PlanError::NoStart { .. }
                | PlanError::Branch { .. }),
            ) => why.push(format!("{name}: {error}")),
            // The position may be in the logs of a server before.
            Err(error @ PlanError::NotReached { .. })
                if matches!(stop, RestoreStop::Position(_)) =>
            {
                why.push(format!("{name}: {error}"));
            }
            // A transaction may be in a history that the newest one left.
            Err(error @ PlanError::NotReached { .. })
                if matches!(stop, RestoreStop::Gtid(_) | RestoreStop::BeforeGtid(_)) =>
            {
                let backup = name.to_string();
                unreached.get_or_insert(UntilError::Plan { backup, error });
            }
            // The obstacle for this one is one for all older ones.
            Err(error) => return Err(UntilError::Plan { backup: name.to_string(), error }),
        }
    }
    if let Some(error) = unreached {
        return Err(error);
    }
    too_early(&candidates, archive, stop)?;
    let why: String = why.iter().take(NAMED).map(|why| format!("; {why}")).collect();
    Err(UntilError::NoBackup { server: archive.server.clone(), stop: stop.to_string(), why })
}

/// The run that wrote a backup, and the version of its server.
struct BackupOrigin {
    run: String,
    version: Option<String>,
    server: Option<String>,
    is_partial: bool,
    /// Position in the server's log, and the digest of the log up to there.
    log: Option<(LogPosition, LogDigest)>,
}

/// The position of the backup, from a manifest that the keys have authenticated.
async fn proven(
    session: &Session,
    get: &GetRequest,
) -> Result<(BasePosition, BackupOrigin), BackupError> {
    let ready = AfterRestore { prepare: true, ..AfterRestore::default() };
    let links = session.cancel.or(links(session, get, &ready)).await?;
    let tool = links.iter().find_map(ChosenBackup::tool).and_then(PrepareTool::of_name);
    if tool == Some(PrepareTool::XtraBackup) {
        return Err(UntilError::NoClone { backup: get.name.to_string() }.into());
    }
    let last = links.last().and_then(ChosenBackup::manifest);
    if last.is_none() {
        // There may be no such backup at all.
        let _ = session.cancel.or(stock_files(&session.root, &get.name)).await?;
    }
    let base = last.and_then(|manifest| {
        let version = manifest.source.server_version.clone();
        let (run, server) = (manifest.run.clone(), manifest.server.clone());
        let is_partial = manifest.source.is_partial;
        let noted = manifest.source.binlog_pos.as_ref().and_then(|noted| noted.position().cloned());
        let digest = manifest.history.as_ref().and_then(|history| history.binlog.clone());
        let log = noted.zip(digest.filter(|digest| matches!(digest, LogDigest::Bytes(_))));
        Some((BasePosition::of(manifest)?, BackupOrigin { run, version, server, is_partial, log }))
    });
    base.ok_or_else(|| UntilError::NoPosition { backup: get.name.to_string() }.into())
}

fn needed(pieces: &[Piece<'_>], archive: &Archive) -> Arc<[NeededSegment]> {
    let first = pieces.first().map_or(0, |piece| piece.server);
    let repeats = |piece: &Piece<'_>| {
        let stream = archive.streams.iter().find(|stream| stream.id() == piece.stream)?;
        stream.head.content.repeats()
    };
    let needed = pieces.iter().map(|piece| NeededSegment {
        segment: piece.segment.clone(),
        key: archive.key(piece.stream),
        until: piece.until,
        server: piece.server - first,
        repeats: repeats(piece),
    });
    needed.collect()
}

/// Checks that the stop lies behind all that the data of a clone may have.
fn past_backup(base: &Base, scanned: &Scanned, request: &UntilRequest) -> Result<(), PlanError> {
    match &base.at_most {
        Some(at_most) if !at_most.is_within(&scanned.end.gtids) => {
            let (stop, backup) = (request.stop.to_string(), at_most.to_string());
            Err(PlanError::BeforeBackup { stop, backup })
        }
        _ => Ok(()),
    }
}

/// The server of the log in which the stop lies, by its number from that of the first piece on.
fn source_id(archive: &Archive, plan: &Plan<'_>, number: usize) -> Option<u32> {
    let first = plan.pieces.first()?.server;
    let last = plan.pieces.iter().rfind(|piece| piece.server - first == number)?;
    let stream = archive.streams.iter().find(|stream| stream.id() == last.stream)?;
    Some(stream.head.content.server_id)
}

/// Reasons why the data may differ from what the server had.
fn doubts(archive: &Archive, plan: &Plan<'_>) -> Vec<String> {
    let heads = heads(archive, plan);
    let doubts = heads.iter().flat_map(|head| &head.doubts);
    let doubts: BTreeSet<String> = doubts.cloned().collect();
    let named = |doubt| format!("the data may differ from that of the server: {doubt}");
    doubts.into_iter().map(named).collect()
}

/// Reads everything that a replay will read.
async fn scan(
    session: &Session,
    (server, backup): (&str, &BackupName),
    needed: &Arc<[NeededSegment]>,
    span: Span,
) -> Result<Scanned, BackupError> {
    let (start, gtids, stop) = (span.start.clone(), span.gtids.clone(), span.stop.clone());
    let mut scanner = Scanner::new(span);
    let mut fetched = fetch(session, server, needed);
    while !scanner.is_done()
        && let Some(fetched) = fetched.recv().await
    {
        let fetched = fetched?;
        let one = needed.get(fetched.number).ok_or(BackupError::Bug("a segment of no number"))?;
        if fetched.number == 0
            && let Some(what) = displaced(
                &one.segment,
                (&fetched.description, &fetched.bytes),
                one.repeats.as_ref(),
                (&start, &gtids),
            )
        {
            return Err(UntilError::Displaced { backup: backup.to_string(), what }.into());
        }
        let read = (&fetched.description[..], &fetched.bytes[..]);
        if fetched.number == 0
            && scanner.has_outside()
            && let Some(found) = gtids_at(&one.segment, read, one.repeats.as_ref(), &start)
        {
            scanner.has_before(&found);
        }
        if let (0, RestoreStop::Time(time)) = (fetched.number, &stop) {
            before_stop(&one.segment, read, one.repeats.as_ref(), (&start, *time))
                .map_err(|error| UntilError::Plan { backup: backup.to_string(), error })?;
        }
        let part = one.part(&fetched, &start)?;
        tokio::task::block_in_place(|| -> Result<(), UntilError> {
            scanner.on_server(one.server, one.repeats.as_ref())?;
            scanner.begin(part.log, part.description, part.offset)?;
            if !scanner.is_done() {
                scanner.take(part.bytes, one.segment.clock())?;
            }
            Ok(())
        })?;
        session.observer.add_bytes(part.bytes.len() as u64);
    }
    Ok(scanner.finish()?)
}
