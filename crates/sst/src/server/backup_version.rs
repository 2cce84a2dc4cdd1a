//! The version of the backup program, which must match the server's. It is known before the
//! transfer begins.

use std::ffi::OsString;
use std::path::Path;

use crate::cancel::CancelToken;
use crate::context::Context;
use crate::contract::args::Args;
use crate::contract::option_files::OptionFiles;
use crate::contract::settings::backup_program;
use crate::error::SstError;
use crate::run::Run;

/// Longest answer that is read, in bytes.
const MAX: usize = 4096;

/// Asks the backup program for its version. Returns `None` if the answer cannot be parsed.
///
/// # Errors
/// If the program does not exist.
pub(crate) fn of_backup_program(
    program: &Path,
    cancel: &CancelToken,
) -> Result<Option<String>, SstError> {
    let run = Run {
        program,
        args: vec![OsString::from("--version")],
        env: Vec::new(),
        log: None,
        writable: Vec::new(),
    };
    let (output, words) = run.all_output(cancel, MAX)?;
    let text = String::from_utf8_lossy(&output).into_owned();
    Ok(std::iter::once(text).chain(words).find_map(|text| version_in(&text)))
}

/// Returns the options that this node's server reads: without the groups of other versions, which an upgrade leaves in its option
/// files. The version is the server's own statement, else the backup program's; if it is unknown, all groups count.
#[must_use]
pub fn options_of_server(files: OptionFiles, args: &Args, cancel: &CancelToken) -> OptionFiles {
    if !files.have_versions() {
        return files;
    }
    let stated = args.server_version.clone();
    let program = || of_backup_program(&backup_program(args, &files), cancel).ok()?;
    // That the program is missing is reported where it is needed.
    match stated.or_else(program) {
        Some(version) => files.of_version(&version),
        None => files,
    }
}

/// Returns the version of this node's server: its own statement, else the backup program's version.
///
/// # Errors
/// If the server states none and the backup program does not exist.
pub(crate) fn of_server(context: &Context) -> Result<Option<String>, SstError> {
    match &context.args.server_version {
        Some(version) => Ok(Some(version.clone())),
        None => of_backup_program(&context.settings.program, &context.cancel),
    }
}

/// Parses `mariadb-backup based on MariaDB server 10.11.19-MariaDB debian-linux-gnu (x86_64)` or
/// `xtrabackup version 8.0.35-31 based on MySQL server 8.0.35 Linux (x86_64)`.
fn version_in(text: &str) -> Option<String> {
    let (_, behind) = text.split_once(" based on ")?;
    let (_, behind) = behind.split_once(" server ")?;
    let version = behind.split_ascii_whitespace().next()?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_programs_are_understood() {
        for (text, version) in [
            (
                "mariadb-backup based on MariaDB server 10.11.19-MariaDB debian-linux-gnu (x86_64)",
                Some("10.11.19-MariaDB"),
            ),
            (
                "xtrabackup version 8.0.35-31 based on MySQL server 8.0.35 Linux (x86_64) (revision id: 55ec21d7)",
                Some("8.0.35"),
            ),
            ("something else", None),
            ("x based on y server ", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}( based on )?\\PC{0,9}( server )?\\PC{0,20}") {
            let _ = version_in(&text);
        }
    }
}
