//! Runs a child program until it ends.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xb_process::{Program, Running, how_it_ended, lines};

use crate::cancel::CancelToken;
use crate::error::BackupError;

/// Time to wait for the program's last messages after its end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Limit of an answer in bytes.
const MAX_ANSWER: u64 = 64 << 20;

/// Called with each line that a program writes, without the line end.
pub type OnLine = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Runs a program without a shell, in a process group of its own. Passes every line it writes to
/// `talk`, and forwards a request to cancel to the whole group.
///
/// # Errors
/// [`BackupError::NotStarted`]; [`BackupError::Program`] for any exit status but 0;
/// [`BackupError::Interrupted`] once the program has ended after a request to cancel.
pub(crate) async fn run(
    program: &Path,
    args: &[OsString],
    talk: &OnLine,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    let mut child = spawn(program, args)?;
    let pipes: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout().map(|p| Box::new(p) as _), child.stderr().map(|p| Box::new(p) as _)];
    let listeners: Vec<_> = pipes.into_iter().flatten().map(|pipe| listen(pipe, talk)).collect();
    let status = ended(&mut child, cancel).await;
    drain_output(listeners.into_iter().flatten().collect()).await;
    judge(program, status?)
}

/// Like [`run`], but returns the answer from the program's stdout, up to 64 MiB.
///
/// # Errors
/// Those of [`run`]; [`BackupError::Program`] if the answer is longer.
pub(crate) async fn ask(
    program: &Path,
    args: &[OsString],
    talk: &OnLine,
    cancel: &CancelToken,
) -> Result<String, BackupError> {
    let mut child = spawn(program, args)?;
    let listener = child.stderr().and_then(|pipe| listen(Box::new(pipe), talk));
    let stdout = child.stdout();
    let answer = std::thread::spawn(move || {
        let mut text = Vec::new();
        // The exit status shows whether the read failed.
        let _ = stdout.map(|pipe| pipe.take(MAX_ANSWER + 1).read_to_end(&mut text));
        text
    });
    let status = ended(&mut child, cancel).await;
    drain_output(listener.into_iter().collect()).await;
    let status = status?;
    let answer = answer
        .join()
        .map_err(|_| BackupError::Bug("the thread that reads the program's output panicked"))?;
    if answer.len() as u64 > MAX_ANSWER {
        let what = format!("its answer is longer than {} MiB", MAX_ANSWER >> 20);
        return Err(BackupError::Program { program: file_name(program), what });
    }
    judge(program, status)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
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

fn spawn(program: &Path, args: &[OsString]) -> Result<Running, BackupError> {
    let started =
        Program::new(program).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).start();
    started.map_err(|error| BackupError::NotStarted {
        program: program.display().to_string(),
        what: error.to_string(),
    })
}

fn listen(pipe: Box<dyn Read + Send>, talk: &OnLine) -> Option<JoinHandle<()>> {
    let talk = Arc::clone(talk);
    let listener = move || lines(pipe, |line| talk(line.strip_suffix(b"\n").unwrap_or(line)));
    std::thread::Builder::new().name("messages".into()).spawn(listener).ok()
}

async fn ended(child: &mut Running, cancel: &CancelToken) -> Result<ExitStatus, BackupError> {
    let broken = |source| BackupError::System { what: "cannot wait for a program", source };
    loop {
        if let Some(status) = child.try_wait().map_err(broken)? {
            return Ok(status);
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
            signal = cancel.asked() => {
                tokio::task::block_in_place(|| child.end(signal));
                return Err(BackupError::Interrupted(signal));
            }
        }
    }
}

/// Waits until the program's last lines have been forwarded, but not for a grandchild that keeps
/// stderr open.
async fn drain_output(listeners: Vec<JoinHandle<()>>) {
    let begin = Instant::now();
    while listeners.iter().any(|thread| !thread.is_finished()) && begin.elapsed() < LAST_WORDS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
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
    use crate::cancel::cancellation;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn both_its_pipes_are_heard_and_its_status_counts() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let talk: OnLine = {
            let heard = Arc::clone(&heard);
            Arc::new(move |line| {
                heard.lock().unwrap().push(String::from_utf8_lossy(line).into_owned())
            })
        };
        let (_canceller, cancel) = cancellation();
        let script = words(&["-c", "echo one; echo two >&2; exit 3"]);
        let error = runtime().block_on(run(Path::new("sh"), &script, &talk, &cancel)).unwrap_err();
        assert!(error.to_string().contains("sh failed with exit status 3"), "{error}");
        let mut heard = heard.lock().unwrap().clone();
        heard.sort();
        assert_eq!(heard, ["one", "two"]);
        let echo = words(&["-c", "echo 7"]);
        let answer = runtime().block_on(ask(Path::new("sh"), &echo, &talk, &cancel));
        assert_eq!(answer.unwrap(), "7\n");
        let none = runtime().block_on(run(Path::new("/no/such"), &[], &talk, &cancel)).unwrap_err();
        assert!(matches!(none, BackupError::NotStarted { .. }), "{none}");
    }

    #[test]
    fn a_request_to_stop_ends_its_children_too() {
        let talk: OnLine = Arc::new(|_| {});
        let (canceller, cancel) = cancellation();
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
            canceller
        });
        let outcome =
            runtime().block_on(run(Path::new("sh"), &words(&["-c", &script]), &talk, &cancel));
        assert!(matches!(outcome, Err(BackupError::Interrupted(15))), "{outcome:?}");
        drop(asking.join().unwrap());
        let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        // Gone, or a zombie that this test does not reap.
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        while state().is_ok_and(|stat| !stat.contains(") Z")) {
            std::thread::yield_now();
        }
    }
}
