//! Last level: restores a backup to a scratch directory, prepares it, and checks it with a real
//! server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use xb_pipeline::{Durability, Observer};

use super::server::{Server, ServerOptions};
use super::{
    Level, Problem, RestoreTest, VerifyReport, VerifyRequest, keep_passed, phases, record,
    up_to_pages,
};
use crate::cancel::CancelToken;
use crate::catalog::chain::chain;
use crate::catalog::root::Root;
use crate::child::OnLine;
use crate::error::BackupError;
use crate::read::file_filter::Selection;
use crate::read::request::GetRequest;
use crate::restore::prepare::PrepareOptions;
use crate::restore::restore_and_prepare::{Ready, restore_ready};
use crate::restore::{RestoreOptions, check_room};

/// Options of a trial restore.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// Parent of the scratch directory, which is created and removed again. If not given: the
    /// directory for temporary files.
    pub scratch_dir: Option<PathBuf>,
    /// Options for preparing the backup.
    pub prepare: PrepareOptions,
    /// Options for starting the server.
    pub server: ServerOptions,
    /// Statements that must succeed on the server.
    pub statements: Vec<String>,
}

/// Verifies a backup up to [`Level::Restore`]. After all checks of [`verify`](super::verify), the
/// backup is restored with its chain and prepared, a server is started on it that listens on a
/// socket only, every table is checked, and the statements are run.
///
/// The scratch directory and the server are removed before this function returns, also on failure.
/// The output of the programs goes to `talk`.
///
/// # Errors
/// The errors of [`verify`](super::verify); also if a program is not installed or fails, or the
/// disk is full.
pub async fn verify_by_restore(
    root: &Root,
    mut request: VerifyRequest,
    trial: &Trial,
    talk: &OnLine,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<VerifyReport, BackupError> {
    request.level = Level::Pages;
    // Those of the levels below, `fetch` and `prepare` of the restore, and `check`.
    observer.expect_phases(phases(Level::Pages) + 3);
    // Checks what this host lacks before a read that may take hours.
    let scratch = scratch(trial)?;
    can_try(root, &request, trial, scratch.path(), stop).await?;
    let (mut report, mac) = up_to_pages(root, &request, observer, stop).await?;
    // The pages of an incremental backup cannot be checked, but a server can be started on it.
    let sound = report.is_ok();
    report.level = Level::Restore;
    if sound {
        let keys = std::mem::take(&mut request.keys);
        let get = GetRequest {
            name: request.name.clone(),
            files: Selection::default(),
            as_stored: false,
            keys,
            accept: request.accept,
            memory: request.memory,
            threads: request.threads,
            parallel: request.parallel,
        };
        let outcome = try_out(root, get, trial, scratch.path(), talk, observer, stop).await;
        // Removed before any other error is returned, because the directory may be large.
        let removed = scratch.close();
        if let Err(error) = settle(&mut report, outcome) {
            keep_passed(root, &request, &mut report, mac.as_ref(), &error).await;
            return Err(error);
        }
        if let Err(error) = removed {
            report.warnings.push(format!("cannot remove the scratch directory: {error}"));
        }
    } else {
        report.leave_out(Level::Restore);
    }
    report.finished = jiff::Timestamp::now();
    record(root, &request, &mut report, mac.as_ref()).await;
    Ok(report)
}

fn scratch(trial: &Trial) -> Result<tempfile::TempDir, BackupError> {
    let folder = trial.scratch_dir.clone().unwrap_or_else(std::env::temp_dir);
    tempfile::Builder::new().prefix("xb-verify-").tempdir_in(&folder).map_err(|error| {
        let text = error.to_string();
        // `tempfile` adds the path, which the error names already.
        let cause = text.split(" at path ").next().unwrap_or(&text);
        let what = format!(
            "{cause}; name a directory that exists, and that this user can write to, with --scratch-dir"
        );
        BackupError::Restore { target: folder.display().to_string(), what }
    })
}

/// Refuses a trial that this host cannot run: checks programs and free space.
async fn can_try(
    root: &Root,
    request: &VerifyRequest,
    trial: &Trial,
    scratch: &Path,
    stop: &mut CancelToken,
) -> Result<(), BackupError> {
    trial.server.look(scratch)?;
    // Without a readable manifest nothing more is known; the fault in it is reported later.
    let Ok(Some(manifest)) = stop.or(root.manifest(&request.name)).await else { return Ok(()) };
    trial.prepare.look(manifest.source.tool_name.as_deref())?;
    let links = stop.or(chain(root, &request.name)).await.unwrap_or_default();
    let others = links.iter().filter(|link| link.name != request.name);
    let needed = others
        .fold(manifest.stream_bytes, |sum, link| sum.saturating_add(link.manifest.stream_bytes));
    check_room(scratch, needed)
        .map_err(|what| BackupError::Restore { target: scratch.display().to_string(), what })
}

/// Results of the trial: version of the server, counts, and faults.
#[derive(Debug, Default)]
struct TrialRun {
    test: RestoreTest,
    wrong: Vec<String>,
    /// Statements of the user that failed.
    refused: Vec<String>,
    /// The end of the server's log, if the server ended by itself.
    log: Option<String>,
}

impl TrialRun {
    /// Records the output of CHECK TABLE for `tables` tables. Tables with a complaint do not count
    /// as checked.
    fn checked(&mut self, tables: usize, said: &str) {
        let against: Vec<(&str, String)> = said.lines().filter_map(complaint).collect();
        let wrong: BTreeSet<&str> = against.iter().map(|(table, _)| *table).collect();
        self.test.tables += tables.saturating_sub(wrong.len()) as u64;
        self.wrong.extend(against.into_iter().map(|(_, what)| what));
    }
}

fn settle(
    report: &mut VerifyReport,
    outcome: Result<TrialRun, BackupError>,
) -> Result<(), BackupError> {
    let problem =
        |what| Problem { level: Level::Restore, object: None, file: None, offset: None, what };
    match outcome {
        Ok(tried) => {
            let what = format!(
                "tables checked: {} by {}; statements run: {}",
                tried.test.tables, tried.test.server_version, tried.test.statements
            );
            report.restore = Some(tried.test);
            let ended =
                tried.log.map(|log| format!("the trial server exited on its own; its log:\n{log}"));
            report.warnings.extend(ended);
            tried.wrong.into_iter().for_each(|what| report.problem(problem(what)));
            report.failed_checks = tried.refused;
            if report.failed_checks.is_empty() {
                report.close(Level::Restore, what);
            } else {
                report.close_unchecked(Level::Restore, what);
            }
        }
        // These errors are about the backup. All others may be about this host: a program may fail
        // for lack of space, a keyring or the right version as well as for damage, and its output
        // says which.
        Err(error @ (BackupError::Damaged { .. } | BackupError::Chain { .. })) => {
            report.problem(problem(error.to_string()));
            report.close(Level::Restore, "no server could be started on it".to_owned());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn try_out(
    root: &Root,
    request: GetRequest,
    trial: &Trial,
    scratch: &Path,
    talk: &OnLine,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<TrialRun, BackupError> {
    let data = scratch.join("data");
    let how = RestoreOptions { durability: Durability::None, decompress: true, check_room: true };
    let ready = Ready { prepare: Some(trial.prepare.clone()), ..Ready::default() };
    restore_ready(root, request, &data, how, &ready, talk, observer, stop).await?;
    remove_links(&data).map_err(|error| BackupError::Restore {
        target: data.display().to_string(),
        what: format!("cannot remove a link to a tablespace: {error}"),
    })?;
    observer.begin_phase("check");
    let mut server = Server::start(&data, scratch, &trial.server, stop).await?;
    let outcome = check(&mut server, trial, stop).await;
    tokio::task::block_in_place(|| server.end());
    outcome
}

/// Removes `.isl` files: they name tablespaces elsewhere, possibly those of a running server.
fn remove_links(data: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_links(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "isl") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

async fn check(
    server: &mut Server,
    trial: &Trial,
    stop: &mut CancelToken,
) -> Result<TrialRun, BackupError> {
    let mut tried = TrialRun {
        test: RestoreTest { server_version: server.version().to_owned(), ..RestoreTest::default() },
        ..TrialRun::default()
    };
    if !check_tables(server, &mut tried, stop).await? {
        return Ok(tried);
    }
    for statement in &trial.statements {
        match server.sql(statement, stop).await? {
            Ok(_) => tried.test.statements += 1,
            Err(said) => tried.refused.push(format!("`{statement}` failed: {said}")),
        }
        if !tried.revive(server, stop).await? {
            break;
        }
    }
    Ok(tried)
}

/// Number of tables in one query for names, and in one CHECK TABLE.
const NAMES: usize = 2000;
const TOGETHER: usize = 50;

/// All base tables, including those of the server itself.
const TABLES: &str = "SELECT CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`') \
    FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND engine IS NOT NULL \
    AND table_schema NOT IN ('information_schema', 'performance_schema') ORDER BY table_schema, table_name";

/// Checks all tables. Returns false if the server has ended and cannot be started again.
async fn check_tables(
    server: &mut Server,
    tried: &mut TrialRun,
    stop: &mut CancelToken,
) -> Result<bool, BackupError> {
    let mut from = 0;
    loop {
        let query = format!("{TABLES} LIMIT {from}, {NAMES}");
        let names = match server.sql(&query, stop).await? {
            Ok(names) => names,
            Err(said) => {
                tried.wrong.push(format!("the server cannot list its tables: {said}"));
                return Ok(true);
            }
        };
        let names: Vec<&str> = names.lines().collect();
        for together in names.chunks(TOGETHER) {
            if check_together(server, tried, together, stop).await? {
                continue;
            }
            // The faulty table is not known, so each is checked alone.
            if !tried.revive(server, stop).await? {
                tried.wrong.push(format!(
                    "one of these tables makes the server exit: {}",
                    together.join(", ")
                ));
                return Ok(false);
            }
            for table in together {
                if !check_alone(server, tried, table, stop).await? {
                    return Ok(false);
                }
            }
        }
        if names.len() < NAMES {
            return Ok(true);
        }
        from += NAMES;
    }
}

/// Checks several tables with one statement. Returns false if the statement failed.
async fn check_together(
    server: &Server,
    tried: &mut TrialRun,
    tables: &[&str],
    stop: &mut CancelToken,
) -> Result<bool, BackupError> {
    let said = server.sql(&format!("CHECK TABLE {}", tables.join(", ")), stop).await?;
    Ok(said.map(|said| tried.checked(tables.len(), &said)).is_ok())
}

/// Checks one table. Returns false if the server has ended and cannot be started again.
async fn check_alone(
    server: &mut Server,
    tried: &mut TrialRun,
    table: &str,
    stop: &mut CancelToken,
) -> Result<bool, BackupError> {
    match server.sql(&format!("CHECK TABLE {table}"), stop).await? {
        Ok(said) => tried.checked(1, &said),
        Err(_) if server.has_ended() => {
            tried.wrong.push(format!(
                "table {table}: the server exits when it checks this table: {}",
                server.cause()
            ));
        }
        Err(said) => tried.wrong.push(format!("table {table}: CHECK TABLE fails: {said}")),
    }
    tried.revive(server, stop).await
}

impl TrialRun {
    /// Starts the server again if it has ended. Returns false if that is not possible.
    async fn revive(
        &mut self,
        server: &mut Server,
        stop: &mut CancelToken,
    ) -> Result<bool, BackupError> {
        if !server.has_ended() {
            return Ok(true);
        }
        self.log = Some(server.last_lines());
        match server.restart(stop).await {
            Ok(()) => Ok(true),
            Err(error @ BackupError::Program { .. }) => {
                self.wrong.push(format!("the server exited, and cannot be started again: {error}"));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Parses a line of CHECK TABLE (`Table Op Msg_type Msg_text`): the table and the complaint.
fn complaint(line: &str) -> Option<(&str, String)> {
    let mut parts = line.splitn(4, '\t');
    let (table, _, kind, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let fine = match kind {
        "status" => matches!(text, "OK" | "Table is already up to date"),
        // The engine cannot check tables, or the server reports something from a flush.
        "note" | "info" | "warning" => true,
        _ => false,
    };
    (!fine).then(|| (table, format!("table {table}: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_against_a_table_counts() {
        let said =
            |text: &str| complaint(&format!("shop.orders\tcheck\t{text}")).map(|(_, what)| what);
        for fine in [
            "status\tOK",
            "warning\t1 client is using or hasn't closed the table properly",
            "note\tThe storage engine for the table doesn't support check",
        ] {
            assert_eq!(said(fine), None, "{fine}");
        }
        assert_eq!(said("error\tCorrupt").unwrap(), "table shop.orders: Corrupt");
        assert!(said("status\tOperation failed").is_some());
        assert_eq!(complaint("no table at all"), None);
    }

    #[test]
    fn tables_that_are_complained_of_are_not_counted_as_in_order() {
        let mut tried = TrialRun::default();
        let said = "a.a\tcheck\tstatus\tOK\na.b\tcheck\twarning\tx\na.b\tcheck\terror\ty\na.b\tcheck\terror\tCorrupt\n";
        tried.checked(2, said);
        assert_eq!((tried.test.tables, tried.wrong.len()), (1, 2));
    }

    /// A missing keyring or a full disk is not damage of a backup.
    #[test]
    fn what_fails_on_this_host_is_not_written_down_as_damage() {
        let mut report = VerifyReport::new("n".into(), Level::Restore);
        let (program, what) = ("mariadb-backup".to_owned(), "failed".to_owned());
        let outcome = Err(BackupError::Program { program, what });
        assert!(matches!(settle(&mut report, outcome), Err(BackupError::Program { .. })));
        assert!(report.problems.is_empty());
        let (name, what) = ("n".to_owned(), "x".to_owned());
        settle(&mut report, Err(BackupError::Damaged { name, what })).unwrap();
        assert_eq!(report.problems.len(), 1);
    }

    #[test]
    fn links_to_live_files_are_gone_before_a_server_starts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("shop")).unwrap();
        for name in ["shop/t.isl", "shop/t.ibd", "u.isl"] {
            std::fs::write(dir.path().join(name), "/var/lib/live/t.ibd").unwrap();
        }
        remove_links(dir.path()).unwrap();
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!([left("shop/t.isl"), left("shop/t.ibd"), left("u.isl")], [false, true, false]);
    }
}
