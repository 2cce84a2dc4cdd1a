//! Terminal rules: data never goes to or comes from a terminal; questions only go to a terminal.

pub(crate) mod bulk;
pub(crate) mod input;

use std::io::{BufRead, BufReader, IsTerminal, Write, stderr, stdin, stdout};
use std::os::fd::AsFd;

use crate::closed::{Stream, was_closed};
use crate::failure::{Failure, FailureContext as _};
use crate::program::signals::{Signals, interrupted};
use crate::stdio::input::Input;
use crate::text::printable;

/// Returns an error if standard input, from which data will be read, is a terminal or closed.
///
/// `hint` shows what to type instead, such as `xbstream-rs -x < backup.xbstream`.
///
/// # Errors
/// A usage [`Failure`] with that hint.
pub fn refuse_terminal_input(hint: &str) -> Result<(), Failure> {
    if was_closed(Stream::Input) && is_stand_in(&stdin()) {
        return Err(Failure::new("standard input is closed").stage("input").hint(hint));
    }
    refuse(&stdin(), "standard input is a terminal, but a backup stream is expected", hint)
}

/// Returns an error if standard output, to which data will be written, is a terminal or closed.
///
/// At the start of a program, the runtime opens `/dev/null` in place of a closed standard output.
/// A `/dev/null` that the caller has opened is accepted.
///
/// `hint` shows the words to type instead.
///
/// # Errors
/// A usage [`Failure`] with that hint.
pub fn refuse_terminal_output(hint: &str) -> Result<(), Failure> {
    refuse_closed_output(hint)?;
    refuse(&stdout(), "refusing to write binary data to a terminal", hint)
}

/// Returns an error if standard output, to which text or data will be written, is closed.
///
/// `hint` shows the words to type instead.
///
/// # Errors
/// A [`Failure`] with that hint.
pub fn refuse_closed_output(hint: &str) -> Result<(), Failure> {
    if was_closed(Stream::Output) && is_stand_in(&stdout()) {
        let message = "standard output is closed, so the output would be lost";
        return Err(Failure::new(message).stage("output").hint(hint));
    }
    Ok(())
}

/// Width in columns of the terminal on standard output; `None` if it is no terminal.
#[must_use]
pub fn output_columns() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns whether this is `/dev/null`, opened for reading and writing.
fn is_stand_in(stream: &impl AsFd) -> bool {
    use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};
    let both = fcntl_getfl(stream).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR);
    let null = fstat(stream).is_ok_and(|facts| {
        FileType::from_raw_mode(facts.st_mode) == FileType::CharacterDevice
            && (major(facts.st_rdev), minor(facts.st_rdev)) == (1, 3)
    });
    both && null
}

/// Asks a question on standard error and reads a line from standard input. Returns whether the line
/// is `y` or `yes`, or `None` without asking if one of the two is not a terminal.
///
/// # Errors
/// The question cannot be written, the answer cannot be read, or a signal arrives first.
pub fn ask(question: &str) -> Result<Option<bool>, Failure> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Ok(None);
    }
    let lines: Vec<String> = question.split('\n').map(printable).collect();
    eprint(&lines.join("\n")).stage("output")?;
    let _signals = Signals::catch(|_| ()).stage("run")?;
    let input = Input::stdin().stage("read")?.until_interrupted();
    let said = answer(BufReader::new(input));
    match interrupted() {
        Some(signal) => Err(Failure::interrupted(signal)),
        None => said.stage("read").map(Some),
    }
}

fn eprint(text: &str) -> std::io::Result<()> {
    let mut out = stderr().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns whether a line is `y` or `yes`. The end of the input counts as no.
fn answer(mut input: impl BufRead) -> std::io::Result<bool> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn refuse(stream: &impl IsTerminal, message: &str, hint: &str) -> Result<(), Failure> {
    if stream.is_terminal() { Err(Failure::usage(message).hint(hint)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_a_plain_yes_is_one() {
        for yes in ["y\n", "Y\n", " yes \n", "YES"] {
            assert!(answer(yes.as_bytes()).unwrap(), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no\ny\n", "yeah\n", "yes please\n"] {
            assert!(!answer(no.as_bytes()).unwrap(), "{no:?}");
        }
        assert!(answer(&b"\xff\n"[..]).is_err());
    }

    #[test]
    fn a_file_is_taken() {
        assert!(refuse(&tempfile::tempfile().unwrap(), "no", "hint").is_ok());
        assert!(refuse(&File::open("/dev/null").unwrap(), "no", "hint").is_ok());
    }

    #[test]
    fn a_stand_in_for_a_closed_stream_is_distinguished_from_an_open_one() {
        let null = |options: &mut std::fs::OpenOptions| options.open("/dev/null").unwrap();
        assert!(is_stand_in(&null(File::options().read(true).write(true))));
        assert!(!is_stand_in(&null(File::options().write(true))));
        assert!(!is_stand_in(&tempfile::tempfile().unwrap()));
    }

    #[test]
    fn a_terminal_is_refused_with_a_hint() {
        // The master side of a new pseudoterminal is a terminal. Some sandboxes have none.
        let Ok(terminal) = File::open("/dev/ptmx") else {
            return xb_testkit::skipped("there are no pseudoterminals");
        };
        let failure = refuse(&terminal, "is a terminal", "x < FILE").unwrap_err();
        assert_eq!(failure.exit(), crate::Exit::Usage);
        assert_eq!(failure.report("x"), "x: is a terminal\nhint: x < FILE\n");
    }
}
