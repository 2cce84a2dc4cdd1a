//! `rescue`: single tables of a backup, by their names in SQL, as a dump or into a running server.
//!
//! Their files are restored to a scratch directory and prepared. A private server reads them there: it
//! has the definitions, and any engine and any form of a table that the server had.

mod copy;
mod definition;
mod file_names;
mod names;
mod rows;
mod sink;
mod target;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xb_mysql::{Client, HangUp, Timeouts};
use xb_pipeline::{Durability, logical_name};
use xb_process::can_confine;
use xb_repo::names::BackupName;

pub use self::copy::Rescued;
use self::copy::{Copied, Order, copy};
use self::names::{Chosen, NewNames, choose, held};
use self::sink::{LOGIN, Sink};
use self::target::{Wish, open};
use crate::admin::show::files_of;
use crate::child::OnLine;
use crate::error::BackupError;
use crate::read::request::GetRequest;
use crate::read::unlock::Accept;
use crate::restore::prepare::{PrepareOptions, PrepareTool, prepare};
use crate::restore::restore_and_prepare::{Ready, Wanted, fetch, links, look_for_program};
use crate::restore::same_space::is_covered;
use crate::restore::{RestoreOptions, RestoreReport, forget};
use crate::scratch::Scratch;
use crate::selection::Selection;
use crate::server::private::{Server, ServerOptions, remove_links};
use crate::session::Session;

/// What to call a table in a dump, and on a server, if the user does not say.
const IN_DUMP: &str = "{table}";
const ON_SERVER: &str = "{table}_rescued_{date}";
/// Limit that the private server sets to a row, in bytes: the largest that the protocol knows.
const MAX_ROW: &str = "--max-allowed-packet=1073741824";
/// Time for a copy to end after its connections were closed.
const LAST_STEPS: Duration = Duration::from_secs(90);

/// Which tables to rescue, and where they go.
#[derive(Debug)]
pub struct RescueRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Keys of a sealed backup.
    pub keys: xb_encryptor::Keys,
    /// Unauthenticated backups that are read.
    pub accept: Accept,
    /// Tables, as `SCHEMA.TABLE`; `*` and `?` stand for others.
    pub tables: Vec<String>,
    /// Name of each table, `[SCHEMA.]TABLE`, with `{table}` and `{date}`. If not given: the old name in
    /// a dump, and one that says that the table is rescued on a server.
    pub new_name: Option<String>,
    /// Condition in SQL that the rows must meet.
    pub filter: Option<String>,
    /// Server that gets the tables, as a socket, `HOST[:PORT]` or URL; a dump is written if not given.
    pub into: Option<String>,
    /// Replace existing tables.
    pub replace: bool,
    /// Parent of the scratch directory, which is removed again. If not given: the directory for
    /// temporary files.
    pub scratch_dir: Option<PathBuf>,
    /// Options for preparing the backup.
    pub prepare: PrepareOptions,
    /// Options for starting the private server.
    pub server: ServerOptions,
}

/// Result of a successful rescue.
#[derive(Debug)]
#[non_exhaustive]
pub struct RescueReport {
    /// The tables.
    pub tables: Vec<Rescued>,
    /// Views that a pattern matched; they are left out.
    pub views: Vec<String>,
    /// Result of each backup of the chain, the full one first.
    pub restored: Vec<(String, RestoreReport)>,
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
/// cannot be rescued; those of [`restore`](crate::restore) and [`prepare`](crate::prepare).
pub async fn rescue(
    session: &Session,
    request: RescueRequest,
    dump: impl Write + Send + 'static,
    talk: &OnLine,
) -> Result<RescueReport, BackupError> {
    let Session { observer, cancel, root, .. } = session;
    let template = if request.into.is_some() { ON_SERVER } else { IN_DUMP };
    let new_names = NewNames::parse(request.new_name.as_deref().unwrap_or(template))?;
    let mut get = GetRequest {
        name: request.name.clone(),
        files: Selection::default(),
        as_stored: false,
        keys: request.keys,
        accept: request.accept,
    };
    let ready = Ready { prepare: Some(request.prepare.clone()), ..Ready::default() };
    let links = cancel.or(links(session, &get, &ready)).await?;
    refuse_mysql(links.iter().find_map(Wanted::tool))?;
    look_for_program(&ready, &links)?;
    let last = links.last().ok_or(BackupError::Bug("a chain without a backup"))?;
    let files = cancel.or(files_of(root, &last.name, last.manifest(), last.key())).await?;
    let chosen = choose(&held(files.iter().map(|file| &file.path[..])), &request.tables)?;
    let date = last.manifest().map_or_else(jiff::Timestamp::now, |manifest| manifest.finished);
    let date = date.strftime("%Y%m%d").to_string();
    let names = new_names.of(&chosen, &date)?;
    let mut remarks = Vec::new();
    let live = match &request.into {
        None => None,
        Some(address) => {
            let create_schema = new_names.schema().is_some();
            let wish = Wish { names: &names, replace: request.replace, create_schema };
            let (live, found) = open(address, &wish, cancel).await?;
            remarks.extend(found);
            Some(live)
        }
    };
    refuse_links(files.iter().map(|file| &file.path[..]))?;
    let scratch = Scratch::new(request.scratch_dir.as_deref(), "xb-rescue-")?;
    request.server.look(scratch.path())?;
    observer.expect_phases(3);
    // A file that was renamed while the backup was taken has another name in it.
    let renamed = files.iter().any(|file| file.path.contains(".ren"));
    if !renamed {
        get.files = Selection::tables(chosen.iter().map(|chosen| chosen.held.files.clone()));
    }
    let data = scratch.path().join("data");
    let restored = restored(session, &mut get, &links, (&data, &request.prepare), talk).await?;
    let mut options = request.server;
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
            filter: request.filter,
            replace: request.replace,
            about: format!("backup {}", request.name),
            ..order(&chosen, names, new_names.schema().is_some(), live.is_some())?
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
    let Copied { tables, views, remarks: found } = copied?;
    remarks.extend(found);
    if let Err(error) = scratch.close() {
        remarks.push(format!("cannot remove the scratch directory: {error}"));
    }
    Ok(RescueReport { tables, views, restored, remarks })
}

/// The tables with their new names.
fn order(
    chosen: &[Chosen],
    names: Vec<(String, String)>,
    named_schema: bool,
    on_server: bool,
) -> Result<Order, BackupError> {
    let mut run = [0; 4];
    getrandom::fill(&mut run)?;
    let several = names.iter().any(|(schema, _)| *schema != names[0].0);
    Ok(Order {
        tables: chosen.iter().cloned().zip(names).collect(),
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
/// all files are restored.
async fn restored(
    session: &Session,
    get: &mut GetRequest,
    links: &[Wanted],
    (data, options): (&Path, &PrepareOptions),
    talk: &OnLine,
) -> Result<Vec<(String, RestoreReport)>, BackupError> {
    let how = RestoreOptions {
        durability: Durability::None,
        decompress: true,
        check_room: true,
        room_beside: 0,
    };
    let failed = |what: String| BackupError::Restore { target: data.display().to_string(), what };
    let (mut restored, mut folders) = fetch(session, get, links, (data, how)).await?;
    let covered = is_covered(data, &folders[1..]);
    let covered = covered.map_err(|error| failed(format!("cannot read its files: {error}")))?;
    if !covered && !get.files.is_all() {
        std::fs::remove_dir_all(data).map_err(|error| failed(error.to_string()))?;
        get.files = Selection::default();
        (restored, folders) = fetch(session, get, links, (data, how)).await?;
    }
    refuse_mysql_files(data)?;
    folders.iter().try_for_each(|folder| forget(folder))?;
    let unlinked = folders.iter().try_for_each(|folder| remove_links(folder));
    unlinked.map_err(|error| failed(format!("cannot remove a link to a tablespace: {error}")))?;
    session.observer.begin_phase("prepare");
    let increments = folders.split_off(1);
    prepare(session, (data, &increments), options, false, talk).await?;
    remove_links(data)
        .map_err(|error| failed(format!("cannot remove a link to a tablespace: {error}")))?;
    Ok(restored)
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
) -> Result<Copied, BackupError> {
    let failed = |error: xb_mysql::Error| BackupError::Program {
        program: "the server on the restored backup".to_owned(),
        what: error.to_string(),
    };
    let access = server.access();
    let timeouts = Timeouts { login: LOGIN, reply: None };
    let mut private =
        tokio::task::block_in_place(|| Client::connect(&access.target, &access.account, timeouts))
            .map_err(failed)?;
    let mut lines: Vec<HangUp> = vec![private.hang_up().map_err(failed)?];
    let on_server = if let Sink::Server(live) = &sink {
        lines.push(live.client.hang_up().map_err(failed)?);
        true
    } else {
        false
    };
    let (observer, token) = (observer.clone(), cancel.clone());
    let mut copying = tokio::task::spawn_blocking(move || {
        let outcome = copy(&order, &mut private, &mut sink, &observer, &token);
        if let Sink::Server(live) = sink {
            // What it answers changes nothing.
            let _ = live.client.quit();
        }
        outcome
    });
    let panicked = |_| BackupError::Bug("the thread that copies tables panicked");
    tokio::select! {
        done = &mut copying => done.map_err(panicked)?,
        signal = cancel.asked() => {
            lines.iter().for_each(HangUp::now);
            // A dump may be stalled by its reader, and has nothing to clean up.
            let limit = if on_server { LAST_STEPS } else { Duration::from_secs(1) };
            match tokio::time::timeout(limit, copying).await {
                Ok(done) => done.map_err(panicked)?.and(Err(BackupError::Interrupted(signal))),
                Err(_) => Err(BackupError::Interrupted(signal)),
            }
        }
    }
}
