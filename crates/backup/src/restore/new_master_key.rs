//! Gives prepared files a new master key, so that a server with another keyring can open its
//! encrypted tables.
//!
//! Only `xtrabackup --move-back` makes such a key. So the prepared files go into a directory of ours
//! below the target, and the program moves them to where they were.

use std::ffi::OsString;
use std::path::Path;

use crate::cancel::CancelToken;
use crate::child::OnLine;
use crate::error::BackupError;
use crate::restore::prepare::{
    NEW_MASTER_KEY, PrepareProgram, PrepareTool, first_and_rest, run_first, tool_of, with_path,
};
use crate::restore::program_option::is_option;

/// Directory for the prepared files while the program moves them.
const PREPARED: &str = ".xb-prepared";
/// Beginning of the names of our own directories in the target.
const OWN: &str = ".xb";

/// Has the program move the prepared files of `dir`, with a new master key, if the options ask for one.
///
/// # Errors
/// [`BackupError::Restore`] if another program took the backup or a file cannot be renamed; the errors
/// of a program.
pub(super) async fn make_if_wanted(
    dir: &Path,
    by: &PrepareProgram,
    on_line: &OnLine,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    if !by.options.iter().any(|option| is_option(option, &[NEW_MASTER_KEY])) {
        return Ok(());
    }
    let failed = |what: String| BackupError::of_target(dir, what);
    let tool = tool_of(dir, by)?;
    if tool != PrepareTool::XtraBackup {
        return Err(failed(format!(
            "{NEW_MASTER_KEY} is an option of xtrabackup, which did not take this backup"
        )));
    }
    let inner = dir.join(PREPARED);
    let io = |error: std::io::Error| failed(format!("{PREPARED}: {error}"));
    std::fs::create_dir(&inner).map_err(io)?;
    rename_all(dir, &inner).map_err(io)?;
    let args = arguments(dir, &inner, by);
    run_first(tool, &by.confined([dir], on_line), &args, on_line, cancel).await?;
    // The program leaves the files that describe the backup.
    rename_all(&inner, dir).map_err(io)?;
    std::fs::remove_dir_all(&inner).map_err(io)
}

/// Arguments of the call. Without an option file of the user's, none counts: one of this machine's
/// server could send files to that server's directories.
fn arguments(dir: &Path, inner: &Path, by: &PrepareProgram) -> Vec<OsString> {
    let (mut args, rest) = first_and_rest(by);
    if args.is_empty() {
        args.push("--no-defaults".into());
    }
    args.push("--move-back".into());
    args.push(with_path("--target-dir=", inner));
    args.push(with_path("--datadir=", dir));
    args.push("--force-non-empty-directories".into());
    args.extend(rest);
    args.push(NEW_MASTER_KEY.into());
    args
}

/// Renames the entries of `from` into `to`, except our own and those that `to` already has.
fn rename_all(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let new = to.join(&name);
        if !name.as_encoded_bytes().starts_with(OWN.as_bytes()) && new.symlink_metadata().is_err() {
            std::fs::rename(entry.path(), new)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_option_files_do_not_count() {
        let given = |options: &[&str]| PrepareProgram {
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..PrepareProgram::default()
        };
        let (dir, inner) = (Path::new("/t"), Path::new("/t/.xb-prepared"));
        let call = |options: &[&str]| -> Vec<String> {
            let args = arguments(dir, inner, &given(options));
            args.iter().map(|word| word.to_string_lossy().into_owned()).collect()
        };
        let common = [
            "--move-back",
            "--target-dir=/t/.xb-prepared",
            "--datadir=/t",
            "--force-non-empty-directories",
        ];
        let plain = call(&["--generate_new_master_key", "--keyring-file-data=/k"]);
        let end = ["--keyring-file-data=/k", "--generate-new-master-key"];
        assert_eq!(plain, [&["--no-defaults"][..], &common, &end].concat());
        let with_file = call(&["--generate-new-master-key", "--defaults-file=/f"]);
        assert_eq!(with_file, [&["--defaults-file=/f"][..], &common, &end[1..]].concat());
    }
}
