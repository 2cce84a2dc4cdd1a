//! `rescue`: single tables of a backup, by their names in SQL, as a dump or into a running server.
//!
//! Their files are restored to a scratch directory and prepared. A private server reads them there: it
//! has the definitions, and any engine and any form of a table that the server had.

mod completing;
mod condition;
mod copy;
mod damaged;
mod definition;
mod faithful;
mod file_names;
mod grants;
mod in_use;
mod lost_answer;
mod names;
mod owners;
mod physical;
pub(crate) mod rows;
mod sink;
mod source;
mod target;
mod tokens;
mod tried;
mod trigger;
mod unfilled;

use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xb_mysql::{Client, ConnectionCloser, Timeouts};
use xb_pipeline::{Durability, logical_name};
use xb_process::can_confine;
use xb_replay::{ReplayReport, tables_in_use};
use xb_repo::names::BackupName;

use self::condition::{refuse_full_text, refuse_partial};
pub use self::copy::Rescued;
use self::copy::{CopyOutcome, copy};
use self::damaged::damaged_tables;
use self::names::{NamedTable, NewNames, StoredTable, choose, choose_present, held, left_out};
use self::sink::{LOGIN, LiveServer, Sink};
use self::source::Order;
use self::target::{TargetRequest, open};
use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::child::OnLine;
use crate::error::BackupError;
use crate::private_server::PrivateServer;
use crate::read::file_list::files_of;
use crate::read::request::GetRequest;
use crate::read::unlock::Accept;
use crate::restore::chain::Chain;
use crate::restore::choose::{ChosenBackup, links};
use crate::restore::clone::info::refuse_parts;
use crate::restore::fetch::{FetchedChain, fetch};
use crate::restore::prepare::{PrepareOptions, PrepareTool, lost_pages, prepare};
use crate::restore::request::AfterRestore;
use crate::restore::same_space::is_covered;
use crate::restore::{RestoreOptions, RestoreReport};
use crate::restored_pages::{RestoredPages, restored_pages};
use crate::scratch::Scratch;
use crate::selection::{Selection, table_of};
use crate::server::private::{Server, remove_links, with_keys};
use crate::session::Session;
use crate::until::{ReplayOptions, UntilPlan, replay_onto, replaying_program};

/// Default name of a table in a dump, and on a server.
const IN_DUMP: &str = "{table}";
const ON_SERVER: &str = "{table}_rescued_{date}";
/// Limit that the private server sets to a row, in bytes: the largest that the protocol knows.
const MAX_ROW: &str = "--max-allowed-packet=1073741824";
/// Time for a copy to end after its connections were closed.
const LAST_STEPS: Duration = Duration::from_secs(90);
/// More time for it if clients use tables that are not complete.
const COMPLETION: Duration = Duration::from_secs(900);

/// A rescue: from which backup, and what.
#[derive(Debug)]
pub struct RescueRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Keys of a sealed backup.
    pub keys: xb_encryptor::Keys,
    /// Unauthenticated backups that are read.
    pub accept: Accept,
    /// Which tables to rescue, and where they go.
    pub tables: RescueOptions,
    /// The log that is replayed onto the backup before.
    pub until: Option<RescueUntil>,
}

/// The log that is replayed onto a backup before its tables are rescued. Its transactions may touch any table, so
/// the whole backup is restored.
#[derive(Debug)]
pub struct RescueUntil {
    /// The log. Its backup must be the one of the request.
    pub plan: UntilPlan,
    /// A server of a newer series than the origin's may replay it.
    pub upgrade: bool,
}

/// Which tables to rescue, and where they go.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct RescueOptions {
    /// SCHEMA.TABLE, as named in SQL; `*` and `?` are wildcards; backquotes quote a dot or a star
    #[cfg_attr(feature = "clap", arg(required = true, value_name = "TABLE"))]
    pub tables: Vec<String>,
    /// Write into this server instead of stdout: its socket, HOST[:PORT] or mysql://[USER@]HOST[:PORT];
    /// login from the option files, as for `mariadb`
    #[cfg_attr(feature = "clap", arg(long, value_name = "SERVER"))]
    pub into: Option<String>,
    /// Name of the rescued table, [SCHEMA.]NAME; {table}: old name, {date}: day of the data [default:
    /// {table}, with --into {table}_rescued_{date}]
    #[cfg_attr(feature = "clap", arg(long = "as", value_name = "NAME"))]
    pub new_name: Option<String>,
    /// Rescue only the rows that meet this condition, in SQL; times are in UTC
    #[cfg_attr(feature = "clap", arg(long = "where", value_name = "CONDITION"))]
    pub filter: Option<String>,
    /// Replace a table that exists under the new name
    #[cfg_attr(feature = "clap", arg(long, requires = "into"))]
    pub replace: bool,
    /// Import files, not rows: faster; only into a server here, without binary log and cluster
    #[cfg_attr(feature = "clap", arg(long, requires = "into", conflicts_with_all = ["replace", "filter"]))]
    pub physical: bool,
    /// The server that reads them, and the program that prepares the backup.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub private: PrivateServer,
}

/// Result of a successful rescue.
#[derive(Debug)]
#[non_exhaustive]
pub struct RescueReport {
    /// The tables.
    pub tables: Vec<Rescued>,
    /// Views, and tables without rows of their own (MERGE), that a pattern matched; they are left out.
    pub passed_over: Vec<String>,
    /// Why tables that a pattern matched were not rescued, each with its name.
    pub not_rescued: Vec<String>,
    /// Result of each backup of the chain, the full one first.
    pub restored: Vec<(String, RestoreReport)>,
    /// When the last of them ended; `None` if it has no manifest.
    pub finished: Option<jiff::Timestamp>,
    /// The replay, if a log was replayed.
    pub replayed: Option<ReplayReport>,
    /// Remarks for the user.
    pub remarks: Vec<String>,
}

/// Rescues tables: writes them to `dump`, or into the server of the request. A table gets its name only
/// when all of them are complete; on a server, the rows are read back and compared before.
///
/// The scratch directory and the private server are removed before this function returns, and also if
/// this process is killed.
///
/// # Errors
/// [`BackupError::Selection`] for names that match nothing; [`BackupError::Rescue`] with the table that
/// cannot be rescued; [`BackupError::Until`] of a replay; those of [`restore`](crate::restore) and
/// [`prepare`](crate::prepare).
pub async fn rescue(
    session: &Session,
    request: RescueRequest,
    dump: impl Write + Send + 'static,
    on_line: &OnLine,
) -> Result<RescueReport, BackupError> {
    let Session { observer, cancel, root, .. } = session;
    let RescueRequest { name, keys, accept, tables: wanted, until } = request;
    refuse_full_text(wanted.filter.as_deref())?;
    refuse_partial(wanted.filter.as_deref(), wanted.replace)?;
    let template = if wanted.into.is_some() { ON_SERVER } else { IN_DUMP };
    let new_names = NewNames::parse(wanted.new_name.as_deref().unwrap_or(template))?;
    let mut get = GetRequest {
        name: name.clone(),
        files: Selection::default(),
        as_stored: false,
        keys,
        accept,
    };
    let mut ready = AfterRestore::prepared(wanted.private.prepare.clone());
    let links = cancel.or(links(session, &get, &ready)).await?;
    if links.iter().any(ChosenBackup::is_clone) {
        refuse_parts(name.as_str(), false, false)?;
    }
    let tool = links.iter().find_map(ChosenBackup::tool);
    refuse_mysql(tool)?;
    ready.preparing.by.look(tool)?;
    let last = links.last().ok_or(BackupError::Bug("a chain without a backup"))?;
    let files = cancel.or(files_of(root, &last.name, last.manifest(), last.key())).await?;
    refuse_links(files.iter().map(|file| &file.path[..]))?;
    let finished = last.manifest().map(|manifest| manifest.finished);
    let taken = finished.unwrap_or_else(jiff::Timestamp::now);
    let time = until.as_ref().map_or(taken, |until| until.plan.time());
    let goal = RescuePlan {
        tables: &wanted.tables,
        names: &new_names,
        date: &time.strftime("%Y%m%d").to_string(),
        into: wanted.into.as_deref(),
        replace: wanted.replace,
        physical: wanted.physical,
    };
    let in_backup = held(files.iter().map(|file| &file.path[..]));
    let scratch = Scratch::new(wanted.private.scratch_dir.as_deref(), "xb-rescue-")?;
    let rescuing = async {
        ready.preparing.by = wanted.private.preparing();
        let mut options = wanted.private.server;
        options.look(scratch.path())?;
        let data = scratch.path().join("data");
        let how = &ready.preparing;
        let left;
        let ((found, mut not_rescued), live, (restored, lost, pages), replayed) = match until {
            None => {
                let found = goal.find(&in_backup)?;
                let opened = goal.open(&found.0, cancel).await?;
                left = left_out(&in_backup, goal.tables);
                observer.expect_phases(4);
                let files = found.0.iter().map(|named| named.chosen.held.files.clone());
                get.files = Selection::tables(files);
                let restored = restored(session, &mut get, &links, &data, how, 0, on_line).await?;
                (found, opened, restored, None)
            }
            Some(RescueUntil { plan, upgrade }) => {
                let replay =
                    ReplayOptions { server: options.clone(), upgrade, ..ReplayOptions::default() };
                let program = replaying_program(session, &plan, &replay).await?;
                // Obstacles are reported now, although the log may create and rename tables.
                drop(goal.open(&goal.find_present(&in_backup)?.0, cancel).await?);
                observer.expect_phases(6);
                let room = plan.log_bytes;
                let restored =
                    restored(session, &mut get, &links, &data, how, room, on_line).await?;
                observer.begin_phase("replay");
                let replayed = replay_onto(session, &plan, &data, (&program, &replay)).await?;
                let in_data = held_in(&data)?;
                let found = goal.find(&in_data).map_err(at_the_stop)?;
                left = left_out(&in_data, goal.tables);
                let opened = goal.open(&found.0, cancel).await?;
                (found, opened, restored, Some(replayed))
            }
        };
        let mut remarks = live.as_ref().map(|live| live.remarks.clone()).unwrap_or_default();
        remarks.extend(replayed.iter().flat_map(crate::until::remarks));
        let is_partial = last.manifest().is_some_and(|last| last.source.is_partial);
        remarks.extend(lost.as_deref().map(|lost| lost_pages(lost, is_partial)));
        let (damaged, of_server) = damaged_tables(&pages);
        remarks.extend(of_server);
        if !left.is_empty() {
            remarks.push(format!(
                "the file names of these are not encoded, as for a copy in the data directory, so a pattern leaves them out: {}; name those that you want",
                left.join(", ")
            ));
        }
        // A server that opens them removes the marks.
        let in_use = tables_in_use(&data).map_err(|error| unreadable(&data, &error))?;
        // The user's own options come last, and win.
        options.options.insert(0, MAX_ROW.to_owned());
        observer.begin_phase("copy");
        let server = Server::start(&data, scratch.path(), &options, cancel).await?;
        if let Some(why) = server.unconfined() {
            remarks.push(format!("the private server was not confined: {why}"));
        }
        let copied = copied(
            &server,
            Order {
                filter: wanted.filter,
                replace: wanted.replace,
                physical: wanted.physical,
                data: data.clone(),
                is_partial,
                // A log may have made it anew.
                lost: lost.filter(|_| replayed.is_none()).as_deref().and_then(files_at),
                damaged,
                in_use: in_use.iter().filter_map(|file| files_at(Path::new(file))).collect(),
                about: match &replayed {
                    None => format!("backup {name}"),
                    Some(at) => format!("backup {name}, and the log up to {}", at.position),
                },
                ..order(found, new_names.schema().is_some(), live.is_some())?
            },
            match live {
                Some(live) => Sink::Server(Box::new(live)),
                None => Sink::Dump(Box::new(dump)),
            },
            session,
        )
        .await;
        // Nothing that it wrote is needed.
        tokio::task::block_in_place(|| drop(server));
        let plugin = xb_server::key_plugin(&data);
        let mut copied = copied.map_err(|error| with_keys(error, plugin))?;
        remarks.append(&mut copied.remarks);
        let CopyOutcome { tables, passed_over, lost, .. } = copied;
        not_rescued.extend(lost.into_iter().map(|error| match with_keys(error, plugin) {
            BackupError::Rescue { table, what } => format!("{table}: {what}"),
            error => error.to_string(),
        }));
        Ok::<_, BackupError>(RescueReport {
            tables,
            passed_over,
            not_rescued,
            restored,
            finished,
            replayed,
            remarks,
        })
    };
    let mut report = rescuing.await.map_err(|error| error.or_full_scratch(scratch.path()))?;
    if let Err(error) = scratch.close() {
        report.remarks.push(format!("cannot remove the scratch directory: {error}"));
    }
    Ok(report)
}

/// The table to which a file belongs, as `SCHEMA/TABLE` in the encoding of file names.
fn files_at(file: &Path) -> Option<String> {
    table_of(file.as_os_str().as_bytes()).map(str::to_owned)
}

/// Tables to rescue, and their destination.
struct RescuePlan<'a> {
    tables: &'a [String],
    names: &'a NewNames,
    date: &'a str,
    into: Option<&'a str>,
    replace: bool,
    physical: bool,
}

/// Says that a table which is not there may have been in the backup.
fn at_the_stop(error: BackupError) -> BackupError {
    match error {
        BackupError::Selection(what) => BackupError::Selection(format!(
            "{what}. These are the tables at the stop: the log may have dropped or renamed one before. `binlog show --ddl --table=...` finds the statement, and --until=before:GTID is the moment before it"
        )),
        other => other,
    }
}

impl RescuePlan<'_> {
    fn find(&self, held: &[StoredTable]) -> Result<(Vec<NamedTable>, Vec<String>), BackupError> {
        self.names.of(choose(held, self.tables)?, self.date)
    }

    /// As [`find`](Self::find), without the tables that are not there: a log may bring them.
    fn find_present(
        &self,
        held: &[StoredTable],
    ) -> Result<(Vec<NamedTable>, Vec<String>), BackupError> {
        self.names.of(choose_present(held, self.tables)?.0, self.date)
    }

    /// Logs in to the server, if there is one, and checks that it can take the tables.
    async fn open(
        &self,
        tables: &[NamedTable],
        cancel: &CancelToken,
    ) -> Result<Option<LiveServer>, BackupError> {
        let Some(address) = self.into else { return Ok(None) };
        let create_schema = self.names.schema().is_some();
        let physical = self.physical;
        let wish = TargetRequest { tables, replace: self.replace, create_schema, physical };
        open(address, &wish, cancel).await.map(Some)
    }
}

/// The tables and views in a data directory.
fn held_in(data: &Path) -> Result<Vec<StoredTable>, BackupError> {
    let mut files = Vec::new();
    let mut read = || {
        for schema in std::fs::read_dir(data)? {
            let schema = schema?;
            if schema.file_type()?.is_dir() {
                for file in std::fs::read_dir(schema.path())? {
                    let name = Path::new(&schema.file_name()).join(file?.file_name());
                    files.extend(name.to_str().map(str::to_owned));
                }
            }
        }
        Ok(())
    };
    read().map_err(|error| unreadable(data, &error))?;
    Ok(held(files.iter().map(String::as_str)))
}

fn unreadable(data: &Path, error: &std::io::Error) -> BackupError {
    BackupError::of_target(data, format!("cannot read its files: {error}"))
}

/// The order for these tables.
fn order(
    tables: Vec<NamedTable>,
    named_schema: bool,
    on_server: bool,
) -> Result<Order, BackupError> {
    let mut run = [0; 4];
    getrandom::fill(&mut run)?;
    let several = tables.iter().any(|table| table.schema != tables[0].schema);
    Ok(Order {
        tables,
        with_schema: on_server || named_schema || several,
        create_schema: named_schema || !on_server && several,
        run: base16ct::lower::encode_string(&run),
        ..Order::default()
    })
}

/// Tables of MySQL are not described by their own files, but by those of its data dictionary.
fn refuse_mysql(tool: Option<&str>) -> Result<(), BackupError> {
    match tool.and_then(PrepareTool::of_name) {
        Some(PrepareTool::XtraBackup) => Err(BackupError::Selection(
            "single tables can be rescued from backups of mariadb-backup only; restore this one with --prepare, and start a server on it".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// The dictionary names the places of tablespaces outside the data directory. On the host of the origin,
/// only confinement keeps the private server from its live files.
fn refuse_links<'a>(mut files: impl Iterator<Item = &'a str>) -> Result<(), BackupError> {
    let Err(why) = can_confine() else { return Ok(()) };
    let link = files.find(|file| logical_name(file.as_bytes()).ends_with(b".isl"));
    link.map_or(Ok(()), |link| {
        Err(BackupError::Rescue {
            table: link.to_owned(),
            what: format!(
                "its tablespace was outside the data directory, where the private server could change a live one: {why}; rescue it on another host"
            ),
        })
    })
}

/// Restores the selected files of a chain into `data` and prepares them. If they do not belong together,
/// all files are restored. Returns the file of a tablespace that the chain lacks, or not all of, too, and what was found in
/// the pages of all files.
async fn restored(
    session: &Session,
    get: &mut GetRequest,
    links: &[ChosenBackup],
    data: &Path,
    options: &PrepareOptions,
    room_beside: u64,
    on_line: &OnLine,
) -> Result<(Vec<(String, RestoreReport)>, Option<PathBuf>, RestoredPages), BackupError> {
    let how = RestoreOptions { sync: Durability::None, room_beside, ..RestoreOptions::default() };
    let failed = |what: String| BackupError::Restore { target: data.display().to_string(), what };
    let mut fetched = fetch(session, get, links, data, how, on_line).await?;
    let selected = get.files.clone();
    let asks_for = |name: &str| selected.asks_for(name.as_bytes());
    let covered = is_covered(data, &fetched.folders[1..], asks_for);
    let covered = covered.map_err(|error| failed(format!("cannot read its files: {error}")))?;
    if !covered && !get.files.is_all() {
        std::fs::remove_dir_all(data).map_err(|error| failed(error.to_string()))?;
        get.files = Selection::default();
        fetched = fetch(session, get, links, data, how, on_line).await?;
    }
    let FetchedChain { restored, mut folders, .. } = fetched;
    refuse_mysql_files(data)?;
    let unlinked = folders.iter().try_for_each(|folder| remove_links(folder));
    unlinked.map_err(|error| failed(format!("cannot remove a link to a tablespace: {error}")))?;
    session.observer.begin_phase("prepare");
    let increments = folders.split_off(1);
    let chain = Chain { dir: data, increments: &increments, of: None };
    let lost = prepare(session, chain, options, false, on_line).await?;
    remove_links(data)
        .map_err(|error| failed(format!("cannot remove a link to a tablespace: {error}")))?;
    Ok((restored, lost, restored_pages(session, data)?))
}

/// For a backup without a manifest.
fn refuse_mysql_files(data: &Path) -> Result<(), BackupError> {
    match PrepareTool::of_folder(data) {
        Some(PrepareTool::XtraBackup) => refuse_mysql(Some("xtrabackup")),
        _ => Ok(()),
    }
}

/// Copies the tables in a thread of its own. A signal closes its connections.
async fn copied(
    server: &Server,
    order: Order,
    mut sink: Sink,
    Session { observer, cancel, .. }: &Session,
) -> Result<CopyOutcome, BackupError> {
    let failed = |error: xb_mysql::Error| BackupError::Program {
        program: "the server on the restored backup".to_owned(),
        what: error.to_string(),
    };
    let access = server.access();
    let timeouts = Timeouts { login: LOGIN, reply: None };
    let mut private =
        tokio::task::block_in_place(|| Client::connect(&access.target, &access.account, timeouts))
            .map_err(failed)?;
    let mut lines: Vec<ConnectionCloser> = vec![private.hang_up().map_err(failed)?];
    let on_server = if let Sink::Server(live) = &sink {
        lines.push(live.client.hang_up().map_err(failed)?);
        true
    } else {
        false
    };
    let (observer, token) = (observer.clone(), cancel.clone());
    let in_use = Arc::new(AtomicBool::new(false));
    let is_in_use = Arc::clone(&in_use);
    let mut copying = tokio::task::spawn_blocking(move || {
        copy(&order, &mut private, &mut sink, &observer, &token, &is_in_use)
    });
    let panicked = |_| BackupError::Bug("the thread that copies tables panicked");
    tokio::select! {
        done = &mut copying => done.map_err(panicked)?,
        signal = cancel.cancelled() => {
            lines.iter().for_each(ConnectionCloser::now);
            // A dump may be stalled by its reader, and has nothing to clean up.
            let limit = if on_server { LAST_STEPS } else { Duration::from_secs(1) };
            let mut ended = tokio::time::timeout(limit, &mut copying).await;
            if ended.is_err() && in_use.load(Ordering::SeqCst) {
                ended = tokio::time::timeout(COMPLETION, &mut copying).await;
            }
            match ended {
                // All of it may have been done before the signal could end it.
                Ok(done) => done.map_err(panicked)?,
                Err(_) => Err(BackupError::Interrupted(signal)),
            }
        }
    }
}
