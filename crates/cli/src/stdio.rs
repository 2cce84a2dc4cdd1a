//! Data goes to and comes from files and pipes, never a terminal.

use std::io::{IsTerminal, stdin, stdout};

use crate::failure::Failure;

/// Refuses to read data from standard input when that is a terminal.
///
/// `hint` tells what to type instead, such as `xbstream-rs -x < backup.xbstream`.
///
/// # Errors
/// A usage [`Failure`] with that hint.
pub fn refuse_terminal_input(hint: &str) -> Result<(), Failure> {
    refuse(&stdin(), "standard input is a terminal; a backup stream is expected there", hint)
}

/// Refuses to write data to standard output when that is a terminal.
///
/// `hint` tells what to type instead.
///
/// # Errors
/// A usage [`Failure`] with that hint.
pub fn refuse_terminal_output(hint: &str) -> Result<(), Failure> {
    refuse(&stdout(), "standard output is a terminal; binary data is not written to it", hint)
}

fn refuse(stream: &impl IsTerminal, message: &str, hint: &str) -> Result<(), Failure> {
    if stream.is_terminal() { Err(Failure::usage(message).hint(hint)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_file_is_taken() {
        assert!(refuse(&tempfile::tempfile().unwrap(), "no", "hint").is_ok());
        assert!(refuse(&File::open("/dev/null").unwrap(), "no", "hint").is_ok());
    }

    #[test]
    fn a_terminal_is_refused_with_a_hint() {
        // The master side of a new pseudo terminal is a terminal. Some sandboxes have none.
        let Ok(terminal) = File::open("/dev/ptmx") else { return };
        let failure = refuse(&terminal, "is a terminal", "x < FILE").unwrap_err();
        assert_eq!(failure.exit(), crate::Exit::Usage);
        assert_eq!(failure.report("x"), "x: is a terminal\nhint: x < FILE\n");
    }
}
