//! Programs of the operator that run before and after a backup.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use xb_process::{Exchange, Output, Program, RunError, Termination, how_it_ended, run};

const SIGTERM: i32 = 15;

/// Errors of a hook.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
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
pub(crate) fn run_hook(
    argv: &[OsString],
    input: &str,
    limit: Duration,
    on_line: impl Fn(&str),
    interrupted: impl Fn() -> Option<i32>,
) -> Result<(), HookError> {
    let (first, args) = argv
        .split_first()
        .map_or((OsString::new(), [].as_slice()), |(first, args)| (first.clone(), args));
    let program = first.to_string_lossy().into_owned();
    let not_started = |what: String| HookError::NotStarted { program: program.clone(), what };
    let on_line = |line: &[u8]| on_line(&String::from_utf8_lossy(line));
    let exchange = Exchange {
        input: Some(input.as_bytes()),
        stdout: Output::Lines(&on_line),
        stderr: Output::Lines(&on_line),
    };
    let begin = Instant::now();
    let stop = || match interrupted() {
        Some(signal) => Some(Termination::Signal(
            signal,
            HookError::Interrupted { program: program.clone(), signal },
        )),
        None => (begin.elapsed() >= limit).then(|| {
            let (program, seconds) = (program.clone(), limit.as_secs());
            Termination::Signal(SIGTERM, HookError::TooLong { program, seconds })
        }),
    };
    match run(Program::new(&first).args(args), exchange, stop) {
        Ok((status, _)) if status.success() => Ok(()),
        Ok((status, _)) => Err(HookError::Failed { what: how_it_ended(status), program }),
        Err(RunError::Stopped(why)) => Err(why),
        Err(RunError::Start(error) | RunError::Io(error)) => Err(not_started(error.to_string())),
        Err(RunError::TooMuch(_)) => Err(not_started("it writes too much".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn hook(
        script: &str,
        limit: Duration,
        signal: Option<i32>,
    ) -> (Result<(), HookError>, Vec<String>) {
        let argv = ["sh", "-c", script].map(OsString::from);
        let heard = RefCell::new(Vec::new());
        let on_line = |line: &str| heard.borrow_mut().push(line.to_owned());
        let ended = run_hook(&argv, "{\"a\": 1}\n", limit, on_line, || signal);
        let mut heard = heard.into_inner();
        heard.sort();
        (ended, heard)
    }

    #[test]
    fn a_hook_reads_the_document_and_its_lines_are_passed_on() {
        let (ended, lines) = hook("cat; echo told >&2", LONG, None);
        assert!(ended.is_ok());
        assert_eq!(lines, ["told", "{\"a\": 1}"]);
        assert!(hook("exit 0", LONG, None).0.is_ok(), "it need not read");
    }

    #[test]
    fn every_end_but_success_is_an_error() {
        let text = |script, limit, signal| hook(script, limit, signal).0.unwrap_err().to_string();
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
