//! Description of a program to start.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::environment::secrets;
use crate::guardian::start_guarded;
use crate::line::is_available;
use crate::open_files::RaisedLimit;
use crate::running::Running;

/// Which process group a program belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// A new group for the program, killed when the program ends.
    Own,
    /// The group of this process.
    Ours,
}

/// A program to start, without a shell. By default it gets a process group of its own, a guardian
/// if this process can be one, nothing on standard input, and its standard output and error are
/// discarded. It inherits the environment without the variables that hold secrets of ours, such as
/// the keys of a store.
///
/// `Debug` shows only the program: arguments and environment may hold secrets.
pub struct Program {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
    group: Group,
    is_guarded: bool,
    /// It gets the hard limit of open files as its soft one.
    opens_many_files: bool,
    /// Directories that it may write below; anywhere if there are none.
    writable: Vec<PathBuf>,
}

impl Program {
    /// Creates the description of a program, named by its path or by a name to look up on PATH.
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
            opens_many_files: false,
            writable: Vec::new(),
        }
    }

    /// Adds arguments. They must not hold secrets: every user can read them.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the program.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes one of the inherited environment variables.
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

    /// Keeps the program in the process group of this process, so that signals from the terminal
    /// reach it and it can prompt there.
    #[must_use]
    pub fn in_our_group(mut self) -> Self {
        self.group = Group::Ours;
        self
    }

    /// Like [`in_our_group`](Self::in_our_group), but only if this process has a terminal.
    #[must_use]
    pub fn in_our_group_at_a_terminal(self) -> Self {
        if std::fs::File::open("/dev/tty").is_ok() { self.in_our_group() } else { self }
    }

    /// Starts the program without a guardian: for a program that ends by itself at once.
    #[must_use]
    pub fn unguarded(mut self) -> Self {
        self.is_guarded = false;
        self
    }

    /// Gives the program as many open files as it may have: its soft limit is our hard one. Backup programs open
    /// up to 2000 tablespaces at a time by default, and fail at the usual soft limit of 1024.
    #[must_use]
    pub fn opening_many_files(mut self) -> Self {
        self.opens_many_files = true;
        self
    }

    /// Confines the program, and all that it starts: it can change files and directories below these
    /// places only, and read everything that this process can. They must exist when it starts.
    #[must_use]
    pub fn writing_only_below(
        mut self,
        places: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> Self {
        self.writable.extend(places.into_iter().map(|place| place.as_ref().to_owned()));
        self
    }

    /// Starts the program.
    ///
    /// # Errors
    /// If it cannot be confined as asked ([`can_confine`](crate::can_confine)). If the program does not exist, or the system cannot start a process. If the guardian only
    /// finds out later that the program cannot run, it ends with
    /// [`NOT_STARTED`](crate::NOT_STARTED) and writes the reason to its standard error.
    pub fn start(self) -> io::Result<Running> {
        let guarded = self.is_guarded && is_available();
        if !guarded && !self.writable.is_empty() {
            return Err(io::Error::other("without a guardian, it cannot be confined"));
        }
        if guarded {
            // Otherwise only the guardian would find out that the program does not exist.
            find(&self.program)?;
        }
        let start = |mut command: Command| {
            command.stdin(self.stdin).stdout(self.stdout).stderr(self.stderr);
            for name in secrets() {
                command.env_remove(name);
            }
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
        let _raised = self.opens_many_files.then(RaisedLimit::now);
        let (child, line) = if guarded {
            let (child, line) = start_guarded(&self.program, &self.args, &self.writable, start)?;
            (child, Some(line))
        } else {
            let mut command = Command::new(&self.program);
            command.args(&self.args);
            (start(command)?, None)
        };
        Ok(Running::new(child, self.group == Group::Own, line))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Looks up a program as the system does when it executes one.
fn find(program: &OsStr) -> io::Result<()> {
    if program.as_bytes().contains(&b'/') {
        return Ok(access(Path::new(program), Access::EXEC_OK)?);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut outcome = Err(rustix::io::Errno::NOENT.into());
    for folder in std::env::split_paths(&path) {
        match access(folder.join(program), Access::EXEC_OK) {
            Ok(()) => return Ok(()),
            // Found, but not executable for this user: reported only if no other match is
            // executable.
            Err(rustix::io::Errno::ACCESS) => outcome = Err(rustix::io::Errno::ACCESS.into()),
            Err(_) => {}
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    fn soft_limit(program: Program) -> u64 {
        let mut output = [0; 32];
        let program = program.args(["-c", "ulimit -S -n"]);
        let len = crate::capture(program, None, &mut output, Duration::from_secs(60)).unwrap();
        std::str::from_utf8(&output[..len]).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_program_of_many_files_gets_the_hard_limit_and_this_process_keeps_its_own() {
        let before = getrlimit(Resource::Nofile);
        let hard = before.maximum.unwrap();
        let less = Rlimit { current: Some(hard - 1), ..before };
        setrlimit(Resource::Nofile, less).unwrap();
        let many = soft_limit(Program::new("sh").opening_many_files());
        let other = soft_limit(Program::new("sh"));
        let ours = getrlimit(Resource::Nofile).current;
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!((many, other, ours), (hard, hard - 1, Some(hard - 1)));
    }
}
