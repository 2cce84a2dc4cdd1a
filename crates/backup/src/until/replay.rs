//! Restores the backup of a plan, and replays the logs onto it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use xb_replay::{
    Piece, Progress, ReplayReport, ReplayRequest, Watch, lenient_option, origin_options, replay,
};

use crate::binlog::archive::pieces::{SegmentEvents, fetch};
use crate::child::OnLine;
use crate::error::BackupError;
use crate::read::request::GetRequest;
use crate::restore::RestoreOptions;
use crate::restore::clone::start::find_server;
use crate::restore::finished::FinishedMark;
use crate::restore::owner::Owner;
use crate::restore::request::{AfterRestore, RestoreChainReport};
use crate::restore::restore_and_prepare::restore_locked;
use crate::restore::target_lock::TargetLock;
use crate::server::private::ServerOptions;
use crate::session::Session;
use crate::until::plan::{ReplayWork, UntilPlan};
use crate::until::result::{ReplayResult, write_result};
use crate::until_error::UntilError;

/// How long the private server may do nothing at all.
const IDLE_LIMIT: Duration = Duration::from_secs(900);

/// How the logs are replayed.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ReplayOptions {
    /// How the private server is started.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub server: ServerOptions,
    /// Memory of the server, in bytes. If not given: by what is available.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub memory: Option<u64>,
    /// Replay with a server of a newer series than that of the origin
    #[cfg_attr(feature = "clap", arg(long, requires = "until", hide_short_help = true))]
    pub upgrade: bool,
    /// Whether the data is to begin a new cluster of Galera: the remarks say how.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub begins_cluster: bool,
}

/// Result of a restore to a stop.
#[derive(Debug)]
#[non_exhaustive]
pub struct UntilReport {
    /// The restored backup; `None` if an earlier run of the same command has done everything.
    pub restored: Option<RestoreChainReport>,
    /// Report of the replay; `None` as above.
    pub replayed: Option<ReplayReport>,
    /// Remarks for the user.
    pub remarks: Vec<String>,
}

/// Checks, before anything is restored, that the server program of a plan is installed and of its series, that no option
/// lets it pass over errors, and that data of MySQL begins no cluster. Returns the program.
///
/// # Errors
/// [`UntilError::Series`]; [`UntilError::Lenient`]; [`UntilError::NoCluster`]; [`BackupError::NotStarted`] if there is no
/// program.
pub async fn replaying_program(
    session: &Session,
    plan: &UntilPlan,
    options: &ReplayOptions,
) -> Result<PathBuf, BackupError> {
    // The server itself says so only after the restore.
    if let Some(option) = lenient_option(options.server.options.iter().map(String::as_str)) {
        return Err(UntilError::Lenient { option }.into());
    }
    let versions = &plan.work.versions;
    let of_mysql = versions.iter().filter(|version| !version.contains("MariaDB"));
    // MariaDB may be installed beside it.
    if let Some(origin) = of_mysql.max_by_key(|version| series(version)) {
        if options.begins_cluster {
            return Err(UntilError::NoCluster { version: origin.clone() }.into());
        }
        return find_server(&options.server, origin, &session.cancel).await;
    }
    let (program, version) = options.server.version(&session.cancel).await?;
    let found = series(&version).filter(|_| version.contains("MariaDB"));
    let fits = |expected: &&String| {
        let expected = series(expected);
        let is_known = found.is_some() && expected.is_some();
        is_known && (found == expected || (options.upgrade && found > expected))
    };
    match versions.iter().find(|expected| !fits(expected)) {
        None => Ok(program),
        Some(expected) => {
            Err(UntilError::Series { found: version.clone(), expected: expected.clone() }.into())
        }
    }
}

/// The first two numbers of a version.
pub(crate) fn series(version: &str) -> Option<(u32, u32)> {
    let start = version.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = version.get(start..)?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Restores the backup of a plan into `target`, prepares it, and replays the logs up to the stop. If it is run
/// again after an interruption, it continues with the restore, or finishes what is left to do after the replay;
/// only after an interrupted replay the target has to be removed first.
///
/// # Errors
/// Any error of [`restore_chain`](crate::restore_chain); [`UntilError::Replay`], whose text tells whether the target is of any use.
pub async fn restore_until(
    session: &Session,
    plan: &UntilPlan,
    get: GetRequest,
    (target, how): (&Path, RestoreOptions),
    ready: &AfterRestore,
    options: &ReplayOptions,
    on_line: &OnLine,
) -> Result<UntilReport, BackupError> {
    let owner = ready.owner.or_else(|| Owner::to_keep(target));
    let ready = AfterRestore { owner, ..ready.clone() };
    // To the end: the preparing and the replay change in place what lies there.
    let lock = TargetLock::take(target)?;
    let done = finished(plan);
    let begun = begun(&plan.gtids, options.begins_cluster);
    let earlier = earlier_run(plan, target)?;
    if matches!(earlier, Some(EarlierRun::Finished)) {
        xb_replay::remove_note(target).map_err(UntilError::from)?;
        let earlier = "an earlier run of this command has finished everything";
        let remarks = [vec![earlier.to_owned()], begun].concat();
        return Ok(UntilReport { restored: None, replayed: None, remarks });
    }
    // From here on, an interruption costs nothing but what is done below.
    let finish = |ended: &ReplayResult| -> Result<(), BackupError> {
        write_result(target, plan, ended)?;
        if let Some(owner) = owner {
            tokio::task::block_in_place(|| owner.give(target))?;
        }
        if let Some(done) = &done {
            done.mark(target);
        }
        Ok(xb_replay::remove_note(target).map_err(UntilError::from)?)
    };
    if let Some(EarlierRun::Replayed(ended)) = earlier {
        finish(&ended)?;
        let earlier =
            "an earlier run of this command has replayed everything; its end is recorded now";
        let remarks = [vec![earlier.to_owned()], ended.remarks, begun].concat();
        return Ok(UntilReport { restored: None, replayed: None, remarks });
    }
    let program = replaying_program(session, plan, options).await?;
    // The relay logs lie beside the data until they are applied.
    let how = RestoreOptions { room_beside: how.room_beside + plan.log_bytes, ..how };
    let restored = restore_locked(session, get, target, how, &ready, on_line, Some(&lock)).await?;
    session.observer.begin_phase("replay");
    let replayed = replay_onto(session, plan, target, (&program, options)).await?;
    let mut ended = ended(&what(plan).unwrap_or_default(), &replayed);
    if options.upgrade {
        let (_, version) = options.server.version(&session.cancel).await?;
        ended.remarks.extend(upgraded(&version, &plan.work.versions));
    }
    finish(&ended)?;
    drop(lock);
    let remarks = [restored.remarks.clone(), ended.remarks, begun].concat();
    Ok(UntilReport { restored: Some(restored), replayed: Some(replayed), remarks })
}

/// What an earlier run of a restore to a stop has done in its target.
#[derive(Debug)]
enum EarlierRun {
    Finished,
    /// Only the end of the replay is left to be recorded.
    Replayed(ReplayResult),
}

/// Returns what an earlier run of the same restore has done in `target`; `None` if it has not replayed anything.
///
/// # Errors
/// [`UntilError::Replay`] if a replay was interrupted there, or a server has changed its data since;
/// [`UntilError::OtherReplay`].
fn earlier_run(plan: &UntilPlan, target: &Path) -> Result<Option<EarlierRun>, UntilError> {
    if finished(plan).and_then(|done| done.found(target)).is_some() {
        return Ok(Some(EarlierRun::Finished));
    }
    let Some(note) = xb_replay::noted_end(target)? else {
        xb_replay::check_untouched(target)?;
        return Ok(None);
    };
    let other = |at| UntilError::OtherReplay { target: target.to_owned(), at };
    let ended: ReplayResult = serde_json::from_slice(&note).map_err(|_| other(String::new()))?;
    match Some(&ended.what) == what(plan).as_ref() {
        true => Ok(Some(EarlierRun::Replayed(ended))),
        false => Err(other(format!(": it is at {}:{}", ended.log, ended.offset))),
    }
}

/// Says what [`restore_until`] makes of what an earlier run has replayed onto `target`, for a dry run; `None` if there is nothing
/// of that kind.
///
/// # Errors
/// Those of a restore that would have to be repeated from the beginning: [`UntilError::Replay`], [`UntilError::OtherReplay`].
pub fn continuation(plan: &UntilPlan, target: &Path) -> Result<Option<&'static str>, BackupError> {
    Ok(earlier_run(plan, target)?.map(|earlier| match earlier {
        EarlierRun::Finished => "an earlier run of this command has finished everything",
        EarlierRun::Replayed(_) => {
            "an earlier run of this command has replayed everything: only its end is left to be recorded"
        }
    }))
}

/// What to do with data that a server of a newer series than these has changed; `None` if it is of none.
fn upgraded(version: &str, origins: &[String]) -> Option<String> {
    let older = origins.iter().find(|origin| series(origin) < series(version))?;
    Some(format!(
        "the logs were replayed with {version}, a newer series than that of the backup or of its log ({older}): start no older server on the data, and run mariadb-upgrade once the server runs"
    ))
}

/// What servers that begin with this data must be given.
fn begun(gtids: &str, begins_cluster: bool) -> Vec<String> {
    let of_cluster = match begins_cluster {
        true => vec![numbered_anew(gtids), Some(OTHER_STATE.to_owned())],
        false => Vec::new(),
    };
    [anew(gtids, begins_cluster)].into_iter().chain(of_cluster.into_iter().flatten()).collect()
}

/// A node takes the ID of its cluster from a file beside the data, which a replay removes, or in another directory.
const OTHER_STATE: &str = "if wsrep_data_home_dir is set, remove grastate.dat and gvwstate.dat there before the start: with them, the cluster keeps its old ID, and the other nodes their old data";

/// With `wsrep_gtid_mode`, a node numbers its transactions from the GTID on that InnoDB holds: that of the backup. The log
/// that was replayed has used the numbers after it.
fn numbered_anew(gtids: &str) -> Option<String> {
    let last =
        gtids.split(',').filter_map(|gtid| gtid.rsplit('-').next()?.parse::<u64>().ok()).max()?;
    let next = last.saturating_add(1);
    Some(format!(
        "if the nodes have wsrep_gtid_mode=ON, run this on the first one before anything else writes, events of the scheduler included, or its transactions get numbers that the replayed log has used: SET SESSION wsrep_gtid_seq_no={next}; FLUSH PRIVILEGES"
    ))
}

fn anew(gtids: &str, begins_cluster: bool) -> String {
    if gtids.contains(':') {
        return "the data begins a new history: its server gets a server_uuid of its own; give it a server_id that no other one has".to_owned();
    }
    let (servers, their) = match begins_cluster {
        true => ("the nodes with a server_id that no node of the old cluster had", "their"),
        false => ("it with a server_id that its origin never had", "its"),
    };
    format!(
        "the data begins a new history: start {servers}, or {their} next transactions get GTIDs that the origin has used ({gtids})"
    )
}

fn ended(what: &str, replayed: &ReplayReport) -> ReplayResult {
    ReplayResult {
        what: what.to_owned(),
        gtids: replayed.gtids.to_string(),
        log: replayed.position.log().to_owned(),
        offset: replayed.position.offset(),
        transactions: replayed.transactions,
        remarks: remarks(replayed),
    }
}

/// The mark by which a later run knows that everything was done.
fn finished(plan: &UntilPlan) -> Option<FinishedMark> {
    FinishedMark::new(&[], &format!("until {}", what(plan)?))
}

/// Returns the request, by content.
fn what(plan: &UntilPlan) -> Option<String> {
    #[derive(Serialize)]
    struct What<'a> {
        run: &'a str,
        to: &'a str,
        gtids: &'a str,
        left_out: Vec<String>,
    }
    let what = What {
        run: &plan.work.run,
        to: &plan.to,
        gtids: &plan.gtids,
        left_out: plan.work.relay.leave_out.iter().map(ToString::to_string).collect(),
    };
    serde_json::to_string(&what).ok()
}

/// Says something of a list, unless it is empty.
fn listed(list: &[String], said: fn(&str) -> String) -> Option<String> {
    (!list.is_empty()).then(|| said(&list.join(", ")))
}

/// Remarks on a replay, for the user.
pub(crate) fn remarks(replayed: &ReplayReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(error) = &replayed.retried {
        remarks.push(format!(
            "a transaction failed when it was applied in parallel with others, but not when applied alone: {error}"
        ));
    }
    if let Some(why) = replayed.unconfined {
        remarks.push(format!("the private server was not confined: {why}"));
    }
    remarks.extend(listed(&replayed.filters, |list| format!("options of the private server left parts of the logs out, which it counts as applied: {list}")));
    remarks.extend(listed(&replayed.missing_engines, |list| format!("the private server lacks engines of the origin ({list}): tables that the log created with one of them may have another engine now, if their sql_mode lacked NO_ENGINE_SUBSTITUTION; add the plugin with --mysqld-opts=--plugin-load-add=NAME")));
    remarks.extend(listed(&replayed.unchanged, |list| format!("the private server could not change these settings where the origin did, so what the log created after that may differ: {list}")));
    remarks.extend(listed(&replayed.in_use, |list| format!("tables were in use while the backup copied them, were repaired before the replay, and may lack rows from just before its position: {list}; compare them with the origin, or replay onto another backup")));
    if !replayed.repairs.is_empty() {
        remarks.push(format!("the repair of these tables: {}", replayed.repairs.join("; ")));
    }
    remarks.extend(listed(&replayed.disabled_events, |list| format!("events of the scheduler that the logs created or changed are disabled; enable those that should run: {list}")));
    remarks.extend(listed(&replayed.past_events, |list| format!("events of the scheduler that run once are disabled, because their time came before the stop and the server may have run them: {list}")));
    remarks.extend(listed(&replayed.cascaded_history, |list| format!("the data may differ from that of the server: foreign keys changed the history of versioned tables, or may have, and the log does not have the times of that; AS OF may find other rows of {list}")));
    remarks.extend(listed(&replayed.numbered_history, |list| format!("the data may differ from that of the server: the history of versioned tables has numbers of transactions, which are those of the replay now, with its times: {list}")));
    remarks.extend(listed(&replayed.ahead_xa, |list| format!("the backup had XA transactions prepared that its position does not have; they were rolled back, and the log applies them again: {list}")));
    remarks.extend(listed(&replayed.prepared_xa, |list| {
        format!("XA transactions are prepared, and wait for XA COMMIT or XA ROLLBACK: {list}")
    }));
    remarks
}

/// Replays the logs of a plan onto the prepared backup in `data`.
///
/// # Errors
/// [`UntilError::Replay`], [`BackupError::Interrupted`].
pub(crate) async fn replay_onto(
    session: &Session,
    plan: &UntilPlan,
    data: &Path,
    (program, options): (&Path, &ReplayOptions),
) -> Result<ReplayReport, BackupError> {
    let work = &plan.work;
    let data = std::path::absolute(data)
        .map_err(|source| BackupError::System { what: "cannot find the target", source })?;
    options.server.bring(&data)?;
    let own_words = options.server.options.clone();
    let own = own_words.iter().map(OsString::from);
    let of_origin =
        origin_options(work.origin.variables.iter().map(|(name, value)| (&**name, &**value)));
    let request = ReplayRequest {
        data: data.clone(),
        programs: vec![program.to_owned()],
        settings: of_origin.chain(own).collect(),
        system_zone: work.origin.zone.clone(),
        engines: work.origin.engines.clone(),
        writable: options.server.writable.clone(),
        position: work.start.clone(),
        plan: work.relay.clone(),
        memory: options.memory.unwrap_or_else(|| xb_server::working_memory(&data)),
        threads: u32::try_from(session.resources.threads).unwrap_or(1),
        patience: IDLE_LIMIT,
    };
    let mut fetched = fetch(session, &plan.server, &work.needed);
    let (observer, cancel) = (session.observer.clone(), session.cancel.clone());
    let (work, total) = (work.clone(), plan.log_bytes);
    let what = what(plan).unwrap_or_default();
    let replaying = tokio::task::spawn_blocking(move || {
        let mut last = 0;
        let mut progress = |progress| {
            if let Progress::Applying(done, _) = progress {
                // The relay logs have a little more: their format descriptions.
                let done = done.min(total);
                observer.add_bytes(done.saturating_sub(last));
                last = last.max(done);
            }
        };
        observer.expect_bytes(total);
        let is_cancelled = || cancel.reason().is_some();
        let note = |replayed: &ReplayReport| {
            serde_json::to_vec(&ended(&what, replayed)).unwrap_or_default()
        };
        let mut watch = Watch { progress: &mut progress, is_cancelled: &is_cancelled, note: &note };
        let pieces =
            std::iter::from_fn(|| fetched.blocking_recv()).flat_map(|fetched| {
                match fetched.and_then(|fetched| pieces(&work, &own_words, fetched)) {
                    Ok(pieces) => pieces.into_iter().map(Ok).collect(),
                    Err(error) => vec![Err(error)],
                }
            });
        replay(&request, pieces, &mut watch)
    });
    let replayed = replaying.await.map_err(|_| BackupError::Bug("the replay panicked"))?;
    replayed.map_err(|error| match (&error, session.cancel.reason()) {
        (xb_replay::ReplayError::Cancelled, Some(signal)) => BackupError::Interrupted(signal),
        _ => UntilError::from(error).into(),
    })
}

/// The bytes of a segment for the replay, and the log that they belong to, if it is another one.
fn pieces(
    work: &ReplayWork,
    own_words: &[String],
    fetched: SegmentEvents,
) -> Result<Vec<Piece>, BackupError> {
    let of = |number: usize| work.needed.get(number);
    let one = of(fetched.number).ok_or(BackupError::Bug("a segment of no number"))?;
    let part = one.part(&fetched, &work.start)?;
    let before = fetched.number.checked_sub(1).and_then(of);
    let is_moved = before.is_some_and(|before| before.server != one.server);
    let continues = !is_moved && before.is_some_and(|before| before.segment.from.log == part.log);
    let log = (!continues).then(|| Piece::Log {
        name: part.log.to_owned(),
        format: part.description.to_vec(),
        offset: part.offset,
    });
    let moved = is_moved.then(|| Piece::NextServer(one.repeats.clone()));
    let (len, before_part) = (part.bytes.len(), part.offset - one.segment.from.offset);
    let mut offset = part.offset;
    let mut bytes = fetched.bytes;
    bytes.drain(..usize::try_from(before_part).unwrap_or(usize::MAX).min(bytes.len()));
    bytes.truncate(len);
    let mut pieces: Vec<Piece> = moved.into_iter().chain(log).collect();
    let changes = work.origin.changes.iter().filter(|change| change.segment == fetched.number);
    for change in changes {
        let before = change.offset.unwrap_or_default().saturating_sub(offset);
        let place = usize::try_from(before).unwrap_or(usize::MAX).min(bytes.len());
        let behind = bytes.split_off(place);
        let before = std::mem::replace(&mut bytes, behind);
        offset += before.len() as u64;
        // What the operator says wins.
        let is_of_origin = |(name, _): &&(String, String)| !is_among(name, own_words);
        let values = change.values.iter().filter(is_of_origin).cloned().collect();
        pieces.extend([Piece::Bytes(before), Piece::Settings(values)]);
    }
    pieces.push(Piece::Bytes(bytes));
    Ok(pieces)
}

/// Whether one of these options of a server is that variable: a server takes the beginning of a name for the whole one.
fn is_among(variable: &str, words: &[String]) -> bool {
    words.iter().any(|word| {
        let name = word.split('=').next().unwrap_or_default().trim_start_matches('-');
        let name = name.replace('-', "_");
        let name = name.strip_prefix("loose_").unwrap_or(&name);
        let of_switch = ["skip_", "disable_", "enable_"];
        let name = of_switch.iter().find_map(|word| name.strip_prefix(word)).unwrap_or(name);
        !name.is_empty() && variable.starts_with(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_the_operator_is_known_by_the_beginning_of_its_name() {
        let is = |word: &str| is_among("default_storage_engine", &[word.to_owned()]);
        assert!(is("--default-storage-engine=Aria") && is("--loose-default_storage_eng=x"));
        assert!(is_among("innodb_strict_mode", &["--skip-innodb-strict-mode".to_owned()]));
        assert!(is("default-storage-engine") && !is("--default-storage-engines=x") && !is("--x"));
    }

    #[test]
    fn a_replay_with_a_newer_series_is_said() {
        let origins = ["11.8.2-MariaDB".to_owned(), "10.11.19-MariaDB-log".to_owned()];
        let said = upgraded("11.8.9-MariaDB", &origins).unwrap();
        assert!(
            said.contains("(10.11.19-MariaDB-log)") && said.contains("mariadb-upgrade"),
            "{said}"
        );
        assert_eq!(upgraded("11.8.9-MariaDB", &origins[..1]), None);
    }

    #[test]
    fn a_new_cluster_numbers_its_transactions_behind_the_log() {
        let said = begun("5-7-11,0-1-300,7-2-9", true);
        assert!(said[1].contains("wsrep_gtid_seq_no=301;"), "{said:?}");
        assert_eq!(begun("5-7-11", false).len(), 1);
        // Nothing was ever logged.
        assert_eq!(begun("", true).len(), 2);
    }

    #[test]
    fn a_series_is_the_first_two_numbers() {
        assert_eq!(series("10.11.19-MariaDB-log"), Some((10, 11)));
        assert_eq!(series("mariadbd  Ver 11.8.9-MariaDB for Linux"), Some((11, 8)));
        assert_eq!(series("x"), None);
        assert_eq!(series("10"), None);
        assert!(series("11.4.1") > series("10.11.9"));
    }
}
