//! The directory of one run's unfinished files, and the removal of those that dead runs left.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::RelPath;
use crate::target::dirs::{DIR_MODE, STEP, make_dir};

/// Directory in which files grow until they are complete. It is in the target directory, so that
/// the last step is a rename within one file system. Servers do not take a directory with a leading
/// dot for a database.
pub(crate) const PARTIAL_DIR: &str = ".xb-partial";

/// A directory in [`PARTIAL_DIR`] that belongs to one run. It is locked while the run lives: an
/// unlocked one belongs to a run that was killed, and the next run removes it.
#[derive(Debug)]
pub(crate) struct PartialDir {
    root: Arc<OwnedFd>,
    holder: OwnedFd,
    name: String,
    /// Unfinished files are created in this directory. Its descriptor holds the lock.
    pub(crate) dir: OwnedFd,
    /// Whether unfinished files are kept for a run that resumes this one.
    pub(crate) kept: bool,
}

/// Name of the directory of a resumable run. It is not swept.
pub(crate) const KEPT: &str = "restore";

/// Returns the reserved prefix of the name, if it has one. Reserved names belong to a restore in
/// progress: unfinished files, and increments not applied yet or being merged. They are removed when it ends.
#[must_use]
pub fn reserved(path: &RelPath) -> Option<&'static str> {
    [PARTIAL_DIR, ".xb-incremental", ".xb-merge"]
        .into_iter()
        .find(|prefix| path.as_bytes().starts_with(prefix.as_bytes()))
}

impl PartialDir {
    /// Creates the directory, and removes the directories of dead runs beside it.
    pub(crate) fn make(root: Arc<OwnedFd>) -> rustix::io::Result<Self> {
        loop {
            make_dir(&root, PARTIAL_DIR, DIR_MODE)?;
            let holder = match rustix::fs::openat(&root, PARTIAL_DIR, STEP, Mode::empty()) {
                // Another run has just ended and removed the holder.
                Err(Errno::NOENT) => continue,
                opened => opened?,
            };
            sweep(&holder);
            match claim(&holder)? {
                Some((name, dir)) => return Ok(Self { root, holder, name, dir, kept: false }),
                None => continue,
            }
        }
    }

    /// Opens or creates the directory that is kept when its run ends early. Only one run can hold
    /// it.
    pub(crate) fn keep(root: Arc<OwnedFd>) -> rustix::io::Result<Self> {
        make_dir(&root, PARTIAL_DIR, DIR_MODE)?;
        let holder = rustix::fs::openat(&root, PARTIAL_DIR, STEP, Mode::empty())?;
        make_dir(&holder, KEPT, DIR_MODE)?;
        let dir = rustix::fs::openat(&holder, KEPT, STEP, Mode::empty())?;
        // Root must not trust a directory that another user created.
        if rustix::process::geteuid().is_root() {
            for folder in [&holder, &dir] {
                let owner = rustix::fs::fstat(folder)?.st_uid;
                if owner != 0 && owner != owner_of_ours(&holder)? {
                    return Err(Errno::PERM);
                }
            }
        }
        match lock(&dir) {
            Lock::Taken => Err(Errno::BUSY),
            Lock::Ours | Lock::Unknown => {
                Ok(Self { root, holder, name: KEPT.to_owned(), dir, kept: true })
            }
        }
    }

    /// The names in the directory.
    pub(crate) fn entries(&self) -> Vec<Vec<u8>> {
        names(&self.dir)
    }
}

/// The owner that our new files get. Some file systems map root to another user (NFS with
/// `root_squash`). That user can change all our files anyway, so refusing its folders would
/// protect nothing.
///
/// The owner is read from a file opened at its creation, so that it cannot be replaced in between.
fn owner_of_ours(folder: &OwnedFd) -> rustix::io::Result<u32> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = format!("owner-{}", rustix::process::getpid().as_raw_nonzero());
    // Left by a killed process with this number, or by one of another PID namespace.
    let _ = rustix::fs::unlinkat(folder, &name, AtFlags::empty());
    let file = rustix::fs::openat(folder, &name, flags, Mode::RUSR)?;
    let _ = rustix::fs::unlinkat(folder, &name, AtFlags::empty());
    Ok(rustix::fs::fstat(&file)?.st_uid)
}

impl Drop for PartialDir {
    fn drop(&mut self) {
        // Best effort: directories that are in use, or that hold files of others, stay.
        let _ = rustix::fs::unlinkat(&self.holder, &self.name, AtFlags::REMOVEDIR);
        let _ = rustix::fs::unlinkat(&self.root, PARTIAL_DIR, AtFlags::REMOVEDIR);
    }
}

/// Creates and locks a new directory; `None` if the holder was removed meanwhile.
fn claim(holder: &OwnedFd) -> rustix::io::Result<Option<(String, OwnedFd)>> {
    let pid = rustix::process::getpid().as_raw_nonzero();
    for number in 0_u32.. {
        let name = format!("{pid}-{number}");
        match rustix::fs::mkdirat(holder, &name, DIR_MODE) {
            Ok(()) => {}
            // Another target in this process, or a process of another PID namespace.
            Err(Errno::EXIST) => continue,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        }
        // Before the lock is taken, another run may consider the directory abandoned and remove it.
        let dir = match rustix::fs::openat(holder, &name, STEP, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            opened => opened?,
        };
        if lock(&dir) != Lock::Taken && has_name(holder, name.as_bytes(), &dir) {
            return Ok(Some((name, dir)));
        }
    }
    Err(Errno::EXIST)
}

/// Removes the directories of dead runs. Best effort: they only take up space.
fn sweep(holder: &OwnedFd) {
    for name in names(holder).into_iter().filter(|name| name != KEPT.as_bytes()) {
        let Ok(dir) = rustix::fs::openat(holder, &name[..], STEP, Mode::empty()) else { continue };
        // Its run may have ended meanwhile: then the name is free, or it is another directory's.
        if lock(&dir) != Lock::Ours || !has_name(holder, &name, &dir) {
            continue;
        }
        for file in names(&dir) {
            let _ = rustix::fs::unlinkat(&dir, &file[..], AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(holder, &name[..], AtFlags::REMOVEDIR);
    }
}

/// Whether `name` still refers to the directory that was opened under it. This stays true while we
/// hold its lock: a directory is only removed by a process that holds the lock.
fn has_name(holder: &OwnedFd, name: &[u8], dir: &OwnedFd) -> bool {
    let there = rustix::fs::statat(holder, name, AtFlags::SYMLINK_NOFOLLOW);
    matches!((there, rustix::fs::fstat(dir)), (Ok(there), Ok(ours)) if there.st_ino == ours.st_ino)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Ours,
    Taken,
    /// The file system has no locks; nothing is swept there.
    Unknown,
}

fn lock(dir: &OwnedFd) -> Lock {
    match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Lock::Ours,
        Err(Errno::WOULDBLOCK) => Lock::Taken,
        Err(_) => Lock::Unknown,
    }
}

/// The names in a directory, as far as it can be read.
fn names(dir: &OwnedFd) -> Vec<Vec<u8>> {
    let Ok(entries) = Dir::read_from(dir) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_bytes().to_vec())
        .filter(|name| name != b"." && name != b"..")
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn make(dir: &std::path::Path) -> PartialDir {
        PartialDir::make(Arc::new(File::open(dir).unwrap().into())).unwrap()
    }

    #[test]
    fn files_of_a_dead_run_are_removed_and_those_of_a_live_one_stay() {
        let dir = tempfile::tempdir().unwrap();
        let partial = dir.path().join(PARTIAL_DIR);
        let dead = partial.join("1-0");
        fs::create_dir_all(&dead).unwrap();
        fs::write(dead.join("0"), "half a file").unwrap();
        let living = make(dir.path());
        assert!(!dead.exists());
        fs::write(partial.join(&living.name).join("0"), "half a file").unwrap();
        let next = make(dir.path());
        assert!(partial.join(&living.name).join("0").exists());
        assert_ne!(living.name, next.name);
        fs::remove_file(partial.join(&living.name).join("0")).unwrap();
        drop((living, next));
        assert!(!partial.exists());
    }

    #[test]
    fn root_does_not_go_on_in_a_folder_of_another_user() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join(PARTIAL_DIR).join(KEPT);
        fs::create_dir_all(&kept).unwrap();
        let keep = || PartialDir::keep(Arc::new(File::open(dir.path()).unwrap().into()));
        // An unprivileged user cannot change the owner, and owns the directory.
        if std::os::unix::fs::chown(&kept, Some(12345), None).is_ok() {
            assert_eq!(keep().unwrap_err(), Errno::PERM);
            std::os::unix::fs::chown(&kept, Some(0), None).unwrap();
        }
        assert!(keep().is_ok());
    }

    /// As on NFS with `root_squash`: the file system maps root to another user.
    #[test]
    fn root_goes_on_where_it_is_somebody_else() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
        const NOBODY: u32 = 65534;
        let dir = tempfile::tempdir().unwrap();
        if chown(dir.path(), Some(NOBODY), None).is_err() {
            return xb_testkit::skipped("only root can switch to another user");
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let kept = dir.path().join(PARTIAL_DIR).join(KEPT);
        // The file system user belongs to the thread, not to the process.
        let squashed = || {
            std::thread::scope(|scope| {
                let keep = || {
                    nix::unistd::setfsuid(NOBODY.into());
                    assert!(rustix::process::geteuid().is_root());
                    PartialDir::keep(Arc::new(File::open(dir.path()).unwrap().into()))
                };
                scope.spawn(keep).join().unwrap()
            })
        };
        let first = squashed().unwrap();
        assert_eq!(fs::metadata(&kept).unwrap().uid(), NOBODY);
        fs::write(kept.join("0"), "half a file").unwrap();
        drop(first);
        assert_eq!(squashed().unwrap().entries(), [b"0"]);
        // A third user's directory is refused in both cases; unmapped root also refuses this one.
        chown(&kept, Some(12345), None).unwrap();
        assert_eq!(squashed().unwrap_err(), Errno::PERM);
        chown(&kept, Some(NOBODY), None).unwrap();
        let root = PartialDir::keep(Arc::new(File::open(dir.path()).unwrap().into()));
        assert_eq!(root.unwrap_err(), Errno::PERM);
        let left: Vec<_> = fs::read_dir(kept.parent().unwrap()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn runs_that_begin_at_once_do_not_sweep_each_other() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let run = make(dir.path());
                        let name = rustix::fs::openat(
                            &run.dir,
                            "0",
                            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::EXCL,
                            Mode::RWXU,
                        );
                        name.expect("the directory is there and empty");
                        rustix::fs::unlinkat(&run.dir, "0", AtFlags::empty()).unwrap();
                    }
                });
            }
        });
        assert!(!dir.path().join(PARTIAL_DIR).exists());
    }
}
