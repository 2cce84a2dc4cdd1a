//! The owner of `#sql-xb` in a directory outside the data directory. Several servers may keep files of theirs in one
//! directory, such as their binary logs: a file `home` there names the data directory whose transfer it belongs to. The data
//! directories of two containers may have one path: so what is there must have a name that this server uses or this data
//! directory has recorded, and whoever works there holds a lock.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use xb_files::or_none;

use super::error::{SwapError, failed};
use super::folder_locks::FolderLocks;
use super::folders::{
    NEW, OLD, STRAY, WORK_DIR, home_path, inherit_owner, list, make_dir, sync_dir,
};
use super::journal_file::{if_usable, interrupted, last, remembered, tidy};
use super::renames::rename;
use crate::contract::datadir::Layout;

/// Returns the data directory that is noted in a directory outside. A text that is no path is the rest of a power cut, and
/// names none.
fn home(folder: &Path) -> Result<Option<PathBuf>, SwapError> {
    let path = home_path(folder);
    let text = or_none(std::fs::read(&path)).map_err(failed("read", &path))?.unwrap_or_default();
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    Ok(text.starts_with(b"/").then(|| OsStr::from_bytes(text).into()))
}

/// Checks that what is in `FOLDER/#sql-xb` is of this data directory, or of none.
///
/// # Errors
/// [`SwapError::Taken`], [`SwapError::Unknown`]; or if that cannot be found out.
fn check_owner(layout: &Layout, folder: &Path) -> Result<(), SwapError> {
    let datadir = &layout.datadir;
    if folder == datadir {
        return Ok(());
    }
    let home = home(folder)?;
    let is_noted = home.is_some();
    if let Some(home) = home.filter(|home| home != datadir) {
        // A server that is gone, and has left nothing here, needs the directory no more.
        let is_free = !home.try_exists().unwrap_or(true) && is_empty(folder)?;
        let taken = SwapError::Taken { folder: folder.to_owned(), home };
        return if is_free { Ok(()) } else { Err(taken) };
    }
    match unknown(layout, folder, is_noted)? {
        None => Ok(()),
        Some(file) => {
            Err(SwapError::Unknown { folder: folder.to_owned(), file, datadir: datadir.to_owned() })
        }
    }
}

/// Returns whether there is neither old nor received data in `FOLDER/#sql-xb`.
fn is_empty(folder: &Path) -> Result<bool, SwapError> {
    let ours = folder.join(WORK_DIR);
    Ok(list(&ours.join(OLD))?.is_empty() && list(&ours.join(NEW))?.is_empty())
}

/// Returns an entry of the old or received data in `FOLDER/#sql-xb` that no record in this data directory names, and that
/// has no name which this server uses there. A data directory that was emptied has no records, but its server has the names.
fn unknown(layout: &Layout, folder: &Path, is_noted: bool) -> Result<Option<PathBuf>, SwapError> {
    let datadir = &layout.datadir;
    let mut listed: HashSet<OsString> = HashSet::from([STRAY.into()]);
    for journal in [last(datadir), interrupted(datadir)] {
        let Some(journal) = if_usable(journal)? else { continue };
        let here = |entry: &&_| journal.folder(entry) == folder;
        let entries = journal.old.iter().chain(&journal.new).filter(here);
        listed.extend(entries.map(|entry| entry.name.clone()));
    }
    let is_used = |name: &OsStr| {
        layout.outside.iter().any(|place| place.dir == folder && place.kind.has(name))
    };
    // What earlier versions, which noted no owner, had received is of no use.
    let is_received = !is_noted || remembered(datadir)?.iter().any(|known| known == folder);
    let ours = folder.join(WORK_DIR);
    for part in if is_received { &[OLD][..] } else { &[OLD, NEW] } {
        let part = ours.join(part);
        let names = list(&part)?.into_iter().map(|(name, _)| name);
        let mut unknown = names.filter(|name| !listed.contains(name) && !is_used(name));
        if let Some(name) = unknown.next() {
            return Ok(Some(part.join(name)));
        }
    }
    Ok(None)
}

/// Locks `FOLDER/#sql-xb` if it is this data directory's, and returns whether it is: another server's is left alone.
///
/// # Errors
/// [`SwapError::Busy`]; or if that cannot be found out.
pub(crate) fn is_own(
    layout: &Layout,
    locks: &FolderLocks,
    folder: &Path,
) -> Result<bool, SwapError> {
    match lock_and_check(layout, locks, folder) {
        Ok(()) => Ok(true),
        Err(SwapError::Taken { .. } | SwapError::Unknown { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks `FOLDER/#sql-xb`, if there is one, and checks that it is not another data directory's.
///
/// # Errors
/// [`SwapError::Taken`], [`SwapError::Unknown`], [`SwapError::Busy`]; or if that cannot be found out.
pub(crate) fn lock_and_check(
    layout: &Layout,
    locks: &FolderLocks,
    folder: &Path,
) -> Result<(), SwapError> {
    // What is another server's is not waited for.
    check_owner(layout, folder)?;
    if *folder != layout.datadir && locks.lock(folder)? {
        check_owner(layout, folder)?;
    }
    Ok(())
}

/// Makes `#sql-xb` in all of these directories this data directory's own, or in none of them: what is of no use, and
/// keeps another server out, would stay otherwise.
///
/// # Errors
/// As [`lock_and_check`]; [`SwapError::Io`]. The others are as they were.
pub(crate) fn claim_all<'a>(
    layout: &Layout,
    locks: &FolderLocks,
    folders: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), SwapError> {
    let mut made = Vec::new();
    for folder in folders {
        match claim(layout, locks, folder) {
            Ok(true) => made.push(folder),
            Ok(false) => {}
            Err(error) => {
                made.into_iter().for_each(|folder| tidy(folder));
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Makes `FOLDER/#sql-xb` this data directory's own, and locks it. Returns whether it was not.
fn claim(layout: &Layout, locks: &FolderLocks, folder: &Path) -> Result<bool, SwapError> {
    let here = &layout.datadir;
    if folder == here {
        return Ok(false);
    }
    check_owner(layout, folder)?;
    let (ours, path) = (folder.join(WORK_DIR), home_path(folder));
    // Another process may remove it while it is empty.
    loop {
        make_dir(&ours).map_err(failed("make", &ours))?;
        if locks.lock(folder)? {
            break;
        }
    }
    check_owner(layout, folder)?;
    if home(folder)?.as_ref() == Some(here) {
        return Ok(false);
    }
    let growing = ours.join(format!("home.{}", std::process::id()));
    let write = || {
        let mut file = File::create(&growing)?;
        inherit_owner(&growing)?;
        file.write_all(&[here.as_os_str().as_bytes(), b"\n"].concat())?;
        file.sync_all()?;
        // What is there names no owner any more, or `check_owner` would have failed.
        or_none(std::fs::remove_file(&path))?;
        rename(&growing, &path)
    };
    let written = write();
    if let Err(error) = written {
        let _ = std::fs::remove_file(&growing);
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(failed("write", &path)(error));
        }
    }
    sync_dir(&ours)?;
    // Where the file system has no locks, another transfer may have been faster.
    check_owner(layout, folder).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::super::journal::{Entry, Journal};
    use super::super::journal_file::{begin, remember};
    use super::*;
    use crate::contract::datadir::{Kind, KindDir};

    fn layout(datadir: &Path) -> Layout {
        Layout::of(datadir).unwrap()
    }

    /// Claims a directory, and ends.
    fn claim(datadir: &Path, folder: &Path) -> Result<(), SwapError> {
        super::claim(&layout(datadir), &FolderLocks::default(), folder).map(drop)
    }

    fn check_owner(datadir: &Path, folder: &Path) -> Result<(), SwapError> {
        super::check_owner(&layout(datadir), folder)
    }

    #[test]
    fn all_directories_are_claimed_or_none() {
        let (scratch, [one, two, logs]) = scene();
        let [own, free] = ["own", "free"].map(|name| scratch.path().join(name));
        [&own, &free].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        claim(&one, &own).unwrap();
        claim(&two, &logs).unwrap();
        let locks = FolderLocks::default();
        let taken = claim_all(&layout(&one), &locks, [&one, &own, &free, &logs]);
        assert!(matches!(taken, Err(SwapError::Taken { folder, .. }) if folder == logs));
        assert!(!free.join(WORK_DIR).exists(), "it is free again");
        assert_eq!(home(&own).unwrap(), Some(one.clone()), "it was claimed before");
        claim_all(&layout(&one), &locks, [&one, &own, &free]).unwrap();
        assert_eq!(home(&free).unwrap(), Some(one));
    }

    /// Two data directories, and a directory that both use.
    fn scene() -> (tempfile::TempDir, [PathBuf; 3]) {
        let scratch = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(scratch.path()).unwrap();
        let dirs = ["one", "two", "logs"].map(|name| base.join(name));
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        (scratch, dirs)
    }

    #[test]
    fn a_server_that_is_gone_keeps_only_a_directory_with_data_of_it() {
        let (_scratch, [one, two, logs]) = scene();
        let old = logs.join(WORK_DIR).join(OLD);
        claim(&one, &logs).unwrap();
        assert!(matches!(check_owner(&two, &logs), Err(SwapError::Taken { .. })));
        std::fs::remove_dir(&one).unwrap();
        make_dir(&old).unwrap();
        std::fs::write(old.join("one.000001"), "").unwrap();
        assert!(matches!(claim(&two, &logs), Err(SwapError::Taken { .. })));
        std::fs::remove_file(old.join("one.000001")).unwrap();
        claim(&two, &logs).unwrap();
        assert_eq!(home(&logs).unwrap(), Some(two));
    }

    #[test]
    fn data_of_a_server_whose_data_directory_has_the_same_path_is_told_by_names() {
        let (_scratch, [one, _, logs]) = scene();
        let of = |base: &str| {
            let place = KindDir { kind: Kind::Binlog(base.into()), dir: logs.clone() };
            Layout { outside: vec![place], ..layout(&one) }
        };
        claim(&one, &logs).unwrap();
        for part in [OLD, NEW].map(|part| logs.join(WORK_DIR).join(part)) {
            let file = part.join("one.000001");
            make_dir(&part).unwrap();
            std::fs::write(&file, "").unwrap();
            let locks = FolderLocks::default();
            assert!(is_own(&of("one"), &locks, &logs).unwrap());
            assert!(!is_own(&of("two"), &locks, &logs).unwrap());
            let error = super::claim(&of("two"), &locks, &logs).unwrap_err();
            assert!(matches!(error, SwapError::Unknown { file: known, .. } if known == file));
            std::fs::remove_file(&file).unwrap();
        }
        // What the records name is this data directory's, whatever names its server uses now.
        for (part, is_old) in [(OLD, true), (NEW, false)] {
            let file = logs.join(WORK_DIR).join(part).join("one.000001");
            std::fs::write(&file, "").unwrap();
            make_dir(&one.join(WORK_DIR)).unwrap();
            if is_old {
                let old = vec![Entry { folder: 1, name: "one.000001".into() }];
                let folders = vec![one.clone(), logs.clone()];
                begin(&one, &Journal { folders, old, ..Journal::default() }).unwrap();
            } else {
                remember(&one, std::slice::from_ref(&logs), false).unwrap();
            }
            check_owner(&one, &logs).unwrap();
        }
    }

    /// Neither old data nor a record of it is given up where its owner is unknown.
    #[test]
    fn a_directory_that_cannot_be_looked_at_is_nobodys() {
        let (scratch, [one, _, _]) = scene();
        let looped = scratch.path().join("loop");
        std::os::unix::fs::symlink("loop", &looped).unwrap();
        let owned = is_own(&layout(&one), &FolderLocks::default(), &looped);
        assert!(matches!(owned, Err(SwapError::Io { .. })));
    }

    #[test]
    fn of_two_claims_at_once_one_succeeds() {
        for _ in 0..200 {
            let (_scratch, [one, two, logs]) = scene();
            let both = [&one, &two];
            let start = std::sync::Barrier::new(both.len());
            let done = std::thread::scope(|scope| {
                let claims = both.map(|datadir| {
                    scope.spawn(|| {
                        start.wait();
                        claim(datadir, &logs).is_ok()
                    })
                });
                claims.map(|claim| claim.join().unwrap())
            });
            assert_eq!(done.iter().filter(|is_done| **is_done).count(), 1);
        }
    }

    #[test]
    fn a_home_without_a_path_is_none() {
        let (_scratch, [one, two, logs]) = scene();
        claim(&one, &logs).unwrap();
        std::fs::write(home_path(&logs), "").unwrap();
        check_owner(&one, &logs).unwrap();
        claim(&two, &logs).unwrap();
        assert_eq!(home(&logs).unwrap(), Some(two));
        assert!(matches!(claim(&one, &logs), Err(SwapError::Taken { .. })));
    }

    #[test]
    fn what_a_kill_has_left_of_a_claim_goes_with_the_directory() {
        let (_scratch, [one, _, logs]) = scene();
        claim(&one, &logs).unwrap();
        std::fs::write(logs.join(WORK_DIR).join("home.4711"), "").unwrap();
        super::super::tidy(&logs);
        assert!(!logs.join(WORK_DIR).exists());
    }
}
