//! The owner of `#sql-xb` in a directory outside the data directory. Several servers may keep files of theirs in one
//! directory, such as their binary logs: a file `home` there names the data directory whose transfer it belongs to.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::error::{SwapError, failed};
use super::folders::{OLD, WORK_DIR, home_path, inherit_owner, list, make_dir};
use super::journal::Journal;
use super::journal_file::{interrupted, last, remembered};
use super::renames::rename;

/// Returns the data directory that is noted in a directory outside.
fn home(folder: &Path) -> Result<Option<PathBuf>, SwapError> {
    let path = home_path(folder);
    match std::fs::read(&path) {
        Ok(text) => {
            let text = text.strip_suffix(b"\n").unwrap_or(&text);
            Ok(Some(OsStr::from_bytes(text).into()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &path)(error)),
    }
}

/// Checks that what is in `FOLDER/#sql-xb` is of this data directory, or of none.
///
/// # Errors
/// [`SwapError::Taken`]; or if that cannot be found out.
pub(crate) fn check_owner(datadir: &Path, folder: &Path) -> Result<(), SwapError> {
    let here = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    if folder == datadir || folder == here {
        return Ok(());
    }
    let taken = |home| Err(SwapError::Taken { folder: folder.to_owned(), home });
    match home(folder)? {
        Some(home) if home == here => return Ok(()),
        Some(home) => return taken(home),
        None => {}
    }
    // Earlier versions wrote no such file: then the lists in the data directory tell.
    let lists = |journal: Result<Option<Journal>, SwapError>| {
        let journal = journal.ok().flatten();
        journal.is_some_and(|journal| journal.folders.iter().any(|known| known == folder))
    };
    let is_listed = lists(interrupted(datadir))
        || lists(last(datadir))
        || remembered(datadir).iter().any(|known| known == folder);
    let ours = folder.join(WORK_DIR);
    // What they had received is of no use to anybody; their old data may be.
    if is_listed || list(&ours.join(OLD))?.is_empty() {
        return Ok(());
    }
    taken("an unknown data directory".into())
}

/// Makes `FOLDER/#sql-xb` this data directory's own.
///
/// # Errors
/// [`SwapError::Taken`]: another has it, and nothing was changed; [`SwapError::Io`].
pub(crate) fn claim(datadir: &Path, folder: &Path) -> Result<(), SwapError> {
    check_owner(datadir, folder)?;
    let here = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    if folder == datadir || folder == here || home(folder)?.is_some() {
        return Ok(());
    }
    let (ours, path) = (folder.join(WORK_DIR), home_path(folder));
    make_dir(&ours).map_err(failed("make", &ours))?;
    let growing = ours.join(format!("home.{}", std::process::id()));
    let written =
        std::fs::write(&growing, [here.into_os_string().into_vec(), b"\n".to_vec()].concat())
            .and_then(|()| inherit_owner(&growing))
            .and_then(|()| rename(&growing, &path));
    if let Err(error) = written {
        let _ = std::fs::remove_file(&growing);
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(failed("write", &path)(error));
        }
    }
    // Another transfer may have been faster.
    check_owner(datadir, folder)
}
