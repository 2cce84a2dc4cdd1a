//! The private start of a server on a clone: it recovers, wraps keys by its own master key, and says where the data is.
//!
//! A start that was killed is not repeated on the same files: once, a second start was seen to end with `corrupt log
//! record`, and why is not known. What the server says is held against the bounds that were noted when the clone was
//! taken.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use xb_clone::{CloneInfo, binlog_position, exposed_keys, exposed_redo, has_shared_keys};
use xb_files::or_none;
use xb_reader::TargetDir;
use xb_server::recovery_memory;

use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::restore::clone::encryption::{explained, finish, of_server, read_shared};
use crate::restore::clone::place::note_start;
use crate::restore::clone::report::ClonePosition;
use crate::restore::journal::head::RestoreIdentity;
use crate::scratch::Scratch;
use crate::server::private::{Server, ServerOptions};
use crate::session::Session;
use crate::small_file::read_small;

/// Names and paths of MySQL's server.
const SERVERS: [&str; 3] = ["mysqld", "/usr/sbin/mysqld", "/usr/libexec/mysqld"];
/// Before this version, the server must be exactly that of the donor.
const LENIENT_FROM: [u32; 3] = [8, 0, 37];
/// The file in which backup programs note the position in the binary log.
const POSITION: &str = "xtrabackup_binlog_info";
const NEW_POSITION: &str = ".xb-position";
/// Options with which a server leaves no files of its own behind, and logs its actions.
const QUIET: [&str; 6] = [
    "--performance-schema=ON",
    "--loose-auto-generate-certs=OFF",
    "--loose-sha256-password-auto-generate-rsa-keys=OFF",
    "--loose-caching-sha2-password-auto-generate-rsa-keys=OFF",
    "--loose-innodb-buffer-pool-load-at-startup=OFF",
    "--loose-innodb-buffer-pool-dump-at-shutdown=OFF",
];
/// Identity of a server, which it makes when there is none: every restored server must get its own.
const IDENTITY: &str = "auto.cnf";
/// The option file that putting a clone together has made.
const SETTINGS: &str = "backup-my.cnf";
/// Statements that wrap the key of the redo log. A server keeps the key as the clone has it, whether or not it still encrypts its
/// redo log, and continues in the last file of the clone, where records of encrypted tables stay. The second statement alone wraps
/// the key only sometimes.
const WRAP_REDO_KEY: [&str; 2] =
    ["SET GLOBAL innodb_redo_log_encrypt = ON", "ALTER INSTANCE ROTATE INNODB MASTER KEY"];

/// Findings of a private start.
#[derive(Debug, Default)]
pub(crate) struct StartReport {
    pub(crate) position: ClonePosition,
    /// XA transactions that are prepared, as `XA RECOVER` prints them.
    pub(crate) prepared_xa: Vec<String>,
    /// The `lower_case_table_names` without which no server starts on it; `None` if that is the usual one.
    pub(crate) lower_case_table_names: Option<String>,
    /// Why the key of the redo log could not be wrapped anew.
    pub(crate) unwrapped: Option<String>,
    /// Why the server could write anywhere; `None` if it could not.
    pub(crate) unconfined: Option<&'static str>,
}

/// Finds the server to start, and checks that it may start on data of the donor's version: a server that may not
/// could already have changed it.
///
/// # Errors
/// [`BackupError::NotStarted`]; [`BackupError::Selection`] for another series, an older release, or another fork.
pub(crate) async fn find_server(
    options: &ServerOptions,
    donor: &str,
    cancel: &CancelToken,
) -> Result<PathBuf, BackupError> {
    let programs = match &options.program {
        Some(program) => vec![program.clone()],
        None => SERVERS.map(PathBuf::from).to_vec(),
    };
    let mut outcome = Err(BackupError::Bug("found no server program"));
    for program in programs {
        let one = ServerOptions { program: Some(program.clone()), ..ServerOptions::default() };
        let found = one.version(cancel).await;
        outcome = found.and_then(|(_, version)| match may_start(&version, donor) {
            Ok(()) => Ok(program),
            Err(why) => Err(BackupError::Selection(why)),
        });
        if !matches!(outcome, Err(BackupError::NotStarted { .. })) {
            break;
        }
    }
    outcome
}

fn may_start(here: &str, donor: &str) -> Result<(), String> {
    let refused = |why: &str| {
        Err(format!(
            "the clone is from MySQL {donor}, but the server here is {here}: {why}; name another one with --mysqld, or restore without --prepare where there is one"
        ))
    };
    if here.contains("MariaDB") {
        return refused("MariaDB cannot read the clone's files");
    }
    let (Some(found), Some(wanted)) = (numbers(here), numbers(donor)) else {
        return refused("whether it can read the clone's files is unknown");
    };
    if found.first_chunk::<2>() != wanted.first_chunk::<2>() {
        return refused("it belongs to another series");
    }
    if found < wanted {
        return refused("it is older");
    }
    if wanted < LENIENT_FROM && found != wanted {
        return refused("before 8.0.37 it must be the same release");
    }
    Ok(())
}

/// The three numbers of a version.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let numbers: Vec<u32> =
        version.get(..end)?.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

/// Starts a server on the clone in `target`, asks where its data is, and stops it: then the data needs no recovery. If
/// the encryption of a tablespace may have been changed while the clone was taken, another start shows that a server can
/// read what this one has written.
/// The server can write below `target` and its scratch directory only. The position is noted in the form of backup
/// programs.
///
/// # Errors
/// [`BackupError::Program`] if the server fails, or does not stop cleanly; [`BackupError::Damaged`] if its data is not
/// where the clone says; [`BackupError::Restore`].
pub(crate) async fn start_to_recover(
    session: &Session,
    target: &Path,
    about: &RestoreIdentity,
    info: &CloneInfo,
    options: &ServerOptions,
    memory: Option<u64>,
) -> Result<StartReport, BackupError> {
    let cancel = &session.cancel;
    let failed = |what: String| BackupError::of_target(target, what);
    let target = std::path::absolute(target).map_err(|error| failed(error.to_string()))?;
    let scratch = Scratch::new(None, "xb-start-")?;
    let memory = memory.unwrap_or_else(|| recovery_memory(&target, &target));
    let mut own: Vec<String> = QUIET.map(str::to_owned).into();
    own.push(format!("--innodb-buffer-pool-size={memory}"));
    own.extend(options.options.iter().cloned());
    let mut writable = options.writable.clone();
    writable.push(target.clone());
    let options = ServerOptions { options: own, writable, recovers: true, ..options.clone() };
    let of_clone = |error: xb_clone::Error| failed(error.to_string());
    let doubts = || has_shared_keys(&TargetDir::open_kept(&target)?, info);
    let is_doubtful = info.allows_ddl && tokio::task::block_in_place(doubts).map_err(of_clone)?;
    let has_redo_key = || Ok(!exposed_redo(&TargetDir::open_kept(&target)?)?.is_empty());
    let has_redo_key = tokio::task::block_in_place(has_redo_key).map_err(of_clone)?;
    let started = async {
        let server = launch_marked(&target, scratch.path(), about, &options)?;
        run(server, info, Round::First { has_redo_key }, cancel).await
    };
    let (found, unconfined) = started.await.map_err(|error| explained(error, is_doubtful))?;
    let binlog = TargetDir::open_kept(&target)
        .map_err(xb_clone::Error::from)
        .and_then(|folder| binlog_position(&folder, info))
        .map_err(of_clone)?;
    if is_doubtful {
        let again = async {
            let server = Server::launch(&target, scratch.path(), &options)?;
            run(server, info, Round::Second, cancel).await
        };
        let _ = again.await.map_err(|error| explained(error, is_doubtful))?;
    }
    let position = ClonePosition { binlog, gtids: found.gtids };
    or_none(std::fs::remove_file(target.join(IDENTITY)))
        .map_err(|error| failed(format!("{IDENTITY}: {error}")))?;
    note(&target, &position).map_err(|error| failed(format!("{POSITION}: {error}")))?;
    let lower_case_table_names = Some(found.lower_case_table_names).filter(|value| value != "0");
    if let Some(value) = &lower_case_table_names {
        note_names(&target, value).map_err(|error| failed(format!("{SETTINGS}: {error}")))?;
    }
    note_start(&target, about, false)?;
    let Transactions { prepared_xa, unwrapped, .. } = found;
    Ok(StartReport { position, prepared_xa, lower_case_table_names, unwrapped, unconfined })
}

/// The purpose of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// To recover. If the redo log has a key, that is wrapped anew.
    First { has_redo_key: bool },
    /// To read what the first server has written.
    Second,
}

/// Starts the server that recovers. That it may be at work is noted first, because this program can be killed at any
/// moment; if no server began, the files are as they were, and the note is taken back.
fn launch_marked(
    target: &Path,
    scratch: &Path,
    about: &RestoreIdentity,
    options: &ServerOptions,
) -> Result<Server, BackupError> {
    note_start(target, about, true)?;
    let launched = Server::launch(target, scratch, options);
    if launched.is_err() {
        note_start(target, about, false)?;
    }
    launched
}

/// Waits for a server that was started, has it do what it is for, and stops it. Returns what it has, and why it could
/// write anywhere.
async fn run(
    mut server: Server,
    info: &CloneInfo,
    round: Round,
    cancel: &CancelToken,
) -> Result<(Transactions, Option<&'static str>), BackupError> {
    server.answers(cancel).await?;
    let done = match ask(&mut server, info, cancel).await {
        Ok(found) => finish_round(&mut server, round, found, cancel).await,
        Err(error) => Err(error),
    };
    let found = match done {
        // The error of the connection is a consequence.
        Err(BackupError::Program { .. }) if server.has_ended() => {
            return Err(of_server(format!("ended: {}", server.cause())));
        }
        done => done?,
    };
    let unconfined = server.unconfined();
    tokio::task::block_in_place(|| server.end(cancel)).map_err(of_server)?;
    Ok((found, unconfined))
}

async fn finish_round(
    server: &mut Server,
    round: Round,
    mut found: Transactions,
    cancel: &CancelToken,
) -> Result<Transactions, BackupError> {
    match round {
        Round::Second => read_shared(server, cancel).await?,
        Round::First { has_redo_key } => {
            finish(server, cancel).await?;
            for statement in WRAP_REDO_KEY.iter().filter(|_| has_redo_key) {
                if let Err(why) = server.run(statement, cancel).await? {
                    found.unwrapped = Some(format!("{statement}: {why}"));
                    break;
                }
            }
        }
    }
    if found.unwrapped.is_some() && server.has_ended() {
        return Err(of_server(format!("ended: {}", server.cause())));
    }
    Ok(found)
}

/// The transactions that a server has, and what it says about itself.
struct Transactions {
    gtids: String,
    /// Prepared by XA, as `XA RECOVER` prints them.
    prepared_xa: Vec<String>,
    lower_case_table_names: String,
    /// Why the key of its redo log could not be wrapped anew.
    unwrapped: Option<String>,
}

/// The transactions that the server has, if they are those of the clone.
async fn ask(
    server: &mut Server,
    info: &CloneInfo,
    cancel: &CancelToken,
) -> Result<Transactions, BackupError> {
    let (from, to) = (set(&info.gtids_from)?, set(&info.gtids_to)?);
    let statement = format!(
        "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', ''), GTID_SUBSET('{from}', @@GLOBAL.gtid_executed), GTID_SUBSET(@@GLOBAL.gtid_executed, '{to}'), @@GLOBAL.lower_case_table_names"
    );
    let rows = server.rows::<4>(&statement, cancel).await?.map_err(of_server)?;
    let Some([gtids, has_all, has_no_more, names]) = rows.into_iter().next() else {
        return Err(of_server("does not say which transactions it has".to_owned()));
    };
    if (&*has_all, &*has_no_more) != ("1", "1") {
        return Err(of_server(format!(
            "has the transactions {gtids:?}, but the clone has all of {from:?} and none beyond {to:?}: restore it again to an empty directory, on which no other server was started"
        )));
    }
    let xa = server.rows::<4>("XA RECOVER CONVERT XID", cancel).await?.map_err(of_server)?;
    let prepared_xa = xa.into_iter().map(|[_, _, _, name]| name.to_string()).collect();
    let lower_case_table_names = names.to_string();
    let gtids = gtids.to_string();
    Ok(Transactions { gtids, prepared_xa, lower_case_table_names, unwrapped: None })
}

/// A set of GTIDs that may stand in a statement.
fn set(text: &str) -> Result<&str, BackupError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:,. ".contains(&byte);
    match text.bytes().all(is_plain) {
        true => Ok(text),
        false => Err(BackupError::Input(format!("the clone has the transactions {text:?}"))),
    }
}

/// Writes the position as backup programs do: file, offset, GTIDs.
fn note(target: &Path, position: &ClonePosition) -> std::io::Result<()> {
    // A schema of that name; the result states the position anyway.
    if target.join(POSITION).is_dir() {
        return Ok(());
    }
    let (file, offset) = match &position.binlog {
        Some((file, offset)) => (file.as_str(), *offset),
        None => return or_none(std::fs::remove_file(target.join(POSITION))).map(drop),
    };
    let new = target.join(NEW_POSITION);
    let mut out = File::create(&new)?;
    out.write_all(format!("{file}\t{offset}\t{}\n", position.gtids).as_bytes())?;
    out.sync_all()?;
    std::fs::rename(new, target.join(POSITION))
}

/// Adds `lower_case_table_names` to the option file: of it, no other file of the directory tells, and no server with another
/// value starts there.
fn note_names(target: &Path, value: &str) -> std::io::Result<()> {
    let mut file = File::options().append(true).open(target.join(SETTINGS))?;
    file.write_all(format!("lower_case_table_names={value}\n").as_bytes())?;
    file.sync_all()
}

/// The position that a finished restore has noted.
pub(crate) fn noted(target: &Path) -> Option<ClonePosition> {
    let text = read_small(&target.join(POSITION))?;
    let mut words = text.trim_end().splitn(3, '\t');
    let (file, offset) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let gtids = words.next().unwrap_or_default().to_owned();
    Some(ClonePosition { binlog: Some((file, offset)), gtids })
}

/// Refuses data whose keys are still protected by a constant alone, although a server has started on it. `unwrapped` is why that of
/// the redo log could not be wrapped anew.
///
/// # Errors
/// [`BackupError::Restore`] with the first of the files.
pub(crate) fn refuse_exposed(
    target: &Path,
    info: &CloneInfo,
    unwrapped: Option<&str>,
) -> Result<(), BackupError> {
    let failed = |what: String| BackupError::of_target(target, what);
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    match exposed_keys(&folder, info).map_err(|error| failed(error.to_string()))?.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(failed(format!(
            "the key of {first} is protected only by a public constant, also after the start of a server, which has no keyring or did not use it{}: give it one with --datadir-file and --mysqld-opts, or accept that with --allow-exposed-keys",
            unwrapped.map_or_else(String::new, |why| format!(" ({why})"))
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_of_the_series_and_not_an_older_one_may_start() {
        for (here, donor, may) in [
            ("9.7.4-2", "9.7.4-2", true),
            ("9.7.5", "9.7.4-2", true),
            ("9.7.3", "9.7.4-2", false),
            ("9.8.0", "9.7.4", false),
            ("8.4.6", "8.0.44", false),
            ("8.0.44-35", "8.0.37", true),
            ("8.0.36", "8.0.35", false),
            ("8.0.35-27.1", "8.0.35", true),
            ("10.11.6-MariaDB", "10.11.6", false),
            ("9.7", "9.7.4", false),
            ("", "9.7.4", false),
        ] {
            assert_eq!(may_start(here, donor).is_ok(), may, "{here} on {donor}");
        }
    }

    #[test]
    fn a_position_is_noted_in_the_form_of_backup_programs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(noted(dir.path()), None);
        let gtids = "3f2e:1-5,aa:tag:1-2".to_owned();
        let position = ClonePosition { binlog: Some(("b.000002".into(), 157)), gtids };
        note(dir.path(), &position).unwrap();
        let text = std::fs::read_to_string(dir.path().join(POSITION)).unwrap();
        assert_eq!(text, "b.000002\t157\t3f2e:1-5,aa:tag:1-2\n");
        assert_eq!(noted(dir.path()), Some(position));
        note(dir.path(), &ClonePosition::default()).unwrap();
        assert_eq!(noted(dir.path()), None);
        std::fs::create_dir(dir.path().join(POSITION)).unwrap();
        note(dir.path(), &ClonePosition::default()).unwrap();
        assert_eq!(noted(dir.path()), None);
    }

    #[test]
    fn the_case_of_names_is_noted_behind_the_other_settings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SETTINGS);
        // Without the file, nothing was put together.
        assert!(note_names(dir.path(), "1").is_err());
        std::fs::write(&path, "[mysqld]\ninnodb_page_size=16384\n").unwrap();
        note_names(dir.path(), "1").unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "[mysqld]\ninnodb_page_size=16384\nlower_case_table_names=1\n");
    }

    #[test]
    fn text_of_a_clone_cannot_end_a_statement() {
        assert!(set("3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:11-18,aa:tag_1:3").is_ok());
        for bad in ["'", "a'; DROP", "\\", "\n"] {
            assert!(set(bad).is_err(), "{bad:?}");
        }
    }
}
