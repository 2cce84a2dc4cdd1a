//! A producer that we start ourselves, so that its exit status counts.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::BackupError;

/// How long a producer may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(30);

/// A running producer. Killed when dropped before its end was seen.
#[derive(Debug)]
pub struct Producer {
    child: Child,
    program: String,
    ended: bool,
}

impl Producer {
    /// Starts `argv`, without a shell. Its stderr is ours.
    ///
    /// # Errors
    /// [`BackupError::NotStarted`].
    pub fn start(argv: &[OsString]) -> Result<(Self, ChildStdout), BackupError> {
        let Some((program, args)) = argv.split_first() else {
            return Err(BackupError::NotStarted {
                program: "the producer".into(),
                what: "it was not named".into(),
            });
        };
        // As it was given: a wrong path is what most often cannot be started.
        let given = program.to_string_lossy().into_owned();
        let name = Path::new(program)
            .file_name()
            .map_or_else(|| given.clone(), |n| n.to_string_lossy().into_owned());
        let failed = |what: String| BackupError::NotStarted { program: given.clone(), what };
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdout = child.stdout.take().ok_or(BackupError::Bug("a piped child without a pipe"))?;
        Ok((Self { child, program: name, ended: false }, stdout))
    }

    /// File name of the program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; anything but exit status 0 is an error.
    ///
    /// # Errors
    /// [`BackupError::Producer`] with how it ended.
    pub fn wait(&mut self) -> Result<(), BackupError> {
        let status = self
            .child
            .wait()
            .map_err(|error| self.failed(format!("cannot be waited for: {error}")))?;
        self.ended = true;
        if status.success() { Ok(()) } else { Err(self.failed(describe(status))) }
    }

    /// Asks it to end by `signal` and makes sure that it does.
    pub fn end(&mut self, signal: i32) {
        if self.ended {
            return;
        }
        let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
        let _ = kill_process(Pid::from_child(&self.child), signal);
        let begin = Instant::now();
        while begin.elapsed() < GRACE {
            if let Ok(Some(_)) = self.child.try_wait() {
                self.ended = true;
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.ended = true;
    }

    fn failed(&self, what: String) -> BackupError {
        BackupError::Producer { program: self.program.clone(), what }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.end(Signal::TERM.as_raw());
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "failed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn argv(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn output_and_status_are_passed_on() {
        let (mut good, mut out) = Producer::start(&argv(&["sh", "-c", "printf data"])).unwrap();
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(text, "data");
        good.wait().unwrap();
        let (mut bad, _out) = Producer::start(&argv(&["sh", "-c", "exit 7"])).unwrap();
        assert!(bad.wait().unwrap_err().to_string().contains("exit status 7"));
        let (mut killed, _out) = Producer::start(&argv(&["sh", "-c", "kill -9 $$"])).unwrap();
        assert!(killed.wait().unwrap_err().to_string().contains("signal 9"));
    }

    #[test]
    fn what_cannot_be_started_is_named_without_its_arguments() {
        let error = Producer::start(&argv(&["/no/such/mariadb-backup", "--password=topsecret"]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("mariadb-backup") && !error.contains("topsecret"), "{error}");
        assert!(Producer::start(&[]).is_err());
    }

    #[test]
    fn ending_it_leaves_no_process_behind() {
        let (mut producer, _out) = Producer::start(&argv(&["sleep", "600"])).unwrap();
        let pid = Pid::from_child(&producer.child);
        producer.end(Signal::TERM.as_raw());
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
