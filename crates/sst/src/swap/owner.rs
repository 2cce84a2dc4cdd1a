//! The owner of `#sql-xb` in a directory outside the data directory. Several servers may keep files of theirs in one
//! directory, such as their binary logs: a file `home` there names the data directory whose transfer it belongs to.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use xb_files::or_none;

use super::error::{SwapError, failed};
use super::folders::{NEW, OLD, WORK_DIR, home_path, inherit_owner, list, make_dir, sync_dir};
use super::journal::Journal;
use super::journal_file::{interrupted, last, remembered, tidy};
use super::renames::rename;

/// Time to wait for others that claim the same directory: far longer than that takes.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

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
/// [`SwapError::Taken`]; or if that cannot be found out.
pub(crate) fn check_owner(datadir: &Path, folder: &Path) -> Result<(), SwapError> {
    let here = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    if folder == datadir || folder == here {
        return Ok(());
    }
    let taken = |home| Err(SwapError::Taken { folder: folder.to_owned(), home });
    match home(folder)? {
        Some(home) if home == here => return Ok(()),
        Some(home) => {
            // A server that is gone, and has left nothing here, needs the directory no more.
            let is_free = !home.try_exists().unwrap_or(true) && is_empty(folder)?;
            return if is_free { Ok(()) } else { taken(Some(home)) };
        }
        None => {}
    }
    // Earlier versions wrote no such file: then the lists in the data directory tell.
    let lists = |journal: Result<Option<Journal>, SwapError>| {
        let journal = journal.ok().flatten();
        journal.is_some_and(|journal| journal.folders.iter().any(|known| known == folder))
    };
    let is_listed = lists(interrupted(datadir))
        || lists(last(datadir))
        || remembered(datadir)?.iter().any(|known| known == folder);
    let ours = folder.join(WORK_DIR);
    // What they had received is of no use to anybody; their old data may be.
    if is_listed || list(&ours.join(OLD))?.is_empty() {
        return Ok(());
    }
    taken(None)
}

/// Returns whether there is neither old nor received data in `FOLDER/#sql-xb`.
fn is_empty(folder: &Path) -> Result<bool, SwapError> {
    let ours = folder.join(WORK_DIR);
    Ok(list(&ours.join(OLD))?.is_empty() && list(&ours.join(NEW))?.is_empty())
}

/// Makes `#sql-xb` in all of these directories this data directory's own, or in none of them: what another server could not
/// use, and nobody needs, would stay otherwise.
///
/// # Errors
/// [`SwapError::Taken`]: another has one of them; [`SwapError::Io`]. The others are as they were.
pub(crate) fn claim_all<'a>(
    datadir: &Path,
    folders: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), SwapError> {
    let mut made = Vec::new();
    for folder in folders {
        match claim(datadir, folder, LOCK_LIMIT) {
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

/// Makes `FOLDER/#sql-xb` this data directory's own. Returns whether it was not. `limit`: time to wait while others do
/// the same.
fn claim(datadir: &Path, folder: &Path, limit: Duration) -> Result<bool, SwapError> {
    check_owner(datadir, folder)?;
    let here = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    if folder == datadir || folder == here || home(folder)?.as_ref() == Some(&here) {
        return Ok(false);
    }
    let (ours, path) = (folder.join(WORK_DIR), home_path(folder));
    make_dir(&ours).map_err(failed("make", &ours))?;
    // Another transfer may do the same at this moment.
    let lock = File::open(&ours).map_err(failed("open", &ours))?;
    wait_for(&lock, limit).map_err(failed("lock", &ours))?;
    check_owner(datadir, folder)?;
    let growing = ours.join(format!("home.{}", std::process::id()));
    let write = || {
        let mut file = File::create(&growing)?;
        inherit_owner(&growing)?;
        file.write_all(&[here.into_os_string().into_vec(), b"\n".to_vec()].concat())?;
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
    // Another transfer may have been faster.
    check_owner(datadir, folder).map(|()| true)
}

/// Takes a lock that everybody holds only for a moment. Where the file system has no locks, there is none: the last check
/// of the owner finds most of what others do then.
fn wait_for(file: &File, limit: Duration) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            // NFS wants a file that is open for writing, and no directory is.
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::BADF) => {
                return Ok(());
            }
            Err(Errno::WOULDBLOCK) if begin.elapsed() < limit => std::thread::sleep(RETRY_INTERVAL),
            Err(Errno::WOULDBLOCK) => {
                let what = format!("another process has had the lock for {} s", limit.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(datadir: &Path, folder: &Path) -> Result<(), SwapError> {
        super::claim(datadir, folder, LOCK_LIMIT).map(drop)
    }

    #[test]
    fn a_lock_that_somebody_keeps_is_not_waited_for_without_end() {
        let (_scratch, [one, _, logs]) = scene();
        let ours = logs.join(WORK_DIR);
        std::fs::create_dir(&ours).unwrap();
        let held = File::open(&ours).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let error = super::claim(&one, &logs, Duration::ZERO).unwrap_err().to_string();
        assert!(error.starts_with("cannot lock ") && error.contains("another process"), "{error}");
        assert_eq!(home(&logs).unwrap(), None);
        drop(held);
        claim(&one, &logs).unwrap();
    }

    #[test]
    fn all_directories_are_claimed_or_none() {
        let (scratch, [one, two, logs]) = scene();
        let [own, free] = ["own", "free"].map(|name| scratch.path().join(name));
        [&own, &free].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        claim(&one, &own).unwrap();
        claim(&two, &logs).unwrap();
        let taken = claim_all(&one, [&one, &own, &free, &logs]);
        assert!(matches!(taken, Err(SwapError::Taken { folder, .. }) if folder == logs));
        assert!(!free.join(WORK_DIR).exists(), "it is free again");
        assert_eq!(home(&own).unwrap(), Some(one.clone()), "it was claimed before");
        claim_all(&one, [&one, &own, &free]).unwrap();
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
