//! Whether a server has accepted the data of the last swap. Until one has, the old data is the only data that is known
//! to work: it is not removed, and the next transfer puts it back first.
//!
//! A server accepts the data when it starts on it once before the swap ([`super::second_start`]). Without such a start,
//! a mark beside the old data keeps length and time of the redo log as it was swapped in: a server whose storage engine
//! starts on the data writes there.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use super::datadir_lock::DatadirLock;
use crate::contract::datadir::{Kind, Layout};
use crate::contract::error_log::ErrorLog;
use crate::error::SstError;
use crate::swap::{self, OLD, OURS};

/// The mark, in [`OLD`].
const MARK: &str = ".unaccepted";

fn mark(layout: &Layout) -> PathBuf {
    layout.datadir.join(OURS).join(OLD).join(MARK)
}

/// Notes that no server has started on the data that was swapped in, if there is old data to put back.
///
/// # Errors
/// If the mark cannot be written.
pub(super) fn note_untried(layout: &Layout) -> Result<(), SstError> {
    if swap::last(&layout.datadir)?.is_none_or(|journal| journal.old.is_empty()) {
        return Ok(());
    }
    let mark = mark(layout);
    let place = layout.outside.iter().chain(&layout.inside).find(|place| place.kind == Kind::Redo);
    let dir = place.map_or(layout.datadir.clone(), |place| layout.datadir.join(&place.dir));
    let written = redo_state(&dir).and_then(|state| {
        let text = [dir.as_os_str().as_bytes(), b"\n", state.as_bytes()].concat();
        std::fs::write(&mark, text)?;
        std::fs::File::open(&mark)?.sync_all()
    });
    written.map_err(SstError::io("write", &mark))
}

/// Returns whether the present data was swapped in untried, and no server's storage engine has started on it since.
///
/// # Errors
/// If that cannot be found out.
pub fn is_untried(layout: &Layout) -> Result<bool, SstError> {
    let mark = mark(layout);
    let text = match std::fs::read(&mark) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(SstError::io("read", &mark)(error)),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let dir = Path::new(OsStr::from_bytes(parts.next().unwrap_or_default()));
    let noted = parts.next().unwrap_or_default();
    let now = redo_state(dir).map_err(SstError::io("look at", dir))?;
    Ok(noted == now.as_bytes())
}

/// Puts the old data back, if no server has accepted the present data.
///
/// # Errors
/// [`SstError::Swap`]; or if it cannot be found out whether a server has.
pub(super) fn take_back_untried(
    layout: &Layout,
    lock: &DatadirLock,
    talk: &ErrorLog,
) -> Result<(), SstError> {
    if is_untried(layout)? && take_back(layout, lock)? {
        talk.warn("no server has accepted the data of the last transfer: the data from before it is in place again");
    }
    Ok(())
}

/// Puts the old data of the last swap back. The data that was swapped in is then in `#sql-xb/.new`, which the next
/// transfer removes. Returns whether there was old data.
///
/// # Errors
/// [`SstError::Swap`].
pub fn take_back(layout: &Layout, _lock: &DatadirLock) -> Result<bool, SstError> {
    let is_schema = |name: &OsStr| holds_tables(&layout.datadir.join(name));
    if !swap::take_back(&layout.datadir, is_schema, || Ok(()))? {
        return Ok(false);
    }
    let mark = mark(layout);
    match std::fs::remove_file(&mark) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(SstError::io("remove", &mark)(error))
        }
        _ => Ok(true),
    }
}

/// Whether this is a schema that has tables.
fn holds_tables(path: &Path) -> bool {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_table = |name: &OsStr| {
        let extension = Path::new(name).extension().map(OsStr::as_bytes);
        name == "db.opt" || matches!(extension, Some(b"ibd" | b"frm" | b"sdi"))
    };
    files.into_iter().any(|file| is_table(&file.file_name()))
}

/// Name, length and time of each file of the redo log in a directory.
fn redo_state(dir: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    // MySQL has a directory of its own for them.
    for (dir, has_others) in [(dir.join("#innodb_redo"), false), (dir.to_owned(), true)] {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let entry = entry?;
            let (name, facts) = (entry.file_name(), entry.metadata()?);
            if facts.is_file() && (!has_others || Kind::Redo.has(&name)) {
                let since = facts.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
                files.push(format!("{} {} {}\n", name.display(), facts.len(), since.as_nanos()));
            }
        }
    }
    files.sort();
    Ok(files.concat())
}

/// Returns whether a server has the data in use: it locks the files of its storage engines.
///
/// # Errors
/// If a file cannot be opened or asked for.
pub fn is_in_use(layout: &Layout) -> Result<bool, SstError> {
    let place = layout.outside.iter().find(|place| matches!(place.kind, Kind::Data(_)));
    let dir = place.map_or(layout.datadir.as_path(), |place| place.dir.as_path());
    for path in [dir.join("ibdata1"), layout.datadir.join("aria_log_control")] {
        if is_locked(&path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_locked(path: &Path) -> Result<bool, SstError> {
    let file = match std::fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(SstError::io("open", path)(error)),
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(true),
        Err(error) => Err(SstError::io("lock", path)(error.into())),
    }
}
