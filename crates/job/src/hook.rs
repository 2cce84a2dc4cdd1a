//! Programs of the operator that run before and after a backup.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xb_process::{Program, how_it_ended, lines};

/// Interval at which the program's state is polled.
const POLL: Duration = Duration::from_millis(20);
/// Time to wait for the last lines of a program that has ended.
const LAST_LINES: Duration = Duration::from_secs(2);
const SIGTERM: i32 = 15;

/// Errors of a hook.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// The program could not be started.
    #[error("cannot start {program}: {what}")]
    NotStarted {
        /// Program as named by the operator.
        program: String,
        /// Error of the system.
        what: String,
    },
    /// The program ended with a failure.
    #[error("{program} {what}")]
    Failed {
        /// Program as named by the operator.
        program: String,
        /// Exit status or signal.
        what: String,
    },
    /// The program ran for too long and was ended.
    #[error("{program} was ended: it ran for more than {seconds} seconds")]
    TooLong {
        /// Program as named by the operator.
        program: String,
        /// Limit in seconds.
        seconds: u64,
    },
    /// A signal asked this process to end; the program was ended, too.
    #[error("{program} was ended by signal {signal}")]
    Interrupted {
        /// Program as named by the operator.
        program: String,
        /// Number of the signal.
        signal: i32,
    },
}

/// Runs `argv` without a shell, with `input` on its standard input, and passes each line that it
/// writes to `on_line`. The program is ended after `limit`, or when `interrupted` returns a signal.
///
/// # Errors
/// [`HookError`], by kind; any exit status but 0 is one. A program that does not read its input is
/// none.
pub fn run_hook(
    argv: &[OsString],
    input: &str,
    limit: Duration,
    on_line: impl Fn(&str) + Send + Sync + 'static,
    interrupted: impl Fn() -> Option<i32>,
) -> Result<(), HookError> {
    let (first, args) = argv
        .split_first()
        .map_or((OsString::new(), [].as_slice()), |(first, args)| (first.clone(), args));
    let program = first.to_string_lossy().into_owned();
    let not_started = |what: String| HookError::NotStarted { program: program.clone(), what };
    let mut child = Program::new(&first)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
        .map_err(|error| not_started(error.to_string()))?;
    if let Some(mut stdin) = child.stdin() {
        let input = input.to_owned();
        // On a thread of its own: the program may write before it reads.
        thread::spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
    }
    let on_line: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(on_line);
    let pass_on = || {
        let on_line = Arc::clone(&on_line);
        move |line: &[u8]| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            on_line(&String::from_utf8_lossy(line));
        }
    };
    let mut readers = Vec::new();
    if let Some(pipe) = child.stdout() {
        let each = pass_on();
        readers.push(thread::spawn(move || lines(pipe, each)));
    }
    if let Some(pipe) = child.stderr() {
        let each = pass_on();
        readers.push(thread::spawn(move || lines(pipe, each)));
    }
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| not_started(error.to_string()))? {
            break status;
        }
        if let Some(signal) = interrupted() {
            child.end(signal);
            return Err(HookError::Interrupted { program, signal });
        }
        if begin.elapsed() >= limit {
            child.end(SIGTERM);
            return Err(HookError::TooLong { program, seconds: limit.as_secs() });
        }
        thread::sleep(POLL);
    };
    let ended = Instant::now();
    while readers.iter().any(|reader| !reader.is_finished()) && ended.elapsed() < LAST_LINES {
        thread::sleep(Duration::from_millis(1));
    }
    match status.success() {
        true => Ok(()),
        false => Err(HookError::Failed { program, what: how_it_ended(status) }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn run(
        script: &str,
        limit: Duration,
        signal: Option<i32>,
    ) -> (Result<(), HookError>, Vec<String>) {
        let argv = ["sh", "-c", script].map(OsString::from);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&heard);
        let on_line = move |line: &str| lines.lock().unwrap().push(line.to_owned());
        let ended = run_hook(&argv, "{\"a\": 1}\n", limit, on_line, || signal);
        let mut heard = heard.lock().unwrap().clone();
        heard.sort();
        (ended, heard)
    }

    #[test]
    fn a_hook_reads_the_document_and_its_lines_are_passed_on() {
        let (ended, lines) = run("cat; echo told >&2", LONG, None);
        assert!(ended.is_ok());
        assert_eq!(lines, ["told", "{\"a\": 1}"]);
        assert!(run("exit 0", LONG, None).0.is_ok(), "it need not read");
    }

    #[test]
    fn every_end_but_success_is_an_error() {
        let text = |script, limit, signal| run(script, limit, signal).0.unwrap_err().to_string();
        assert_eq!(text("exit 7", LONG, None), "sh failed with exit status 7");
        assert_eq!(
            text("exec sleep 600", Duration::ZERO, None),
            "sh was ended: it ran for more than 0 seconds"
        );
        assert_eq!(text("exec sleep 600", LONG, Some(15)), "sh was ended by signal 15");
        let missing = [OsString::from("/no/such/hook"), "--token=secret".into()];
        let error = run_hook(&missing, "", LONG, |_| {}, || None).unwrap_err().to_string();
        assert!(error.contains("/no/such/hook") && !error.contains("secret"), "{error}");
        assert!(run_hook(&[], "", LONG, |_| {}, || None).is_err());
    }
}
