//! Runs a child program until it ends.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xb_process::{Exchange, Output, Program, RunError, Termination, how_it_ended};

use crate::cancel::CancelToken;
use crate::error::BackupError;

/// Limit of an answer in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// Beginning of a line that is our own, and not a program's: what was done, for the user.
pub const OWN_NOTE: &str = "note: ";

/// Beginning of a line that is our own, and that the user has to read at once.
pub const OWN_WARNING: &str = "own warning: ";

/// Called with each line that a program writes, without the line end, and with notes of our own.
pub type OnLine = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Passes lines on as they are, and notes if one of them `says` something.
pub(crate) fn listen_for(
    on_line: &OnLine,
    says: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> (OnLine, Arc<AtomicBool>) {
    let is_said = Arc::new(AtomicBool::new(false));
    let (on_line, noted) = (Arc::clone(on_line), Arc::clone(&is_said));
    let lines: OnLine = Arc::new(move |line| {
        if says(&String::from_utf8_lossy(line)) {
            noted.store(true, Ordering::Relaxed);
        }
        on_line(line);
    });
    (lines, is_said)
}

/// Runs a program without a shell, in a process group of its own. Passes every line it writes to
/// `on_line`, and forwards a request to cancel to the whole group. If places are `writable`, the program can
/// write below these only, and has its temporary files below the first.
///
/// # Errors
/// [`BackupError::NotStarted`]; [`BackupError::Program`] for any exit status but 0;
/// [`BackupError::Interrupted`] once the program has ended after a request to cancel.
pub(crate) async fn run(
    program: &Path,
    args: &[OsString],
    writable: &[PathBuf],
    on_line: &OnLine,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    let mut described =
        Program::new(program).args(args).writing_only_below(writable).opening_many_files();
    if let Some(first) = writable.first() {
        described = described.env("TMPDIR", first);
    }
    exchange(program, described, on_line, cancel, 0).await.map(drop)
}

/// Like [`run`], but returns the answer from the program's stdout, up to 64 MiB.
///
/// # Errors
/// Any error of [`run`]; [`BackupError::Program`] if the answer is longer.
pub(crate) async fn ask(
    program: &Path,
    args: &[OsString],
    on_line: &OnLine,
    cancel: &CancelToken,
) -> Result<String, BackupError> {
    let described = Program::new(program).args(args);
    let answer = exchange(program, described, on_line, cancel, MAX_ANSWER).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Runs a program in a thread for blocking work. Keeps up to `keep` bytes of its stdout; if that is 0,
/// passes its lines to `on_line`. Dropping the result ends the program.
async fn exchange(
    program: &Path,
    described: Program,
    on_line: &OnLine,
    cancel: &CancelToken,
    keep: usize,
) -> Result<Vec<u8>, BackupError> {
    let (on_line, cancel) = (Arc::clone(on_line), cancel.clone());
    let dropped = CancelToken::<()>::new();
    let _guard = dropped.cancel_on_drop();
    let work = move || {
        let each = |line: &[u8]| on_line(line);
        let mut answer = vec![0; keep];
        let stdout = match keep {
            0 => Output::Lines(&each),
            _ => Output::Into(&mut answer),
        };
        let stop = || match cancel.reason() {
            Some(signal) => Some(Termination::Signal(signal, signal)),
            None => dropped.is_cancelled().then_some(Termination::Kill(0)),
        };
        let exchange = Exchange { input: None, stdout, stderr: Output::Lines(&each) };
        let ended = xb_process::run(described, exchange, stop);
        ended.map(|(status, stored)| {
            answer.truncate(stored);
            (status, answer)
        })
    };
    let ended = tokio::task::spawn_blocking(work).await;
    match ended.map_err(|_| BackupError::Bug("the thread that runs a program panicked"))? {
        Ok((status, answer)) => judge(program, status).map(|()| answer),
        Err(RunError::Stopped(signal)) => Err(BackupError::Interrupted(signal)),
        Err(RunError::TooMuch(limit)) => {
            let what = format!("its answer is longer than {} MiB", limit >> 20);
            Err(BackupError::Program { program: file_name(program), what })
        }
        Err(RunError::Io(source)) => {
            Err(BackupError::System { what: "cannot wait for a program", source })
        }
        Err(RunError::Start(error)) => Err(BackupError::NotStarted {
            program: program.display().to_string(),
            what: error.to_string(),
        }),
    }
}

/// Checks that at least one of these programs can be started, by its path or by its name on PATH.
///
/// # Errors
/// [`BackupError::NotStarted`] for the first program if none can.
pub(crate) fn find(programs: &[&Path]) -> Result<(), BackupError> {
    use rustix::fs::{Access, access};
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let places = std::env::var_os("PATH").unwrap_or_default();
    let there = |program: &&Path| match program.components().count() {
        1 if !program.has_root() => {
            std::env::split_paths(&places).any(|place| runs(&place.join(program)))
        }
        _ => runs(program),
    };
    let Some(first) = programs.first().filter(|_| !programs.iter().any(there)) else {
        return Ok(());
    };
    let (program, what) = (first.display().to_string(), "no such program".to_owned());
    Err(BackupError::NotStarted { program, what })
}

fn judge(program: &Path, status: ExitStatus) -> Result<(), BackupError> {
    if status.success() {
        return Ok(());
    }
    Err(BackupError::Program { program: file_name(program), what: how_it_ended(status) })
}

pub(crate) fn file_name(program: &Path) -> String {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustix::process::Pid;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn both_its_pipes_are_heard_and_its_status_counts() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let on_line: OnLine = {
            let heard = Arc::clone(&heard);
            Arc::new(move |line| {
                heard.lock().unwrap().push(String::from_utf8_lossy(line).into_owned())
            })
        };
        let cancel = CancelToken::new();
        let script = words(&["-c", "echo one; echo two >&2; exit 3"]);
        let error =
            runtime().block_on(run(Path::new("sh"), &script, &[], &on_line, &cancel)).unwrap_err();
        assert!(error.to_string().contains("sh failed with exit status 3"), "{error}");
        let mut heard = heard.lock().unwrap().clone();
        heard.sort();
        assert_eq!(heard, ["one", "two"]);
        let echo = words(&["-c", "echo 7"]);
        let answer = runtime().block_on(ask(Path::new("sh"), &echo, &on_line, &cancel));
        assert_eq!(answer.unwrap(), "7\n");
        let none = runtime()
            .block_on(run(Path::new("/no/such"), &[], &[], &on_line, &cancel))
            .unwrap_err();
        assert!(matches!(none, BackupError::NotStarted { .. }), "{none}");
    }

    #[test]
    fn a_request_to_stop_ends_its_children_too() {
        let on_line: OnLine = Arc::new(|_| {});
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let script =
            format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", pid_file.display());
        let waiting = pid_file.clone();
        let asking = std::thread::spawn(move || {
            while !waiting.exists() {
                std::thread::yield_now();
            }
            canceller.cancel(15);
        });
        let outcome = runtime().block_on(run(
            Path::new("sh"),
            &words(&["-c", &script]),
            &[],
            &on_line,
            &cancel,
        ));
        assert!(matches!(outcome, Err(BackupError::Interrupted(15))), "{outcome:?}");
        asking.join().unwrap();
        let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        // Gone, or a zombie that this test does not reap.
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        while state().is_ok_and(|stat| !stat.contains(") Z")) {
            std::thread::yield_now();
        }
    }
}
