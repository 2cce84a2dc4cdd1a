//! Last level: restores a backup to a scratch directory, prepares it, and checks it with a real
//! server.

mod accounts;
mod answers;
mod check;
mod held;
mod outcome;
mod revive;
mod rows;
mod system_tables;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use accounts::read_accounts;
use check::check_all;
use held::BackupContents;
use outcome::Outcome;
use revive::revive;
use xb_encryptor::MacKey;
use xb_pipeline::Durability;
use xb_repo::archive::stop::RestoreStop;
use xb_repo::chain::{Link, UnknownImport, chain, unknown_import};
use xb_repo::consolidated::{UNKNOWN_IMPORTS, UNKNOWN_IMPORTS_OF_BASE};
use xb_repo::error::RepoError;
use xb_repo::names::BackupName;
use xb_repo::records::{self, FailedTry, VerifyResult, intact_pages};
use xb_repo::root::Root;
use xb_repo::verification::{Answer, ComparisonRecord, PageReport, Replayed, VerifiedLink};

use super::{
    Level, Problem, VerifyReport, VerifyRequest, add_result, can_be_recorded, keep_passed, phases,
    record, record_failed_try, up_to_pages,
};
use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::child::OnLine;
use crate::compare::{CompareOptions, Contents, HeldServer, differences, read_other};
use crate::error::BackupError;
use crate::full_disk::AGAIN;
use crate::private_server::PrivateServer;
use crate::read::request::GetRequest;
use crate::read::unlock::{ReadKeys, unlock};
use crate::restore::RestoreOptions;
use crate::restore::request::AfterRestore;
use crate::restore::restore_and_prepare::restore_chain;
use crate::restore::room::{all_unpacked, check_room, unpacked};
use crate::restored_pages::restored_pages;
use crate::scratch::Scratch;
use crate::selection::Selection;
use crate::server::private::{Server, remove_links, with_keys};
use crate::server::session::{Session as ServerSession, SessionError};
use crate::session::Session;
use crate::until::{
    ReplayOptions, UntilPlan, UntilRequest, plan_until, remarks, replay_onto, replaying_program,
};

/// Time limit of each step of a login to the trial server.
const LOGIN: Duration = Duration::from_secs(60);

/// Remark on a replay that proves nothing of the present history.
const LEFT: &str = "the replayed log is from a history that the archive has left, so it proves nothing about the present one";
/// What a doubt means for a trial: the tables are in order all the same.
const DOUBTFUL: &str = "the replay is in doubt for the reasons above, so this trial proves no time up to which the archived log can be replayed; a new backup begins behind them";
/// Why the replay of a trial proves nothing.
const FILTERED: &str = "options of the private server leave a part of the log out";
const PARTIAL: &str = "the backup is partial";
/// Reason why a trial proves no time, if tables may lack rows from before the log that was replayed.
const IN_USE: &str = "tables were in use while the backup copied them";

/// Options of a trial restore.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Trial {
    /// The server, and the program that prepares the backup.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub private: PrivateServer,
    /// SQL statement that must succeed on the restored server; repeatable
    #[cfg_attr(
        feature = "clap",
        arg(id = "check-sql", long, value_name = "SQL", help_heading = "Private server")
    )]
    pub statements: Vec<String>,
    /// At level `restore`: replay the archived binary log first, up to a stop as in `restore --until`
    #[cfg_attr(feature = "clap", arg(long, value_name = "STOP", help_heading = "Private server"))]
    pub until: Option<RestoreStop>,
    /// With --until=latest: replay what is left of an archive that may have lost its end
    #[cfg_attr(feature = "clap", arg(long, requires = "until", help_heading = "Private server"))]
    pub accept_lost_end: bool,
    /// Folder in which a receiver on this host records its last segment.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub state: Option<PathBuf>,
    /// A server that the result is compared with. It needs `until`.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub compare: CompareOptions,
}

/// Verifies a backup up to [`Level::Restore`]. After all checks of [`verify`](super::verify), the
/// backup is restored with its chain and prepared, a server is started on it that listens on a
/// socket only, every table is checked, and the statements are run.
///
/// The scratch directory and the server are removed before this function returns, also on failure, and
/// when the process is killed.
/// The output of the programs goes to `on_line`.
///
/// # Errors
/// The errors of [`verify`](super::verify); also if a program is not installed or fails, or the
/// disk is full.
pub async fn verify_by_restore(
    session: &Session,
    mut request: VerifyRequest,
    trial: &Trial,
    on_line: &OnLine,
) -> Result<VerifyReport, BackupError> {
    let Session { root, observer, cancel, .. } = session;
    request.level = Level::Pages;
    // Those of the levels below, `fetch` and `prepare` of the restore, `pages` and `check`.
    let replays = if trial.until.is_some() { 2 } else { 0 };
    let compares = match trial.compare.server {
        Some(_) => 2 + u32::from(trial.compare.hold),
        None => 0,
    };
    observer.expect_phases(phases(Level::Pages) + 4 + replays + compares);
    // Checks what this host lacks before a read that may take hours.
    let scratch = Scratch::new(trial.private.scratch_dir.as_deref(), "xb-verify-")?;
    if let Err(error) = can_try(root, &request, trial, scratch.path(), cancel).await {
        record_refused(root, &request, &error).await;
        return Err(error);
    }
    let begun = async {
        let mut replay = replay_of(session, &mut request, trial).await?;
        let other = other_of(session, &mut request, trial, replay.as_mut(), on_line).await?;
        Ok::<_, BackupError>((replay, other, up_to_pages(session, &request).await?))
    };
    let (replay, other, (mut report, mac)) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return Err(unopened(root, &request, error).await),
    };
    // The pages of an incremental backup cannot be checked, but a server can be started on it.
    let sound = report.is_ok();
    report.level = Level::Restore;
    if sound {
        let (bases, doubt) = match cancel.or(bases(session, &request)).await {
            Ok(found) => found,
            Err(error) => return Err(unopened(root, &request, error).await),
        };
        let keys = std::mem::take(&mut request.keys);
        let get = GetRequest {
            name: request.name.clone(),
            files: Selection::default(),
            as_stored: false,
            keys,
            accept: request.accept,
        };
        // Now it is known what the files take once they are decompressed.
        let room =
            report.unpacked_bytes.map_or(Ok(()), |bytes| check_room(scratch.path(), bytes, AGAIN));
        let outcome = match room {
            Ok(()) => {
                let (replay, other) = (replay.as_ref(), other.as_ref());
                run_trial(session, get, trial, scratch.path(), replay, other, on_line).await
            }
            Err(error) => Err(error),
        };
        let outcome = outcome.and_then(|found| found.unless_full(scratch.path()));
        let outcome = outcome.map_err(|error| error.or_full_scratch(scratch.path()));
        let outcome = outcome.and_then(|found| note_restored(&mut report, found));
        // A server may fail to start on it nevertheless.
        let outcome = outcome.map(|found| found.doubted(doubt));
        // Removed before any other error is returned, because the directory may be large.
        let removed = scratch.close();
        if let Err(error) = record_outcome(&mut report, outcome) {
            keep_passed(root, &request, &mut report, mac.as_ref(), &error).await;
            if can_be_recorded(&error) {
                let why = error.to_string();
                record_failed_try(root, &request, &mut report, mac.as_ref(), Level::Restore, &why)
                    .await;
            }
            return Err(error);
        }
        if let Err(error) = removed {
            report.warnings.push(format!("cannot remove the scratch directory: {error}"));
        }
        report.finished = jiff::Timestamp::now();
        if report.is_undamaged() && report.reached == Some(Level::Restore) {
            for base in &bases {
                record_of(root, &request, &mut report, base).await;
            }
        }
    } else {
        match report.broken_chain.clone().filter(|_| report.problems.is_empty()) {
            // The backup is as it was written; a base that comes back makes it restorable again.
            Some(why) => report.close_unchecked(Level::Restore, format!("not tried: {why}")),
            None => report.leave_out(Level::Restore),
        }
    }
    report.finished = jiff::Timestamp::now();
    record(root, &request, &mut report, mac.as_ref()).await;
    if let Some(why) = not_reached(&report) {
        record_failed_try(root, &request, &mut report, mac.as_ref(), Level::Restore, &why).await;
    }
    Ok(report)
}

/// Notes which backups of the chain were restored.
///
/// # Errors
/// The chain is not the one whose manifests were checked before.
fn note_restored(report: &mut VerifyReport, found: Outcome) -> Result<Outcome, BackupError> {
    let are_same = |link: &VerifiedLink, (run, manifest): &(String, String)| {
        link.run == *run && link.manifest == *manifest
    };
    let is_other = |restored| report.chain.iter().all(|link| !are_same(link, restored));
    if !report.chain.is_empty() && found.restored.iter().any(is_other) {
        let what = format!("the chain of {}", report.name);
        return Err(RepoError::Concurrent { what }.into());
    }
    for link in &mut report.chain {
        link.restored = found.restored.iter().any(|restored| are_same(link, restored));
    }
    Ok(found)
}

/// The log that a trial replays.
struct Replay {
    plan: UntilPlan,
    program: PathBuf,
}

/// Reads the log that the trial replays, and checks that it can be.
async fn replay_of(
    session: &Session,
    request: &mut VerifyRequest,
    trial: &Trial,
) -> Result<Option<Replay>, BackupError> {
    let Some(stop) = &trial.until else { return Ok(None) };
    let plan = plan_of(session, request, trial, stop).await?;
    let options =
        ReplayOptions { server: trial.private.server.clone(), ..ReplayOptions::default() };
    let program = replaying_program(session, &plan, &options).await?;
    Ok(Some(Replay { plan, program }))
}

async fn plan_of(
    session: &Session,
    request: &mut VerifyRequest,
    trial: &Trial,
    stop: &RestoreStop,
) -> Result<UntilPlan, BackupError> {
    let until = UntilRequest {
        name: Some(request.name.clone()),
        server: None,
        stop: stop.clone(),
        leave_out: BTreeSet::new(),
        may_leave_out_ddl: false,
        state: trial.state.clone(),
        accept_lost_end: trial.accept_lost_end,
    };
    let mut get = GetRequest {
        name: request.name.clone(),
        files: Selection::default(),
        as_stored: false,
        keys: std::mem::take(&mut request.keys),
        accept: request.accept,
    };
    let planned = plan_until(session, &until, &mut get).await;
    request.keys = get.keys;
    planned
}

/// Reads the server that the result is compared with, at the end of the replay; the plan may have become a later one.
async fn other_of(
    session: &Session,
    request: &mut VerifyRequest,
    trial: &Trial,
    replay: Option<&mut Replay>,
    on_line: &OnLine,
) -> Result<Option<HeldServer>, BackupError> {
    let (Some(server), Some(stop), Some(replay)) = (&trial.compare.server, &trial.until, replay)
    else {
        return Ok(None);
    };
    let again = async || plan_of(session, request, trial, stop).await;
    let (options, plan) = (&trial.compare, replay.plan.clone());
    let (other, plan) = read_other(session, server, options, plan, stop, again, on_line).await?;
    replay.plan = plan;
    Ok(Some(other))
}

/// Returns why an undamaged backup did not reach the last level.
fn not_reached(report: &VerifyReport) -> Option<String> {
    if !report.is_undamaged() || report.reached == Some(Level::Restore) {
        return None;
    }
    let level = report.levels.iter().find(|level| level.level == Level::Restore)?;
    Some(report.failed_checks.first().unwrap_or(&level.what).clone())
}

/// A backup that the trial restores before the verified one.
struct RestoredBase {
    name: BackupName,
    /// SHA-256 of its manifest, hexadecimal.
    manifest: String,
    /// The manifest's key, if it is known.
    mac: Option<MacKey>,
    /// The check of its pages by a verification of its own, if that still holds: only then the trial proves more than
    /// that all of it can be read.
    pages: Option<PageReport>,
    /// The highest number of its recorded results before the trial.
    after: u64,
}

/// The backups that a restore of an incremental one needs, and what its trial proves of them. Also why a trial that finds nothing
/// proves nothing, if the chain may lack imported tablespaces.
async fn bases(
    session: &Session,
    request: &VerifyRequest,
) -> Result<(Vec<RestoredBase>, Option<&'static str>), BackupError> {
    let root = &session.root;
    // The restore reports faults of the chain.
    let links = chain(root, &request.name).await.unwrap_or_default();
    let doubt = match unknown_import(&links) {
        Some(UnknownImport::OfFull(full)) if *full == request.name => Some(UNKNOWN_IMPORTS),
        Some(UnknownImport::OfFull(_)) => Some(UNKNOWN_IMPORTS_OF_BASE),
        _ => None,
    };
    let mut bases = Vec::new();
    for Link { name, stored } in links.into_iter().filter(|link| link.name != request.name) {
        let (keys, accept) = (&request.keys, request.accept);
        let given = ReadKeys { keys, accept, memory: session.resources.memory };
        let mac = match keys.is_empty() {
            true => None,
            false => {
                let key = unlock(root, &name, Some(&stored), given).await?.key;
                let id = stored.manifest.stream_id().filter(|_| !stored.manifest.is_carried());
                key.zip(id).map(|(key, id)| key.manifest_key(&id))
            }
        };
        let manifest = stored.digest();
        let after = records::last_number(root, &name, &manifest).await;
        // The trial reads all of it, but no server opens what a later link has replaced or dropped: of that, only its
        // own verification has checked the pages.
        let pages = match records::results(root, &name, &manifest, mac.as_ref()).await {
            Ok(known) => intact_pages(&known.results).cloned(),
            Err(error) if error.is_of_one_object() => None,
            Err(error) => return Err(error.into()),
        };
        bases.push(RestoredBase { name, manifest, mac, pages, after });
    }
    Ok((bases, doubt))
}

/// Records a trial that succeeded for a base.
async fn record_of(
    root: &Root,
    request: &VerifyRequest,
    report: &mut VerifyReport,
    base: &RestoredBase,
) {
    let Some(tool) = &request.record else { return };
    let result = VerifyResult::of(report, tool).for_base(base.pages.clone(), base.after);
    let adding = add_result(root, &base.name, &base.manifest, result, base.mac.as_ref());
    if let Err(error) = adding.await {
        let warning = format!("cannot store the result for {}: {error}", base.name);
        report.warnings.push(warning);
    }
}

/// Records a trial for which the keys of this host, or what it accepts, do not fit the backup or its chain; no other error.
async fn unopened(root: &Root, request: &VerifyRequest, error: BackupError) -> BackupError {
    if let BackupError::Keys(_)
    | BackupError::FileKey { .. }
    | BackupError::Unsealed { .. }
    | BackupError::Unvouched { .. } = &error
    {
        record_refused(root, request, &error).await;
    }
    error
}

/// Records a trial that this host cannot run. A scratch directory that cannot be made is a wrong option, and leaves no
/// record. Nothing was read of the backup, so its key is not known.
async fn record_refused(root: &Root, request: &VerifyRequest, error: &BackupError) {
    let Some(tool) = request.record.as_ref().filter(|_| can_be_recorded(error)) else { return };
    let Ok(Some(stored)) = root.stored_manifest(&request.name).await else { return };
    let failed = FailedTry::refused(Level::Restore, tool, &error.to_string());
    // The error is reported, whether it can be recorded or not.
    let _ = records::add_failed_try(root, &request.name, &stored.digest(), failed, None).await;
}

/// Refuses a trial that this host cannot run: checks programs and free space.
async fn can_try(
    root: &Root,
    request: &VerifyRequest,
    trial: &Trial,
    scratch: &Path,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    trial.private.server.look(scratch)?;
    // Without a readable manifest nothing more is known; the fault in it is reported later.
    let Ok(Some(manifest)) = cancel.or(root.manifest(&request.name)).await else { return Ok(()) };
    trial.private.prepare.look(manifest.source.tool_name.as_deref())?;
    let links = cancel.or(chain(root, &request.name)).await.unwrap_or_default();
    let needed = match links.is_empty() {
        true => cancel.or(unpacked(root, &request.name, &manifest)).await?,
        false => cancel.or(all_unpacked(root, &links)).await?,
    };
    let room = check_room(scratch, needed, AGAIN);
    room.map_err(|error| error.or_full_scratch(scratch))
}

fn record_outcome(
    report: &mut VerifyReport,
    outcome: Result<Outcome, BackupError>,
) -> Result<(), BackupError> {
    let problem =
        |what| Problem { level: Level::Restore, object: None, file: None, offset: None, what };
    match outcome {
        Ok(found) => found.write_into(report),
        // These errors are about the backup. All others may be about this host: a program may fail
        // for lack of space, a keyring or the right version as well as for damage, and its output
        // says which.
        Err(error @ (BackupError::Damaged { .. } | BackupError::Repo(RepoError::Chain { .. }))) => {
            report.problem(problem(error.to_string()));
            report.close(Level::Restore, "no server could be started on it".to_owned());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn run_trial(
    session: &Session,
    request: GetRequest,
    trial: &Trial,
    scratch: &Path,
    replay: Option<&Replay>,
    other: Option<&HeldServer>,
    on_line: &OnLine,
) -> Result<Outcome, BackupError> {
    let Session { observer, cancel, .. } = session;
    let data = scratch.join("data");
    let how = RestoreOptions {
        sync: Durability::None,
        room_beside: replay.map_or(0, |replay| replay.plan.log_bytes),
        ..RestoreOptions::default()
    };
    let mut ready = AfterRestore::prepared(trial.private.preparing());
    // The scratch directory is removed, whatever its keys are protected by.
    (ready.server, ready.allow_exposed_keys) = (trial.private.server.clone(), true);
    let restored = restore_chain(session, request, &data, how, &ready, on_line).await;
    let key_plugin = xb_server::key_plugin(&data);
    let restored = restored.map_err(|error| with_keys(error, key_plugin))?;
    let done = restored.restored.iter().map(|(_, done)| &done.get);
    let runs =
        done.filter_map(|get| Some((get.manifest.as_ref()?.run.clone(), get.digest.clone()?)));
    let runs: Vec<(String, String)> = runs.collect();
    let mut options = trial.private.server.clone();
    // The one that may start on a clone, which need not be the first that is installed.
    options.program = restored.clone.and_then(|clone| clone.server).or(options.program);
    remove_links(&data).map_err(|error| BackupError::Restore {
        target: data.display().to_string(),
        what: format!("cannot remove a link to a tablespace: {error}"),
    })?;
    let mut found = Outcome::default();
    found.restored = runs;
    let pages = restored_pages(session, &data)?;
    let is_sound = pages.is_sound();
    found.pages = Some(pages);
    if !is_sound {
        return Ok(found);
    }
    if let Some(replay) = replay {
        observer.begin_phase("replay");
        let options =
            ReplayOptions { server: trial.private.server.clone(), ..ReplayOptions::default() };
        let program = (&*replay.program, &options);
        let done = replay_onto(session, &replay.plan, &data, program).await?;
        found.replay_remarks = [remarks(&done), replay.plan.doubts().to_vec()].concat();
        if replay.plan.is_left() {
            found.replay_remarks.push(LEFT.to_owned());
        }
        let doubtful = done.is_doubtful() || !replay.plan.doubts().is_empty();
        if doubtful {
            found.replay_remarks.push(DOUBTFUL.to_owned());
        }
        if done.is_partial {
            found = found.doubted(Some(FILTERED));
        }
        if replay.plan.is_partial() {
            found = found.doubted(Some(PARTIAL));
        }
        if !done.in_use.is_empty() {
            found = found.doubted(Some(IN_USE));
        }
        found.test.replayed = Some(Replayed {
            to: done.position.to_string(),
            gtids: done.gtids.to_string(),
            transactions: done.transactions,
            proven_until: replay.plan.time(),
            left: replay.plan.is_left(),
            doubtful,
        });
    }
    observer.begin_phase("check");
    // Before the start, at which a server removes files.
    let holdings = BackupContents::read(&data).map_err(|error| BackupError::Restore {
        target: data.display().to_string(),
        what: format!("cannot read the names of its files: {error}"),
    })?;
    let started = Server::start(&data, scratch, &options, cancel).await;
    let mut server = started.map_err(|error| with_keys(error, key_plugin))?;
    found.key_plugin = key_plugin;
    check(session, &mut server, &mut found, holdings, trial, other).await?;
    server.check_not_killed()?;
    found.unconfined = server.unconfined();
    // After everything else, because it ends the time without accounts.
    if !server.has_ended() {
        read_accounts(&mut server, &mut found, cancel).await?;
    }
    if !server.has_ended() {
        found.unclean = tokio::task::block_in_place(|| server.end(cancel)).err();
    }
    Ok(found)
}

/// Compares everything that the trial server has with what the other one had.
async fn compare(
    session: &Session,
    server: &Server,
    found: &mut Outcome,
    other: &HeldServer,
) -> Result<(), BackupError> {
    session.observer.begin_phase("compare");
    let opened = ServerSession::open(server.access(), LOGIN, &session.cancel).await;
    let read = match opened {
        Ok(mut own) => Contents::read(&mut own, &session.observer, &session.cancel).await,
        Err(error) => Err(error),
    };
    let restored = match read {
        Ok(restored) => restored,
        Err(SessionError::Own(error)) => return Err(error),
        Err(SessionError::Server(error)) => {
            found.differing.push(format!("the restored server cannot be read: {error}"));
            let (server, gtids) = (other.server.clone(), other.gtids.clone());
            let compared =
                ComparisonRecord { server, gtids, differing: 1, ..ComparisonRecord::default() };
            found.test.compared_with = Some(compared);
            return Ok(());
        }
    };
    let prints_alike = other.prints_like(&found.test.server_version);
    let differences =
        differences(&restored, &other.contents, &other.server, &other.gtids, prints_alike);
    found.compare_remarks.extend(other.remarks.iter().cloned());
    if !prints_alike {
        found.compare_remarks.push(format!(
            "definitions were not compared, because servers of two series print them differently: {} is {}",
            other.server, other.version
        ));
    }
    found.differing.extend(differences.lines);
    found.test.compared_with = Some(differences.compared);
    Ok(())
}

/// A value as text; NULL is none.
fn shown(value: Option<&[u8]>) -> Option<String> {
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

async fn check(
    session: &Session,
    server: &mut Server,
    found: &mut Outcome,
    holdings: BackupContents,
    trial: &Trial,
    other: Option<&HeldServer>,
) -> Result<(), BackupError> {
    let cancel = &session.cancel;
    server.version().clone_into(&mut found.test.server_version);
    let is_alive = check_all(server, found, holdings, cancel).await?;
    // Before the statements, which may change something.
    if let Some(other) = other {
        compare(session, server, found, other).await?;
    }
    if !is_alive {
        return Ok(());
    }
    for statement in &trial.statements {
        // One more than is shown, to know that there are more.
        match server.ask_anew(statement, Answer::MAX_ROWS + 1, cancel).await? {
            Ok(rows) => {
                found.test.statements += 1;
                let rows = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
                found.test.answers.push(Answer::new(statement, rows));
            }
            Err(said) => found.refused.push(format!("`{statement}` failed: {said}")),
        }
        if !revive(server, found, cancel).await? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest may be replaced between the checks and the restore, and its run stay the same.
    #[test]
    fn only_what_was_checked_counts_as_restored() {
        let report = || {
            let mut report = VerifyReport::new("n".into(), Level::Restore);
            report.chain.push(VerifiedLink {
                name: "n".to_owned(),
                run: "run".to_owned(),
                manifest: "digest".to_owned(),
                signer: None,
                restored: false,
            });
            report
        };
        let of = |digest: &str| {
            let mut found = Outcome::default();
            found.restored = vec![("run".to_owned(), digest.to_owned())];
            found
        };
        let mut same = report();
        note_restored(&mut same, of("digest")).unwrap();
        assert!(same.chain[0].restored);
        let other = note_restored(&mut report(), of("another"));
        assert!(matches!(other, Err(BackupError::Repo(RepoError::Concurrent { .. }))));
    }

    /// A missing keyring or a full disk is not damage of a backup.
    #[test]
    fn a_failure_of_this_host_is_not_recorded_as_damage() {
        let mut report = VerifyReport::new("n".into(), Level::Restore);
        let (program, what) = ("mariadb-backup".to_owned(), "failed".to_owned());
        let outcome = Err(BackupError::Program { program, what });
        assert!(matches!(record_outcome(&mut report, outcome), Err(BackupError::Program { .. })));
        assert!(report.problems.is_empty());
        let (name, what) = ("n".to_owned(), "x".to_owned());
        record_outcome(&mut report, Err(BackupError::Damaged { name, what })).unwrap();
        assert_eq!(report.problems.len(), 1);
    }
}
