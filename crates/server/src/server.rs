//! A private server, from its start to the proof of its end.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use xb_mysql::{Access, Account, Client, Error, Target, Timeouts};
use xb_process::{Memory, Program, Running, can_confine, how_it_ended};

use crate::account;
use crate::log::{
    BinlogPosition, cause_in_log, end_of_log, has_closed_all, log_from, recovered_position,
    says_shut_down,
};
use crate::origin::origin_settings;
use crate::private::{private_args, small_buffers, socket_in, with};

/// Time limit of each step of a login. A caller that has waited in vain tries again.
const LOGIN: Duration = Duration::from_secs(5);
/// Time limit of an orderly stop: all changed pages are written.
const STOP: Duration = Duration::from_secs(600);
/// Interval at which the server is observed while it stops.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of the log's last lines that [`Server::last_lines`] returns.
const LAST_LINES: usize = 40;

/// The server to start, and its data directory.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Names or paths of the program. The first that can be started is.
    pub programs: Vec<PathBuf>,
    /// The data directory. It must be below `scratch` for a confined server to start.
    pub data: PathBuf,
    /// An existing directory for the socket, the log and temporary files, for this server alone. It
    /// becomes inaccessible to other users.
    pub scratch: PathBuf,
    /// The login.
    pub login: Login,
    /// Further options, of the operator. They come last, and win.
    pub options: Vec<OsString>,
    /// Existing files or directories that the server may write to besides `scratch`.
    pub writable: Vec<PathBuf>,
    /// File with the time zone in which the server runs. If not given: that of this host.
    pub time_zone: Option<PathBuf>,
}

/// Login to a private server. The passwords in its data are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// The server does not read its accounts: its socket gives administrator rights without a password.
    /// Statements about accounts, events and loadable functions fail.
    WithoutAccounts,
    /// The server creates an account for us when it starts, with a random name and password.
    /// [`Server::drop_account`] removes it from the data.
    OwnAccount,
}

/// Reason why a private server does not run, or did not stop as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The path of the scratch directory is too long for a socket.
    #[error("{} is too long a path for a socket", .0.display())]
    TooDeep(PathBuf),
    /// The scratch directory cannot be used.
    #[error("{}: {source}", path.display())]
    Scratch {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No program could be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The first of the programs.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The server ended, or was killed.
    #[error("{how}: {cause}")]
    Ended {
        /// Description of its end.
        how: String,
        /// Lines of its log that tell why.
        cause: String,
    },
    /// A system call failed.
    #[error("cannot wait for the server: {0}")]
    Wait(#[source] io::Error),
}

/// A running server; it is killed when dropped.
#[derive(Debug)]
pub struct Server {
    running: Running,
    setup: Setup,
    args: Vec<OsString>,
    log: PathBuf,
    /// Offset at which this run's part of the log begins.
    log_start: u64,
    access: Access,
    unconfined: Option<&'static str>,
}

impl Server {
    /// Starts a server on a data directory.
    ///
    /// # Errors
    /// [`ServerError::TooDeep`], [`ServerError::Scratch`], [`ServerError::Start`]. What the server
    /// itself does not like is told by [`Server::poll`].
    pub fn start(setup: Setup) -> Result<Self, ServerError> {
        let scratch = &setup.scratch;
        let socket = socket_in(scratch).ok_or_else(|| ServerError::TooDeep(scratch.clone()))?;
        let failed = |source| ServerError::Scratch { path: scratch.clone(), source };
        std::fs::set_permissions(scratch, PermissionsExt::from_mode(0o700)).map_err(failed)?;
        std::fs::create_dir_all(scratch.join("tmp")).map_err(failed)?;
        let mut args = vec![OsString::from("--no-defaults"), with("--datadir=", &setup.data)];
        let account = match setup.login {
            Login::WithoutAccounts => {
                args.push("--skip-grant-tables".into());
                Account { user: b"root".to_vec(), ..Account::default() }
            }
            Login::OwnAccount => {
                let file = scratch.join("init.sql");
                let made = account::make(&file);
                args.push(with("--init-file=", &file));
                made.map_err(|source| ServerError::Scratch { path: file, source })?
            }
        };
        args.extend(private_args(scratch));
        args.extend(small_buffers(Memory::now().map(|memory| memory.available)));
        args.extend(origin_settings(&setup.data));
        args.extend(setup.options.iter().cloned());
        let log = scratch.join("server.log");
        let access = Access { target: Target::Socket(socket), account };
        let unconfined = can_confine().err();
        let (running, log_start) = spawn(&setup, &args, &log, unconfined.is_none())?;
        Ok(Self { running, setup, args, log, log_start, access, unconfined })
    }

    /// Starts the server again. If it still runs, it is ended first.
    ///
    /// # Errors
    /// Any error of [`Server::start`].
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.running.end(Signal::TERM.as_raw());
        (self.running, self.log_start) =
            spawn(&self.setup, &self.args, &self.log, self.unconfined.is_none())?;
        Ok(())
    }

    /// Returns why the server is not confined, and could write anywhere that this user can; `None` if
    /// it can write below its scratch directory only.
    #[must_use]
    pub fn unconfined(&self) -> Option<&'static str> {
        self.unconfined
    }

    /// Address of the server, and its account.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Returns a connection if the server is ready; `None` if it is still starting: call this again
    /// after a pause. A server of MySQL that ends because it needs another
    /// `lower_case_table_names` is started again with the value that its data names.
    ///
    /// # Errors
    /// [`ServerError::Ended`], [`ServerError::Wait`].
    pub fn poll(&mut self) -> Result<Option<Client>, ServerError> {
        if let Some(status) = self.running.try_wait().map_err(ServerError::Wait)? {
            match self.names_in_lower_case() {
                Some(option) if !self.args.contains(&option) => self.args.push(option),
                _ => return Err(self.ended(how_it_ended(status))),
            }
            self.restart()?;
            return Ok(None);
        }
        let timeouts = Timeouts { login: LOGIN, reply: None };
        Ok(Client::connect(&self.access.target, &self.access.account, timeouts).ok())
    }

    /// Removes our own account from the data, if there is one. The connection can still be used.
    ///
    /// # Errors
    /// Any error of the server and of the connection.
    pub fn drop_account(&self, client: &mut Client) -> Result<(), Error> {
        match self.setup.login {
            Login::WithoutAccounts => Ok(()),
            Login::OwnAccount => client.run(account::drop_statement(&self.access.account)),
        }
    }

    /// Returns whether the server has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.running.try_wait(), Ok(None))
    }

    /// Returns whether the server has ended by a signal that no program gives itself: the system does that to one of
    /// those that fill its memory.
    pub fn was_killed(&mut self) -> bool {
        let status = self.running.try_wait().ok().flatten();
        status.is_some_and(|status| status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// The position in the binary log of the last transaction in the data, if recovery reported
    /// one.
    #[must_use]
    pub fn recovered(&self) -> Option<BinlogPosition> {
        recovered_position(&log_from(&self.log, self.log_start))
    }

    /// Lines of the server's log that tell why it ended.
    #[must_use]
    pub fn cause(&self) -> String {
        cause_in_log(&end_of_log(&self.log))
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn last_lines(&self) -> String {
        let text = end_of_log(&self.log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Shuts the server down, and proves that its data is whole without recovery: its exit status is
    /// 0, and the end of its log says that the shutdown is complete; or it has crashed after it said that. It is killed
    /// after 10 minutes, or as soon as `is_cancelled`.
    ///
    /// # Errors
    /// [`ServerError::Ended`] if any of that is missing; [`ServerError::Wait`].
    pub fn stop(mut self, is_cancelled: impl Fn() -> bool) -> Result<(), ServerError> {
        let begin = Instant::now();
        self.running.signaller().signal(Signal::TERM);
        let status = loop {
            if let Some(status) = self.running.try_wait().map_err(ServerError::Wait)? {
                break status;
            }
            if is_cancelled() || begin.elapsed() > STOP {
                self.running.kill();
                return Err(self.ended("did not shut down in time, and was killed".to_owned()));
            }
            std::thread::sleep(PAUSE);
        };
        let log = log_from(&self.log, self.log_start);
        // A thread of MariaDB's that cleans up in the background may crash once all is closed.
        let is_late_crash = status.signal().is_some() && has_closed_all(&log);
        if !status.success() && !is_late_crash {
            return Err(self.ended(how_it_ended(status)));
        }
        if !is_late_crash && !says_shut_down(&log) {
            return Err(self.ended("does not report that its shutdown is complete".to_owned()));
        }
        Ok(())
    }

    fn ended(&self, how: String) -> ServerError {
        ServerError::Ended { how, cause: self.cause() }
    }

    /// The option for the `lower_case_table_names` with which the data was made, if the server ended
    /// because it differs. MySQL keeps it in its dictionary; no file of a backup names it.
    fn names_in_lower_case(&self) -> Option<OsString> {
        let text = log_from(&self.log, self.log_start);
        let line = text.lines().rfind(|line| line.contains("Different lower_case_table_names"))?;
        let (_, value) = line.rsplit_once("data dictionary ('")?;
        let value = value.chars().next().filter(|value| ('0'..='2').contains(value))?;
        Some(format!("--lower-case-table-names={value}").into())
    }
}

/// Starts the first program that can be; also returns the length of the log before.
fn spawn(
    setup: &Setup,
    args: &[OsString],
    log: &Path,
    confined: bool,
) -> Result<(Running, u64), ServerError> {
    let open = || -> io::Result<File> { File::options().create(true).append(true).open(log) };
    let failed = |source| ServerError::Scratch { path: log.to_owned(), source };
    let log_start = open().and_then(|file| file.metadata()).map_err(failed)?.len();
    let mut first = None;
    for name in &setup.programs {
        let (stdout, stderr) = (open().map_err(failed)?, open().map_err(failed)?);
        let mut program = Program::new(name).args(args).stdout(stdout).stderr(stderr);
        if let Some(zone) = &setup.time_zone {
            // The colon: a path, and no rule.
            program = program.env("TZ", with(":", zone));
        }
        if confined {
            program =
                program.writing_only_below([&setup.scratch]).writing_only_below(&setup.writable);
        }
        match program.start() {
            Ok(running) => return Ok((running, log_start)),
            Err(source) => {
                let program = name.clone();
                first.get_or_insert(ServerError::Start { program, source });
            }
        }
    }
    let none =
        || ServerError::Start { program: PathBuf::new(), source: io::ErrorKind::NotFound.into() };
    Err(first.unwrap_or_else(none))
}
