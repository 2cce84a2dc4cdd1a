//! Files that have no name at all until they are complete.
//!
//! Creating a file without a name and linking it takes two thirds of the time of creating it under
//! one name and renaming it, and needs no directory that all threads have to lock.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

const CREATE: OFlags = OFlags::RDWR.union(OFlags::TMPFILE).union(OFlags::CLOEXEC);

/// Name under which [`UnnamedFiles`] tries a link.
const TRIAL: &str = "link";

/// Mode of the trial. The umask removes some of it, unless it is 0.
const TRIAL_MODE: Mode = Mode::from_raw_mode(0o666);

/// Way to link files without a name in one file system, if that is possible there.
#[derive(Debug, Default)]
pub(crate) struct UnnamedFiles(OnceLock<Option<LinkBy>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkBy {
    /// Needs Linux 6.10 or a capability.
    Descriptor,
    /// Needs `/proc`.
    Proc,
}

impl UnnamedFiles {
    /// Creates a file in the file system of `dir`. `None` if that is not possible: use a name.
    pub(crate) fn create(&self, dir: &OwnedFd, mode: Mode) -> Option<OwnedFd> {
        (*self.0.get_or_init(|| try_out(dir)))?;
        rustix::fs::openat(dir, ".", CREATE, mode).ok()
    }

    /// Gives `file` its only name; [`Errno::EXIST`] if the name is taken.
    pub(crate) fn link(
        &self,
        file: impl AsFd,
        dir: impl AsFd,
        name: &[u8],
    ) -> rustix::io::Result<()> {
        match self.0.get().copied().flatten() {
            Some(by) => link(by, file, dir, name),
            None => Err(Errno::OPNOTSUPP),
        }
    }
}

/// Creates, links and removes a file in `dir`, because support differs by kernel, file system and
/// privileges. A file whose mode ignores the umask is of no use either.
fn try_out(dir: &OwnedFd) -> Option<LinkBy> {
    let file = rustix::fs::openat(dir, ".", CREATE, TRIAL_MODE).ok()?;
    let by = [LinkBy::Descriptor, LinkBy::Proc]
        .into_iter()
        .find(|by| link(*by, &file, dir, TRIAL.as_bytes()).is_ok())?;
    let removed = rustix::fs::unlinkat(dir, TRIAL, AtFlags::empty());
    let flags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
    let named = rustix::fs::openat(dir, TRIAL, flags, TRIAL_MODE).ok()?;
    let cleaned = rustix::fs::unlinkat(dir, TRIAL, AtFlags::empty());
    removed.and(cleaned).ok()?;
    let mode = |file: &OwnedFd| rustix::fs::fstat(file).ok().map(|stat| stat.st_mode);
    (mode(&file)? == mode(&named)?).then_some(by)
}

fn link(by: LinkBy, file: impl AsFd, dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    match by {
        LinkBy::Descriptor => rustix::fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH),
        LinkBy::Proc => {
            let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            rustix::fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_linked_once_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = OwnedFd::from(File::open(dir.path()).unwrap());
        let nameless = UnnamedFiles::default();
        let Some(file) = nameless.create(&at, Mode::from_raw_mode(0o600)) else {
            return xb_testkit::skipped("the file system of temporary files has no O_TMPFILE");
        };
        let mut file = File::from(file);
        file.write_all(b"all of it").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::write(dir.path().join("taken"), "theirs").unwrap();
        assert_eq!(nameless.link(&file, &at, b"taken"), Err(Errno::EXIST));
        nameless.link(&file, &at, b"ours").unwrap();
        assert_eq!(std::fs::read(dir.path().join("ours")).unwrap(), b"all of it");
        assert_eq!(std::fs::read(dir.path().join("taken")).unwrap(), b"theirs");
    }

    #[test]
    fn both_ways_of_linking_follow_no_link_in_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let at = OwnedFd::from(File::open(dir.path()).unwrap());
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        for by in [LinkBy::Descriptor, LinkBy::Proc] {
            let Ok(file) = rustix::fs::openat(&at, ".", CREATE, TRIAL_MODE) else {
                return xb_testkit::skipped("the file system of temporary files has no O_TMPFILE");
            };
            // Without the capability, the first way fails with ENOENT on older kernels.
            let linked = link(by, &file, &at, b"link");
            assert!(matches!(linked, Err(Errno::EXIST | Errno::NOENT)), "{by:?}: {linked:?}");
        }
        assert!(!dir.path().join("nowhere").exists());
    }
}
