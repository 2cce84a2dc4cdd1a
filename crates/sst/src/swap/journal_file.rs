//! The journal on disk, and the list of directories in which a transfer writes.

use std::io;
use std::path::{Path, PathBuf};

use xb_files::or_none;

use super::error::{SwapError, failed};
use super::folders::{
    NEW, OLD, STRAY, WORK_DIR, exists, give_up, inherit_owner, may_exist, sync_dir,
};
use super::journal::Journal;

/// The journal's path.
#[must_use]
pub(crate) fn journal_path(datadir: &Path) -> PathBuf {
    datadir.join(WORK_DIR).join("journal")
}

/// Path to which a finished journal is moved: it records which directories hold old data.
#[must_use]
pub(crate) fn kept_journal_path(datadir: &Path) -> PathBuf {
    datadir.join(WORK_DIR).join(OLD).join(".journal")
}

/// Writes the journal, after which the swap goes only the journal's way. What the journal names must be
/// durable, and the directories' `#sql-xb/.old` must be empty, unless the swap goes back.
///
/// # Errors
/// [`SwapError::Io`]; in that case nothing has begun.
pub fn begin(datadir: &Path, journal: &Journal) -> Result<(), SwapError> {
    write(datadir, journal, &journal_path(datadir))
}

fn write(datadir: &Path, journal: &Journal, path: &Path) -> Result<(), SwapError> {
    let mut journal = journal.clone();
    let home = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    match journal.folders.first_mut() {
        Some(first) => *first = home,
        None => journal.folders.push(home),
    }
    let growing = path.with_extension("tmp");
    let write = || {
        let mut file = std::fs::File::create(&growing)?;
        inherit_owner(&growing)?;
        io::Write::write_all(&mut file, journal.encode().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&growing, path)
    };
    write().map_err(failed("write", path))?;
    sync_dir(&datadir.join(WORK_DIR))
}

/// Removes the journal of a swap that has moved nothing, durably.
///
/// # Errors
/// [`SwapError::Io`]; the journal stays.
pub(crate) fn drop_journal(datadir: &Path) -> Result<(), SwapError> {
    let path = journal_path(datadir);
    std::fs::remove_file(&path).map_err(failed("remove", &path))?;
    sync_dir(&datadir.join(WORK_DIR))
}

/// Returns whether a swap is unfinished, or may be: there is a journal, or that is unknown.
#[must_use]
pub fn may_be_interrupted(datadir: &Path) -> bool {
    may_exist(&journal_path(datadir))
}

/// Returns the journal of an interrupted swap, if there is one.
///
/// # Errors
/// If the journal cannot be read or parsed; [`SwapError::Elsewhere`].
pub fn interrupted(datadir: &Path) -> Result<Option<Journal>, SwapError> {
    read(datadir, &journal_path(datadir))
}

/// Returns the journal of the last swap, as long as its old data exists.
///
/// # Errors
/// If the journal cannot be read or parsed; [`SwapError::Elsewhere`].
pub(crate) fn last(datadir: &Path) -> Result<Option<Journal>, SwapError> {
    read(datadir, &kept_journal_path(datadir))
}

fn read(datadir: &Path, path: &Path) -> Result<Option<Journal>, SwapError> {
    let read = or_none(std::fs::read_to_string(path)).map_err(failed("read", path))?;
    let Some(text) = read else { return Ok(None) };
    let mut journal = Journal::parse(&text)
        .map_err(|source| SwapError::Journal { path: path.to_owned(), source })?;
    // A snapshot or a copy has another data directory, and the other directories are not its own.
    let here = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    let several = journal.folders.len() > 1;
    match journal.folders.first_mut() {
        Some(home) if several && *home != here => {
            Err(SwapError::Elsewhere { datadir: here, home: home.clone() })
        }
        Some(home) => {
            *home = here;
            Ok(Some(journal))
        }
        None => Ok(Some(journal)),
    }
}

/// Returns none for a journal that is torn, or belongs to another data directory.
///
/// # Errors
/// [`SwapError::Io`]: the journal cannot be read.
pub(crate) fn if_usable(
    read: Result<Option<Journal>, SwapError>,
) -> Result<Option<Journal>, SwapError> {
    match read {
        Err(SwapError::Elsewhere { .. } | SwapError::Journal { .. }) => Ok(None),
        read => read,
    }
}

fn remembered_path(datadir: &Path) -> PathBuf {
    datadir.join(WORK_DIR).join("folders")
}

/// Records durably in which further directories, outside the layout, a transfer is about to write; `goes_back`: or in which
/// the data is put that makes way for the old data. That is no received data.
///
/// # Errors
/// [`SwapError::Io`].
pub(crate) fn remember(
    datadir: &Path,
    folders: &[PathBuf],
    goes_back: bool,
) -> Result<(), SwapError> {
    let folders = std::iter::once(datadir.to_owned()).chain(folders.iter().cloned()).collect();
    let record = Journal { folders, goes_back, ..Journal::default() };
    write(datadir, &record, &remembered_path(datadir))
}

/// Returns whether `#sql-xb/.new` may hold data that has made way for the old data: it was in use, and may be needed again.
pub(crate) fn holds_taken_back(datadir: &Path) -> bool {
    // A record that cannot be read may be of such data.
    read(datadir, &remembered_path(datadir))
        .map_or(true, |record| record.is_some_and(|record| record.goes_back))
}

/// Returns the recorded directories; none if the record is torn, or belongs to another data directory.
///
/// # Errors
/// [`SwapError::Io`]: the record cannot be read.
pub(crate) fn remembered(datadir: &Path) -> Result<Vec<PathBuf>, SwapError> {
    let noted = if_usable(read(datadir, &remembered_path(datadir)))?;
    Ok(noted.map(|noted| noted.folders.into_iter().skip(1).collect()).unwrap_or_default())
}

/// Removes the record.
pub(crate) fn forget(datadir: &Path) {
    let _ = std::fs::remove_file(remembered_path(datadir));
}

fn removal_path(datadir: &Path) -> PathBuf {
    datadir.join(WORK_DIR).join("removing")
}

/// Records durably that old data is being removed, if there is any.
///
/// # Errors
/// [`SwapError::Io`].
pub(crate) fn mark_removal(datadir: &Path) -> Result<(), SwapError> {
    if !exists(&datadir.join(WORK_DIR).join(OLD))? {
        return Ok(());
    }
    let path = removal_path(datadir);
    std::fs::File::create(&path).map_err(failed("make", &path))?;
    inherit_owner(&path).map_err(failed("make", &path))?;
    sync_dir(&datadir.join(WORK_DIR))
}

/// Returns whether old data was being removed, and may not be whole.
///
/// # Errors
/// [`SwapError::Io`]: that cannot be found out.
pub(crate) fn is_being_removed(datadir: &Path) -> Result<bool, SwapError> {
    exists(&removal_path(datadir))
}

/// Removes the record.
pub(crate) fn end_removal(datadir: &Path) {
    let _ = std::fs::remove_file(removal_path(datadir));
}

/// Removes the empty parts of `FOLDER/#sql-xb`, which must not be another data directory's.
pub(crate) fn tidy(folder: &Path) {
    let ours = folder.join(WORK_DIR);
    for growing in [journal_path(folder), remembered_path(folder)] {
        let _ = std::fs::remove_file(growing.with_extension("tmp"));
    }
    let nothing_old = |journal: Journal| {
        let stray = |folder: &PathBuf| may_exist(&folder.join(WORK_DIR).join(OLD).join(STRAY));
        journal.old.is_empty() && !journal.folders.iter().any(stray)
    };
    if last(folder).is_ok_and(|last| last.is_some_and(nothing_old)) {
        // No directory holds old data.
        let _ = std::fs::remove_file(kept_journal_path(folder));
    }
    for path in [ours.join(NEW), ours.join(OLD)] {
        // A directory that is not empty stays.
        let _ = std::fs::remove_dir(path);
    }
    give_up(folder);
    let _ = std::fs::remove_dir(ours);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that cannot be looked into may hold anything.
    #[test]
    fn an_error_is_no_absence() {
        let dir = tempfile::tempdir().unwrap();
        let datadir = dir.path();
        assert!(!may_be_interrupted(datadir) && !is_being_removed(datadir).unwrap());
        assert_eq!(remembered(datadir).unwrap(), [] as [PathBuf; 0]);
        mark_removal(datadir).unwrap();
        std::os::unix::fs::symlink(WORK_DIR, datadir.join(WORK_DIR)).unwrap();
        assert!(may_be_interrupted(datadir));
        assert!(is_being_removed(datadir).is_err() && remembered(datadir).is_err());
        assert!(mark_removal(datadir).is_err(), "old data may be there");
    }

    /// The journal says where the old data is, and the owner's file whose it is.
    #[test]
    fn what_tells_of_old_data_stays_where_that_cannot_be_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join(WORK_DIR);
        std::fs::create_dir(&ours).unwrap();
        let journal = Journal { folders: vec![dir.path().join("else")], ..Journal::default() };
        std::fs::create_dir(ours.join(OLD)).unwrap();
        write(dir.path(), &journal, &kept_journal_path(dir.path())).unwrap();
        let stray = ours.join(OLD).join(STRAY);
        std::os::unix::fs::symlink(STRAY, &stray).unwrap();
        tidy(dir.path());
        assert!(last(dir.path()).unwrap().is_some());
        std::fs::remove_dir_all(ours.join(OLD)).unwrap();
        std::fs::write(ours.join("home"), "/elsewhere\n").unwrap();
        std::os::unix::fs::symlink(OLD, ours.join(OLD)).unwrap();
        tidy(dir.path());
        assert!(ours.join("home").exists());
    }
}
