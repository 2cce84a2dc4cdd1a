//! Starts a private server on a restored backup.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use xb_process::{
    Program, Running, cause_in_log, end_of_log, how_it_ended, private_server_args, socket_in,
};

use crate::cancel::CancelToken;
use crate::child::{self, OnLine};
use crate::error::BackupError;
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
const CLIENTS: [&str; 2] = ["mariadb", "mysql"];
/// Settings in a backup's own option file that describe its files, and that a server needs.
const TAKEN_OVER: [&str; 4] = [
    "innodb_page_size",
    "innodb_data_file_path",
    "innodb_undo_tablespaces",
    "innodb_checksum_algorithm",
];
/// Maximum length of a server's error message, in bytes.
const LAST_WORDS: usize = 2000;
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
    /// Checks that a server and its client are installed and can run with files in `scratch`.
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
            Some(program) => child::find(&[program])?,
            None => child::find(&SERVERS.map(Path::new))?,
        }
        child::find(&CLIENTS.map(Path::new))
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
    socket: PathBuf,
    client: PathBuf,
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
        cancel: &CancelToken,
    ) -> Result<Self, BackupError> {
        let Some(socket) = socket_in(scratch) else { return Err(too_deep(scratch)) };
        bring(&options.files, data)?;
        let log = scratch.join("server.log");
        let args = arguments(data, scratch, options)?;
        let child = spawn(options.program.as_deref(), &args, &log)?;
        let client = PathBuf::from(CLIENTS[0]);
        let program = options.program.clone();
        let version = String::new();
        let mut server = Self { child, program, args, log, socket, client, version };
        let started = server.wait(cancel).await;
        server.version = match (started, server.names_in_lower_case()) {
            (Err(BackupError::Program { .. }), Some(value)) => {
                let option = format!("--lower-case-table-names={value}");
                server.args.push(option.into());
                server.restart(cancel).await?;
                return Ok(server);
            }
            (started, _) => started?,
        };
        Ok(server)
    }

    /// Starts the server again after it has ended.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub(super) async fn restart(&mut self, cancel: &CancelToken) -> Result<(), BackupError> {
        tokio::task::block_in_place(|| self.child.end(Signal::TERM.as_raw()));
        self.child = spawn(self.program.as_deref(), &self.args, &self.log)?;
        self.version = self.wait(cancel).await?;
        Ok(())
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

    async fn wait(&mut self, cancel: &CancelToken) -> Result<String, BackupError> {
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
            if begin.elapsed() > PATIENCE {
                return Err(gave_up("did not answer".to_owned()));
            }
            match self.ask("SELECT VERSION()", &silent(), cancel).await {
                Ok(version) => return Ok(version.trim().to_owned()),
                Err(BackupError::Program { .. }) => {}
                // Not installed under this name; the next attempt uses the other name.
                Err(BackupError::NotStarted { .. }) if self.client == Path::new(CLIENTS[0]) => {
                    self.client = PathBuf::from(CLIENTS[1]);
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                signal = cancel.asked() => return Err(BackupError::Interrupted(signal)),
            }
        }
    }

    /// Runs statements; returns rows with the client's escapes. The inner error is the server's error
    /// message.
    pub(super) async fn sql(
        &self,
        statements: &str,
        cancel: &CancelToken,
    ) -> Result<Result<String, String>, BackupError> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let talk: OnLine = {
            let heard = Arc::clone(&heard);
            Arc::new(move |line: &[u8]| {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                if heard.len() < LAST_WORDS && line.starts_with(b"ERROR") {
                    heard.extend_from_slice(line);
                }
            })
        };
        match self.ask(statements, &talk, cancel).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(BackupError::Program { what, .. }) => {
                let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Err(if heard.is_empty() {
                    what
                } else {
                    String::from_utf8_lossy(&heard).into_owned()
                }))
            }
            Err(error) => Err(error),
        }
    }

    async fn ask(
        &self,
        statements: &str,
        talk: &OnLine,
        cancel: &CancelToken,
    ) -> Result<String, BackupError> {
        let args = [
            OsString::from("--no-defaults"),
            with("--socket=", &self.socket),
            "--user=root".into(),
            "--batch".into(),
            "--skip-column-names".into(),
            // Table names must not depend on the locale of this host.
            "--default-character-set=utf8mb4".into(),
            format!("--execute={statements}").into(),
        ];
        child::ask(&self.client, &args, talk, cancel).await
    }

    /// Shuts the server down in an orderly way.
    pub(super) fn end(&mut self) {
        self.child.end(Signal::TERM.as_raw());
    }
}

/// Discards the output of the program that repeatedly checks whether the server answers.
fn silent() -> OnLine {
    Arc::new(|_| {})
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
