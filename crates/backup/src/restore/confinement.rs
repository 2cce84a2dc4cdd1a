//! Keeps the program that prepares a backup to the directories of that backup.
//!
//! What the program does follows from files that come from outside: it takes options from the backup's option file, and
//! logs name files. So the option file is cleaned, and the program can write only below the directories that it
//! prepares.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use xb_process::can_confine;
use xb_server::{clean_option_file, temporary_dirs};

use crate::child::{self, OWN_NOTE, OWN_WARNING, OnLine};
use crate::error::BackupError;
use crate::restore::program_option::is_option;

/// Option after which xtrabackup may open a keyring for writing, in a place that is not known here.
const KEYRING: &str = "--component-keyring-config";
const KEYRING_FILE: &str = "--keyring-file-data";
/// What the programs say if they may not write to a place: the error, or its number.
const DENIED: [&str; 4] = ["Permission denied", "errno 13", "errno: 13", "error number 13"];
/// What to do then.
pub(super) const HINT: &str = "the program that prepares can write to the files of the backup only; if it has to write elsewhere, add --mysqld-writes=PATH";

/// Cleans the option files in these directories for `program`, and tells what was left out.
///
/// # Errors
/// [`BackupError::Restore`] if one cannot be cleaned.
pub(super) fn clean_options<'d>(
    dirs: impl IntoIterator<Item = &'d Path>,
    program: &Path,
    on_line: &OnLine,
) -> Result<(), BackupError> {
    for dir in dirs {
        let remarks = clean_option_file(dir, program).map_err(|error| {
            let what = format!(
                "backup-my.cnf may be forged, and cannot be cleaned: {error}; look at it, and restore another backup"
            );
            BackupError::of_target(dir, what)
        })?;
        for remark in remarks {
            on_line(format!("{OWN_WARNING}{remark}").as_bytes());
        }
    }
    Ok(())
}

/// All places where the program can write: `dirs`, `writable`, and directories that the operator's `options` name. If this
/// system cannot confine it, there are none, and a note says why.
pub(super) fn places<'d>(
    dirs: impl IntoIterator<Item = &'d Path>,
    options: &[String],
    writable: &[PathBuf],
    on_line: &OnLine,
) -> Vec<PathBuf> {
    let note =
        |what: &str| on_line(format!("{OWN_NOTE}the program that prepares {what}").as_bytes());
    if let Err(why) = can_confine() {
        note(&format!("can write anywhere: {why}"));
        return Vec::new();
    }
    if writable.is_empty() && options.iter().any(|option| is_option(option, &[KEYRING])) {
        note(
            "can write to the files of the backup only; if it fails because it cannot write to a keyring, add --mysqld-writes=PATH",
        );
    }
    let dirs = dirs.into_iter().map(Path::to_owned);
    dirs.chain(writable.iter().cloned()).chain(named(options)).collect()
}

/// Directories that the operator's options name: those for temporary files, and that of a keyring, whose new version is
/// written beside it.
fn named(options: &[String]) -> Vec<PathBuf> {
    let mut dirs = temporary_dirs(options.iter().map(OsStr::new));
    let keyrings = options.iter().filter_map(|option| option.split_once('='));
    let keyrings = keyrings.filter(|(name, _)| is_option(name, &[KEYRING_FILE]));
    dirs.extend(keyrings.filter_map(|(_, value)| Path::new(value).parent()).map(Path::to_owned));
    dirs.retain(|dir| dir.is_dir());
    dirs
}

/// Passes lines of a confined program on, and remembers whether one says that it was not allowed to do something.
pub(super) fn hear_denials(on_line: &OnLine) -> (OnLine, Arc<AtomicBool>) {
    child::listen_for(on_line, |line| DENIED.iter().any(|text| line.contains(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_the_operator_names_are_writable() {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().display();
        for (option, is_named) in [
            (format!("--tmpdir={shown}"), true),
            (format!("--tmpdir={shown}/none:{shown}"), true),
            (format!("--keyring_file_data={shown}/keys"), true),
            (format!("--keyring-file-data={shown}/none/keys"), false),
            (format!("--plugin-dir={shown}"), false),
            (format!("--defaults-file={shown}/my.cnf"), false),
        ] {
            let expected = is_named.then(|| dir.path().to_owned());
            assert_eq!(named(&[option]), Vec::from_iter(expected));
        }
    }
}
