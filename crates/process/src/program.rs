//! What to start, and how.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::guardian;
use crate::running::Running;

/// Which process group a program belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// One of its own, which ends with it.
    Own,
    /// Ours.
    Ours,
}

/// A program to be started, without a shell: in a process group of its own, behind a guardian where
/// this process can be one, with nothing on its standard input, and the other two streams discarded.
///
/// `Debug` shows the program alone: arguments and environment may hold secrets.
pub struct Program {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
    group: Group,
    is_guarded: bool,
}

impl Program {
    /// A program by its path, or by its name, which is looked for on PATH.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: Stdio::null(),
            stdout: Stdio::null(),
            stderr: Stdio::null(),
            group: Group::Own,
            is_guarded: true,
        }
    }

    /// Adds arguments. No secrets: everybody can read them.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Keeps a variable of our environment from it.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Sets its standard input.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Sets its standard output.
    #[must_use]
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = stdout.into();
        self
    }

    /// Sets its standard error.
    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = stderr.into();
        self
    }

    /// Leaves it in our process group, so that the terminal's signals reach it and it may ask
    /// questions there.
    #[must_use]
    pub fn in_our_group(mut self) -> Self {
        self.group = Group::Ours;
        self
    }

    /// The same, but only where this process has a terminal.
    #[must_use]
    pub fn in_our_group_at_a_terminal(self) -> Self {
        if std::fs::File::open("/dev/tty").is_ok() { self.in_our_group() } else { self }
    }

    /// Starts it without a guardian: for one that ends by itself when nobody takes its output.
    #[must_use]
    pub fn unguarded(mut self) -> Self {
        self.is_guarded = false;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When there is no such program, or the system has no process for it. Where a guardian finds out
    /// later that the program cannot run, it ends with [`NOT_STARTED`](crate::NOT_STARTED) and says
    /// why on its standard error.
    pub fn start(self) -> io::Result<Running> {
        let guarded = self.is_guarded && guardian::is_available();
        if guarded {
            // Else its name would be known to the guardian alone.
            find(&self.program)?;
        }
        let start = |mut command: Command| {
            command.args(&self.args).stdin(self.stdin).stdout(self.stdout).stderr(self.stderr);
            for (name, value) in &self.env {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            if self.group == Group::Own {
                command.process_group(0);
            }
            command.spawn()
        };
        let (child, line) = if guarded {
            let (child, line) = guardian::start_guarded(&self.program, start)?;
            (child, Some(line))
        } else {
            (start(Command::new(&self.program))?, None)
        };
        Ok(Running::new(child, self.group == Group::Own, line))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Looks for a program as the system does when it is to be run.
fn find(program: &OsStr) -> io::Result<()> {
    if program.as_bytes().contains(&b'/') {
        return Ok(access(Path::new(program), Access::EXEC_OK)?);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut outcome = Err(rustix::io::Errno::NOENT.into());
    for folder in std::env::split_paths(&path) {
        match access(folder.join(program), Access::EXEC_OK) {
            Ok(()) => return Ok(()),
            // There, but not for us: said if there is none that is.
            Err(rustix::io::Errno::ACCESS) => outcome = Err(rustix::io::Errno::ACCESS.into()),
            Err(_) => {}
        }
    }
    outcome
}
