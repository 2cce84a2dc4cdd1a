//! The file of `--metrics-file`, which all unattended commands of a repository may share.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use xb_cli::{Failure, Personality, check_writable};

use crate::commands::context::Context;
use crate::commands::reporting::masked;
use crate::commands::whole_files::{check_collected, unwritable, write};
use crate::job::{CommandEnd, Family, command_metrics};

/// Number of attempts to take a lock, 10 ms apart.
const LOCK_TRIES: u32 = 200;

/// Numbers of a command for its metrics: name, help, value.
pub(crate) type Facts = Vec<(&'static str, &'static str, String)>;

/// Metrics of a command other than `run`.
pub(crate) struct CommandMetrics {
    file: PathBuf,
    family: Family,
    repository: String,
    began: Timestamp,
}

impl CommandMetrics {
    /// Metrics for `file`, if it is given. Whether it can be written shows at the end: an option file may name it
    /// for `run`, and another user proves.
    ///
    /// # Errors
    /// The collector does not read this name.
    pub(crate) fn begin(
        file: Option<&Path>,
        family: Family,
        repository: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        let Some(file) = file else { return Ok(None) };
        check_collected("--metrics-file", file)?;
        let repository = masked(repository.unwrap_or_default());
        Ok(Some(Self { file: file.to_owned(), family, repository, began: Timestamp::now() }))
    }
}

/// Refuses a file that cannot be written or read, or that the collector does not read.
pub(crate) fn check_metrics_file(file: &Path) -> Result<(), Failure> {
    check_collected("--metrics-file", file)?;
    check_writable(file).map_err(|error| unwritable(file, error))?;
    earlier_metrics(file).map(drop)
}

/// The text of a metrics file; `None` if there is none.
///
/// # Errors
/// There is one, and it cannot be read: what other commands wrote in it would be lost.
pub(crate) fn earlier_metrics(file: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        // No metrics are there. Whether some can be shows when they are written.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(Failure::new(format!(
            "cannot read {}, to keep the metrics of other commands: {error}",
            file.display()
        ))
        .stage("settings")
        .hint("make the file readable for this user, or remove it")),
    }
}

/// Replaces the file by what `text` makes of its content, while no other of our programs does.
///
/// # Errors
/// The file cannot be read or written; it stays as it is.
pub(crate) fn replace(
    file: &Path,
    text: impl FnOnce(Option<&str>) -> String,
) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Released when it is closed. A file system without locks has writers that follow one another in time.
    let lock = File::open(folder.unwrap_or(Path::new("."))).ok();
    // Whoever can read the folder can lock it, so nothing waits for long.
    for _ in 0..LOCK_TRIES {
        let locked = lock
            .as_ref()
            .map(|lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive));
        if locked != Some(Err(Errno::WOULDBLOCK)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let old = earlier_metrics(file)?;
    write(file, &text(old.as_deref()))
}

impl Context {
    /// Writes the metrics of a command that has ended. Metrics that cannot be written are a warning: what the
    /// command has done is done.
    pub(crate) fn measured(
        &self,
        metrics: Option<CommandMetrics>,
        facts: Facts,
        outcome: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(CommandMetrics { file, family, repository, began }) = metrics else {
            return outcome;
        };
        let exit = xb_cli::exit_of(outcome.as_ref().err()).code(Personality::Ours);
        let ended = CommandEnd { family, repository, began, ended: Timestamp::now(), exit, facts };
        if let Err(failure) = replace(&file, |old| command_metrics(&ended, old)) {
            self.log.warn(failure.line());
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "# HELP xbcloud_run_success X.\nxbcloud_run_success{} 1\n";

    /// A byte that is no text must not cost the metrics around it.
    #[test]
    fn a_file_that_is_not_all_text_keeps_its_metrics() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.prom");
        std::fs::write(&file, [RUN.as_bytes(), b"# \xff\n"].concat()).unwrap();
        replace(&file, |old| old.unwrap_or_default().to_owned() + "own 2\n").unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(RUN) && text.ends_with("own 2\n"), "{text}");
    }

    /// A link to itself is there, and cannot be read.
    #[test]
    fn a_file_that_cannot_be_read_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.prom");
        std::os::unix::fs::symlink(&file, &file).unwrap();
        for refused in [replace(&file, |_| String::new()), check_metrics_file(&file)] {
            let text = refused.unwrap_err().report("x");
            assert!(text.contains("cannot read") && text.contains("hint: make"), "{text}");
        }
        assert!(std::fs::symlink_metadata(&file).unwrap().is_symlink());
    }
}
