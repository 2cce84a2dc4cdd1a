//! A private server on a restored backup: started, asked, and started again if it ends.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xb_mysql::{Access, Row};
use xb_server::{Login, ServerError, Setup, socket_in};

use crate::cancel::CancelToken;
use crate::child::{self, OnLine};
use crate::error::BackupError;
use crate::full_disk::{AGAIN, ANEW, free_bytes, has_room};
use crate::hints::{KILLED, says_full};
use crate::server::session::{Session, SessionError};

/// Beginning of the reason why a table cannot be rescued, if the private server says so.
const ON_BACKUP: &str = "the server on the backup: ";
/// Time limit for a server to answer. A prepared backup needs no recovery, but a cold disk is slow.
const START_LIMIT: Duration = Duration::from_secs(600);
/// The same for one that recovers: a limit of what is sensible, and no measure.
const RECOVERY: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for which the disk is full without a break, after which a server that does not answer is given up: it would wait
/// for room.
const WITHOUT_ROOM: Duration = Duration::from_secs(20);
/// Bytes that a server takes at its start, for a redo log and temporary tables, and some more.
const START_ROOM: u64 = 128 << 20;
/// Time limit of each step of a login.
const LOGIN: Duration = Duration::from_secs(60);
/// Time for a server that has closed a connection to end.
const END_WAIT: Duration = Duration::from_secs(60);
/// Pause between two connection attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Names and paths of the server, the preferred one first.
const SERVERS: [&str; 6] = [
    "mariadbd",
    "mysqld",
    "/usr/sbin/mariadbd",
    "/usr/sbin/mysqld",
    "/usr/libexec/mariadbd",
    "/usr/libexec/mysqld",
];

/// Options for starting a server.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ServerOptions {
    /// Extra server option, such as --plugin-load-add=file_key_management; repeatable
    // They come last.
    #[cfg_attr(
        feature = "clap",
        arg(id = "mysqld-opts", long, value_name = "OPTION", allow_hyphen_values = true)
    )]
    pub options: Vec<String>,
    /// File that the server needs in its data directory, such as mysqld.my of a keyring; repeatable
    #[cfg_attr(feature = "clap", arg(id = "datadir-file", long, value_name = "FILE"))]
    pub files: Vec<PathBuf>,
    /// File or directory that the server may write to besides the scratch directory, such as that of a
    /// keyring; repeatable
    #[cfg_attr(
        feature = "clap",
        arg(id = "mysqld-writes", long, value_name = "PATH", hide_short_help = true)
    )]
    pub writable: Vec<PathBuf>,
    /// Server program [default: mariadbd or mysqld on PATH]
    #[cfg_attr(
        feature = "clap",
        arg(id = "mysqld", long, value_name = "FILE", hide_short_help = true)
    )]
    pub program: Option<PathBuf>,
    /// Whether it has to recover first, which may take hours.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub recovers: bool,
}

impl ServerOptions {
    /// Checks that a server is installed and can run with files in `scratch`.
    pub(crate) fn look(&self, scratch: &Path) -> Result<(), BackupError> {
        if socket_in(scratch).is_none() {
            return Err(too_deep(scratch));
        }
        let missing = |path: &Path, what: &str| {
            let (target, what) = (path.display().to_string(), what.to_owned());
            Err(BackupError::Restore { target, what })
        };
        if let Some(file) = self.files.iter().find(|file| !file.is_file()) {
            return missing(file, "this file for the server's data directory does not exist");
        }
        let is_missing = |place: &&PathBuf| matches!(place.try_exists(), Ok(false));
        if let Some(place) = self.writable.iter().find(is_missing) {
            return missing(place, "this path for the server to write to does not exist");
        }
        match &self.program {
            Some(program) => child::find(&[program]),
            None => child::find(&SERVERS.map(Path::new)),
        }
    }
}

impl ServerOptions {
    /// The program that will be started, and its version.
    ///
    /// # Errors
    /// [`BackupError::NotStarted`] if none is installed.
    pub(crate) async fn version(
        &self,
        cancel: &CancelToken,
    ) -> Result<(PathBuf, String), BackupError> {
        let programs = match &self.program {
            Some(program) => vec![program.clone()],
            None => SERVERS.map(PathBuf::from).to_vec(),
        };
        let quiet: OnLine = Arc::new(|_| {});
        let words = ["--no-defaults", "--version"].map(OsString::from);
        let mut missing = None;
        for program in programs {
            match child::ask(&program, &words, &quiet, cancel).await {
                Err(error @ BackupError::NotStarted { .. }) => missing = missing.or(Some(error)),
                Err(error) => return Err(error),
                Ok(text) => {
                    let version = text.split_once("Ver ").map_or(&*text, |(_, rest)| rest);
                    let version = version.split_whitespace().next().unwrap_or_default();
                    return Ok((program, version.to_owned()));
                }
            }
        }
        Err(missing.unwrap_or(BackupError::Bug("found no server program")))
    }

    /// Copies the files that the server needs into its data directory.
    pub(crate) fn bring(&self, data: &Path) -> Result<(), BackupError> {
        bring(&self.files, data)
    }
}

fn too_deep(scratch: &Path) -> BackupError {
    BackupError::Restore {
        target: scratch.display().to_string(),
        what: "the path is too long for a socket: choose a shorter directory with --scratch-dir"
            .to_owned(),
    }
}

/// Names the plugin of whose keys the failed program may have none.
pub(crate) fn with_keys(error: BackupError, plugin: Option<&'static str>) -> BackupError {
    let Some(plugin) = plugin else { return error };
    let hint = |how| format!("; the backup is from a server with {plugin}: {how}");
    match error {
        BackupError::Program { program, mut what } => {
            what += &hint("give its keys with --prepare-opts and --mysqld-opts");
            BackupError::Program { program, what }
        }
        BackupError::Rescue { table, mut what } if what.starts_with(ON_BACKUP) => {
            what += &hint("if the table is encrypted, give its keys with --mysqld-opts");
            BackupError::Rescue { table, what }
        }
        error => error,
    }
}

/// A running server; it is ended when dropped.
pub(crate) struct Server {
    server: xb_server::Server,
    session: Option<Session>,
    version: String,
    /// Whether it recovers, and not only starts.
    recovers: bool,
    data: PathBuf,
}

impl Server {
    /// Starts a server on `data` and waits until it answers.
    ///
    /// # Errors
    /// [`BackupError::Program`] with the end of the server's log if it fails.
    pub(crate) async fn start(
        data: &Path,
        scratch: &Path,
        options: &ServerOptions,
        cancel: &CancelToken,
    ) -> Result<Self, BackupError> {
        let mut this = Self::launch(data, scratch, options)?;
        this.answers(cancel).await?;
        Ok(this)
    }

    /// Starts a server on `data`, which does not answer yet.
    ///
    /// # Errors
    /// [`BackupError::NotStarted`] and [`BackupError::Restore`]: no server has begun.
    pub(crate) fn launch(
        data: &Path,
        scratch: &Path,
        options: &ServerOptions,
    ) -> Result<Self, BackupError> {
        bring(&options.files, data)?;
        let programs = match &options.program {
            Some(program) => vec![program.clone()],
            None => SERVERS.map(PathBuf::from).to_vec(),
        };
        let server = xb_server::Server::start(Setup {
            programs,
            data: data.to_owned(),
            scratch: scratch.to_owned(),
            login: Login::WithoutAccounts,
            options: options.options.iter().map(Into::into).collect(),
            writable: options.writable.clone(),
            time_zone: None,
        });
        let server = server.map_err(failed)?;
        let (session, version, data) = (None, String::new(), data.to_owned());
        Ok(Self { server, session, version, recovers: options.recovers, data })
    }

    /// Starts the server again after it has ended.
    ///
    /// # Errors
    /// Any error of [`Server::start`].
    pub(crate) async fn restart(&mut self, cancel: &CancelToken) -> Result<(), BackupError> {
        tokio::task::block_in_place(|| self.server.restart()).map_err(failed)?;
        self.answers(cancel).await
    }

    /// Waits until the server answers. One that fails where it had too little room to start fails for that, unless it
    /// names another cause.
    pub(crate) async fn answers(&mut self, cancel: &CancelToken) -> Result<(), BackupError> {
        let Err(error) = self.wait(cancel).await else { return Ok(()) };
        let next = if self.recovers { ANEW } else { AGAIN };
        Err(match names_other_cause(&self.cause()) {
            true => error,
            false => needs_room(error, free_bytes(&self.data), &self.data, next),
        })
    }

    /// Where the server is, and its account.
    pub(crate) fn access(&self) -> &Access {
        self.server.access()
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns why the server could write anywhere; `None` if it could not.
    pub(crate) fn unconfined(&self) -> Option<&'static str> {
        self.server.unconfined()
    }

    /// Returns whether the server has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.server.has_ended()
    }

    /// # Errors
    /// [`BackupError::Program`] if the server was killed from outside, most often for lack of memory: nothing that it or
    /// its end has told says anything about the data.
    pub(crate) fn check_not_killed(&mut self) -> Result<(), BackupError> {
        match self.server.was_killed() {
            true => Err(of_server(format!("{KILLED}: what it found proves nothing"))),
            false => Ok(()),
        }
    }

    /// Lines of the server's log that tell why it ended.
    pub(crate) fn cause(&self) -> String {
        self.server.cause()
    }

    /// The last lines of the server's log.
    pub(crate) fn last_lines(&self) -> String {
        self.server.last_lines()
    }

    /// Waits until the server accepts a connection, which is kept.
    async fn wait(&mut self, cancel: &CancelToken) -> Result<(), BackupError> {
        let limit = if self.recovers { RECOVERY } else { START_LIMIT };
        let begin = Instant::now();
        let mut full_since = None;
        loop {
            if let Some(client) =
                tokio::task::block_in_place(|| self.server.poll()).map_err(failed)?
            {
                self.version = client.greeting().version.clone();
                self.session = Some(Session::of(client).map_err(|error| unanswered(&error))?);
                return Ok(());
            }
            full_since = match has_room(&self.data) {
                true => None,
                false => full_since.or(Some(Instant::now())),
            };
            let is_stuck = full_since.is_some_and(|since| since.elapsed() > WITHOUT_ROOM);
            // A recovery that is ended has to begin anew with another copy, and may need no room at all.
            let may_end = !self.recovers || says_full(&self.last_lines());
            if (is_stuck && may_end) || begin.elapsed() > limit {
                return Err(unanswered(&self.cause()));
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                signal = cancel.cancelled() => return Err(BackupError::Interrupted(signal)),
            }
        }
    }

    /// Runs a statement; returns its rows, of `N` columns without NULL. The inner error is the
    /// server's, or says that the connection broke: then the server has ended, or it can be asked
    /// again.
    pub(crate) async fn rows<const N: usize>(
        &mut self,
        statement: &str,
        cancel: &CancelToken,
    ) -> Result<Result<Vec<[String; N]>, String>, BackupError> {
        let outcome = match self.session(cancel).await {
            // Most are lists of tables.
            Ok(session) => session.list(statement, cancel).await,
            Err(error) => Err(error),
        };
        let rows = outcome.and_then(|rows| {
            Ok(rows.iter().map(Row::texts).collect::<Result<_, xb_mysql::Error>>()?)
        });
        self.await_end(rows, cancel).await
    }

    /// Like [`rows`](Self::rows), but drops the rows.
    pub(crate) async fn run(
        &mut self,
        statements: &str,
        cancel: &CancelToken,
    ) -> Result<Result<(), String>, BackupError> {
        let outcome = match self.session(cancel).await {
            Ok(session) => session.run(statements, cancel).await,
            Err(error) => Err(error),
        };
        self.await_end(outcome, cancel).await
    }

    /// Like [`run`](Self::run), but in a session of its own, where what statements before have set does not
    /// count, and returns the first `limit` rows.
    pub(crate) async fn ask_anew(
        &mut self,
        statements: &str,
        limit: usize,
        cancel: &CancelToken,
    ) -> Result<Result<Vec<Row>, String>, BackupError> {
        self.session = None;
        let outcome = match self.session(cancel).await {
            Ok(session) => session.first_rows(statements, limit, cancel).await,
            Err(error) => Err(error),
        };
        self.await_end(outcome, cancel).await
    }

    async fn session(&mut self, cancel: &CancelToken) -> Result<&mut Session, SessionError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::open(self.server.access(), LOGIN, cancel).await?,
        };
        Ok(self.session.insert(session))
    }

    /// After an error of the connection, gives the server time to end, because that is the usual
    /// reason.
    async fn await_end<T>(
        &mut self,
        outcome: Result<T, SessionError>,
        cancel: &CancelToken,
    ) -> Result<Result<T, String>, BackupError> {
        let error = match outcome {
            Ok(done) => return Ok(Ok(done)),
            Err(SessionError::Own(error)) => return Err(error),
            Err(SessionError::Server(error)) => error,
        };
        if !matches!(error, xb_mysql::Error::Server(_) | xb_mysql::Error::Unexpected) {
            self.session = None;
            let begin = Instant::now();
            while !self.has_ended() && begin.elapsed() < END_WAIT {
                match self.session(cancel).await {
                    Ok(_) => break,
                    Err(SessionError::Own(error)) => return Err(error),
                    Err(SessionError::Server(_)) => tokio::time::sleep(PAUSE).await,
                }
            }
        }
        Ok(Err(error.to_string()))
    }

    /// Shuts the server down in an orderly way.
    ///
    /// # Errors
    /// Why it did not cancel cleanly.
    pub(crate) fn end(self, cancel: &CancelToken) -> Result<(), String> {
        drop(self.session);
        let stopped = self.server.stop(|| cancel.reason().is_some());
        stopped.map_err(|error| error.to_string())
    }
}

fn failed(error: ServerError) -> BackupError {
    match error {
        ServerError::TooDeep(scratch) => too_deep(&scratch),
        ServerError::Scratch { path, source } => {
            BackupError::Restore { target: path.display().to_string(), what: source.to_string() }
        }
        ServerError::Start { program, source } => BackupError::NotStarted {
            program: program.display().to_string(),
            what: source.to_string(),
        },
        ServerError::Wait(source) => {
            BackupError::System { what: "cannot wait for the server", source }
        }
        error => of_server(error.to_string()),
    }
}

/// Words by which a server names a cause that more room does not remove.
const OTHER_CAUSES: [&str; 14] = [
    "unknown variable",
    "unknown option",
    "ambiguous option",
    "Unknown suffix",
    "error while setting value",
    "error while loading shared libraries",
    "Can't open shared library",
    "Permission denied",
    "orrupt",
    "checksum",
    "Unsupported redo log",
    "upgrade after a crash is not supported",
    "Invalid flags",
    "cannot be decrypted",
];

/// Returns whether a server's messages name such a cause, and no full disk.
fn names_other_cause(messages: &str) -> bool {
    !says_full(messages) && OTHER_CAUSES.iter().any(|words| messages.contains(words))
}

/// Says that a server which did not start may have had too little room: its messages do not.
fn needs_room(
    error: BackupError,
    free: Option<u64>,
    data: &Path,
    next: &'static str,
) -> BackupError {
    let is_of_server = matches!(error, BackupError::Program { .. });
    match free.filter(|free| is_of_server && *free < START_ROOM) {
        None => error,
        Some(free) => BackupError::FullDisk {
            dir: data.display().to_string(),
            what: format!(
                "a server needs about 110 MiB for files of its own, and only {free} bytes are free; {error}"
            ),
            next,
        },
    }
}

fn unanswered(cause: &dyn std::fmt::Display) -> BackupError {
    of_server(format!("did not answer: {cause}"))
}

fn of_server(what: String) -> BackupError {
    BackupError::Program { program: "the server on the restored backup".to_owned(), what }
}

/// Copies the files that the server needs into its data directory.
fn bring(files: &[PathBuf], data: &Path) -> Result<(), BackupError> {
    for file in files {
        let copied = file.file_name().map_or(Ok(0), |name| std::fs::copy(file, data.join(name)));
        copied.map_err(|error| BackupError::Restore {
            target: file.display().to_string(),
            what: format!("it cannot be copied into the server's data directory: {error}"),
        })?;
    }
    Ok(())
}

/// Removes `.isl` files: they name tablespaces elsewhere, possibly those of a running server.
pub(crate) fn remove_links(data: &Path) -> std::io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_fails_for_lack_of_room_only_where_room_is_short_and_nothing_else_is_named() {
        let next_to = |free| {
            let error = unanswered(&"exit status 1");
            needs_room(error, free, Path::new("/scratch/data"), AGAIN)
        };
        for short in [0, 1 << 20, 127 << 20] {
            assert!(matches!(next_to(Some(short)), BackupError::FullDisk { .. }), "{short}");
        }
        for enough in [Some(128 << 20), Some(u64::MAX), None] {
            assert!(matches!(next_to(enough), BackupError::Program { .. }), "{enough:?}");
        }
        let interrupted = needs_room(BackupError::Bug("x"), Some(1), Path::new("/"), AGAIN);
        assert!(matches!(interrupted, BackupError::Bug(_)));
        for other in [
            "[ERROR] /usr/sbin/mariadbd: unknown variable 'no-such-option=1'",
            "[ERROR] InnoDB: Database page corruption on disk or a failed read of file './ibdata1'",
        ] {
            assert!(names_other_cause(other), "{other}");
            assert!(!names_other_cause(&format!("{other}; write failed with error 28")));
        }
        for silent in ["", "[ERROR] Aborting", "[ERROR] InnoDB: Cannot create ./ibtmp1"] {
            assert!(!names_other_cause(silent), "{silent}");
        }
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
