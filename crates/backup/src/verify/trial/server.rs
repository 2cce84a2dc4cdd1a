//! Starts a private server on a restored backup.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use xb_mysql::{Access, Account, Row, Target};
use xb_process::{
    Program, Running, cause_in_log, end_of_log, how_it_ended, private_server_args, socket_in,
};

use crate::cancel::CancelToken;
use crate::child;
use crate::error::BackupError;
use crate::server::session::{Session, SessionError};
use crate::small_file::read_small;

/// Time limit for a server to answer. A prepared backup needs no recovery, but a cold disk is slow.
const PATIENCE: Duration = Duration::from_secs(600);
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
/// Settings in a backup's own option file that describe its files, and that a server needs.
const TAKEN_OVER: [&str; 4] = [
    "innodb_page_size",
    "innodb_data_file_path",
    "innodb_undo_tablespaces",
    "innodb_checksum_algorithm",
];
/// Time limit of each step of a login.
const LOGIN: Duration = Duration::from_secs(60);
/// Time for a server that has closed a connection to end.
const LAST_BREATH: Duration = Duration::from_secs(60);
/// Number of the log's last lines that are shown after an abort.
const LAST_LINES: usize = 40;

/// Options for starting a server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The program; if not given, it is searched for by its usual names.
    pub program: Option<PathBuf>,
    /// Further options, such as those of a keyring plugin. They come last.
    pub options: Vec<String>,
    /// Files that the server needs in its data directory, such as `mysqld.my` and the settings of a
    /// keyring component.
    pub files: Vec<PathBuf>,
}

impl ServerOptions {
    /// Checks that a server is installed and can run with files in `scratch`.
    pub(super) fn look(&self, scratch: &Path) -> Result<(), BackupError> {
        if socket_in(scratch).is_none() {
            return Err(too_deep(scratch));
        }
        if let Some(missing) = self.files.iter().find(|file| !file.is_file()) {
            return Err(BackupError::Restore {
                target: missing.display().to_string(),
                what: "there is no such file for the server's data directory".to_owned(),
            });
        }
        match &self.program {
            Some(program) => child::find(&[program]),
            None => child::find(&SERVERS.map(Path::new)),
        }
    }
}

fn too_deep(scratch: &Path) -> BackupError {
    BackupError::Restore {
        target: scratch.display().to_string(),
        what: "the path is too long for a socket: choose a shorter directory with --scratch-dir"
            .to_owned(),
    }
}

/// A running server; it is ended when dropped.
pub(super) struct Server {
    child: Running,
    program: Option<PathBuf>,
    args: Vec<OsString>,
    log: PathBuf,
    access: Access,
    session: Option<Session>,
    version: String,
}

impl Server {
    /// Starts a server on `data` and waits until it answers.
    ///
    /// # Errors
    /// [`BackupError::Program`] with the end of the server's log if it fails.
    pub(super) async fn start(
        data: &Path,
        scratch: &Path,
        options: &ServerOptions,
        stop: &mut CancelToken,
    ) -> Result<Self, BackupError> {
        let Some(socket) = socket_in(scratch) else { return Err(too_deep(scratch)) };
        bring(&options.files, data)?;
        let log = scratch.join("server.log");
        let args = arguments(data, scratch, options)?;
        let child = spawn(options.program.as_deref(), &args, &log)?;
        let account = Account { user: b"root".to_vec(), ..Account::default() };
        let access = Access { target: Target::Socket(socket), account };
        let program = options.program.clone();
        let (session, version) = (None, String::new());
        let mut server = Self { child, program, args, log, access, session, version };
        match (server.wait(stop).await, server.names_in_lower_case()) {
            (Err(BackupError::Program { .. }), Some(value)) => {
                let option = format!("--lower-case-table-names={value}");
                server.args.push(option.into());
                server.restart(stop).await?;
            }
            (started, _) => started?,
        }
        Ok(server)
    }

    /// Starts the server again after it has ended.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub(super) async fn restart(&mut self, stop: &mut CancelToken) -> Result<(), BackupError> {
        tokio::task::block_in_place(|| self.child.end(Signal::TERM.as_raw()));
        self.child = spawn(self.program.as_deref(), &self.args, &self.log)?;
        self.wait(stop).await
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Whether the server has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Lines of the server's log that tell why it ended.
    pub(super) fn cause(&self) -> String {
        cause_in_log(&end_of_log(&self.log))
    }

    /// The last lines of the server's log.
    pub(super) fn last_lines(&self) -> String {
        let text = end_of_log(&self.log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// The value of `lower_case_table_names` with which the data was made, if the server ended
    /// because it differs. MySQL keeps it in its dictionary; no file of a backup names it.
    fn names_in_lower_case(&self) -> Option<String> {
        let text = end_of_log(&self.log);
        let line = text.lines().rfind(|line| line.contains("Different lower_case_table_names"))?;
        let (_, value) = line.rsplit_once("data dictionary ('")?;
        value.chars().next().filter(|value| ('0'..='2').contains(value)).map(String::from)
    }

    /// Waits until the server accepts a connection, which is kept.
    async fn wait(&mut self, stop: &mut CancelToken) -> Result<(), BackupError> {
        let begin = Instant::now();
        let log = self.log.clone();
        let gave_up = |what: String| BackupError::Program {
            program: "the server on the restored backup".to_owned(),
            what: format!("{what}: {}", cause_in_log(&end_of_log(&log))),
        };
        loop {
            let broken =
                |source| BackupError::System { what: "cannot wait for the server", source };
            if let Some(status) = self.child.try_wait().map_err(broken)? {
                return Err(gave_up(how_it_ended(status)));
            }
            match self.connect(stop).await {
                Ok(()) => return Ok(()),
                Err(SessionError::Own(error)) => return Err(error),
                Err(SessionError::Server(error)) if begin.elapsed() > PATIENCE => {
                    return Err(gave_up(format!("did not answer ({error})")));
                }
                Err(SessionError::Server(_)) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
            }
        }
    }

    async fn connect(&mut self, stop: &mut CancelToken) -> Result<(), SessionError> {
        self.session = None;
        let mut session = Session::open(&self.access, LOGIN, stop).await?;
        for row in session.rows("SELECT VERSION()", stop).await? {
            [self.version] = row.texts()?;
        }
        self.session = Some(session);
        Ok(())
    }

    /// Runs a statement; returns its rows, of `N` columns without NULL. The inner error is the
    /// server's, or says that the connection broke: then the server has ended, or it can be asked
    /// again.
    pub(super) async fn rows<const N: usize>(
        &mut self,
        statement: &str,
        stop: &mut CancelToken,
    ) -> Result<Result<Vec<[String; N]>, String>, BackupError> {
        let outcome = match self.session(stop).await {
            Ok(session) => session.rows(statement, stop).await,
            Err(error) => Err(error),
        };
        let rows = outcome.and_then(|rows| {
            Ok(rows.iter().map(Row::texts).collect::<Result<_, xb_mysql::Error>>()?)
        });
        self.settle(rows, stop).await
    }

    /// Like [`rows`](Self::rows), but drops the rows.
    pub(super) async fn run(
        &mut self,
        statements: &str,
        stop: &mut CancelToken,
    ) -> Result<Result<(), String>, BackupError> {
        let outcome = match self.session(stop).await {
            Ok(session) => session.run(statements, stop).await,
            Err(error) => Err(error),
        };
        self.settle(outcome, stop).await
    }

    /// Like [`run`](Self::run), in a session of its own: what statements before have set there does
    /// not count.
    pub(super) async fn run_anew(
        &mut self,
        statements: &str,
        stop: &mut CancelToken,
    ) -> Result<Result<(), String>, BackupError> {
        self.session = None;
        self.run(statements, stop).await
    }

    async fn session(&mut self, stop: &mut CancelToken) -> Result<&mut Session, SessionError> {
        if self.session.is_none() {
            self.connect(stop).await?;
        }
        Ok(self.session.as_mut().ok_or(xb_mysql::Error::Unusable)?)
    }

    /// After an error of the connection, gives the server time to end, because that is the usual
    /// reason.
    async fn settle<T>(
        &mut self,
        outcome: Result<T, SessionError>,
        stop: &mut CancelToken,
    ) -> Result<Result<T, String>, BackupError> {
        let error = match outcome {
            Ok(done) => return Ok(Ok(done)),
            Err(SessionError::Own(error)) => return Err(error),
            Err(SessionError::Server(error)) => error,
        };
        if !matches!(error, xb_mysql::Error::Server(_) | xb_mysql::Error::Unexpected) {
            self.session = None;
            let begin = Instant::now();
            while !self.has_ended() && begin.elapsed() < LAST_BREATH {
                match self.connect(stop).await {
                    Ok(()) => break,
                    Err(SessionError::Own(error)) => return Err(error),
                    Err(SessionError::Server(_)) => tokio::time::sleep(PAUSE).await,
                }
            }
        }
        Ok(Err(error.to_string()))
    }

    /// Shuts the server down in an orderly way.
    pub(super) fn end(&mut self) {
        self.child.end(Signal::TERM.as_raw());
    }
}

fn with(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(option);
    text.push(path);
    text
}

fn arguments(
    data: &Path,
    scratch: &Path,
    options: &ServerOptions,
) -> Result<Vec<OsString>, BackupError> {
    let tmp = scratch.join("tmp");
    std::fs::create_dir_all(&tmp).map_err(|error| BackupError::Restore {
        target: tmp.display().to_string(),
        what: error.to_string(),
    })?;
    let mut args = vec![
        OsString::from("--no-defaults"),
        with("--datadir=", data),
        // The passwords in the backup are not known here.
        "--skip-grant-tables".into(),
    ];
    args.extend(private_server_args(scratch));
    args.extend(own_options(data));
    args.extend(options.options.iter().map(OsString::from));
    Ok(args)
}

/// Options that the backup states for its own files.
fn own_options(data: &Path) -> Vec<OsString> {
    let text = read_small(&data.join("backup-my.cnf")).unwrap_or_default();
    let plain =
        |value: &str| value.bytes().all(|b| b.is_ascii_alphanumeric() || b":;._-".contains(&b));
    let options = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        let taken = TAKEN_OVER.contains(&key) && plain(value);
        taken.then(|| OsString::from(format!("--loose-{key}={value}")))
    });
    options.collect()
}

fn spawn(program: Option<&Path>, args: &[OsString], log: &Path) -> Result<Running, BackupError> {
    let open = || {
        File::options().create(true).append(true).open(log).map_err(|error| BackupError::Restore {
            target: log.display().to_string(),
            what: error.to_string(),
        })
    };
    let usual = SERVERS.map(Path::new);
    let programs = program.as_ref().map_or(&usual[..], std::slice::from_ref);
    let mut missing = None;
    for program in programs {
        let spawned = Program::new(program).args(args).stdout(open()?).stderr(open()?).start();
        match spawned {
            Ok(child) => return Ok(child),
            Err(error) => {
                missing.get_or_insert(BackupError::NotStarted {
                    program: program.display().to_string(),
                    what: error.to_string(),
                });
            }
        }
    }
    Err(missing.unwrap_or(BackupError::Bug("found no server to start")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_how_files_are_made_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("backup-my.cnf"),
            "# from the backup\n[mysqld]\ninnodb_page_size=4096\ninnodb_data_file_path=ibdata1:12M;ibdata2:12M:autoextend\nredo_log_version=1\nplugin_load=evil.so\ninnodb_undo_tablespaces=3 --init-file=/x\n",
        )
        .unwrap();
        assert_eq!(
            own_options(dir.path()),
            [
                "--loose-innodb_page_size=4096",
                "--loose-innodb_data_file_path=ibdata1:12M;ibdata2:12M:autoextend"
            ]
        );
    }
}
