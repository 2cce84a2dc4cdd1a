//! Files and directories of a target that exist already, and are changed in place.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use crate::RelPath;
use crate::target::TargetDir;
use crate::target::error::TargetError;
use crate::target::parents::Missing;

/// Treatment of a missing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMissing {
    /// It is an error.
    Fail,
    /// It is created, with the directories of its path.
    Create,
}

impl TargetDir {
    /// Opens a file for reading and writing in place. No symbolic link is followed, neither at the end of the
    /// path nor before it.
    ///
    /// # Errors
    ///
    /// [`TargetError::Create`] if it is missing, no regular file, or cannot be opened;
    /// [`TargetError::NotADirectory`].
    pub fn open_in_place(
        &self,
        path: &RelPath,
        if_missing: IfMissing,
    ) -> Result<File, TargetError> {
        let failed = |source: io::Error| TargetError::Create { path: path.clone(), source };
        // Non-blocking, because opening a pipe would block.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (missing, flags) = match if_missing {
            IfMissing::Fail => (Missing::Stop, flags),
            IfMissing::Create => (Missing::Make, flags | OFlags::CREATE),
        };
        let parent = self.parents_for(path).parent_of(path, missing)?;
        let parent = parent.ok_or_else(|| failed(Errno::NOENT.into()))?;
        let opened = rustix::fs::openat(&parent, path.split_last().1, flags, self.file_mode);
        let file = File::from(opened.map_err(|error| failed(error.into()))?);
        match file.metadata().map_err(failed)?.is_file() {
            true => Ok(file),
            false => Err(failed(io::Error::other("it is not a regular file"))),
        }
    }

    /// Whether something has this name. A symbolic link counts, wherever it leads.
    ///
    /// # Errors
    ///
    /// [`TargetError::NotADirectory`]; [`TargetError::Create`] if the system cannot tell.
    pub fn has(&self, path: &RelPath) -> Result<bool, TargetError> {
        let Some(parent) = self.parents_for(path).parent_of(path, Missing::Stop)? else {
            return Ok(false);
        };
        match rustix::fs::statat(&parent, path.split_last().1, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(TargetError::Create { path: path.clone(), source: error.into() }),
        }
    }

    /// Gives a directory another name beside it. Never replaces a directory that has something in it.
    ///
    /// # Errors
    ///
    /// [`TargetError::Exists`], [`TargetError::Rename`].
    pub fn rename_dir(&self, from: &RelPath, to: &RelPath) -> Result<(), TargetError> {
        self.check_absent(to)?;
        let failed = |error: Errno| TargetError::Rename {
            path: from.clone(),
            to: to.clone(),
            source: error.into(),
        };
        let old = self.parents_for(from).parent_of(from, Missing::Stop)?;
        let new = self.parents_for(to).parent_of(to, Missing::Make)?;
        let (Some(old), Some(new)) = (old, new) else { return Err(failed(Errno::NOENT)) };
        rustix::fs::renameat(&old, from.split_last().1, &new, to.split_last().1).map_err(failed)
    }

    /// Names of what is in a directory, from the target; none if it is missing, or no directory. Left out are names
    /// that no file of a stream can have.
    ///
    /// # Errors
    ///
    /// [`TargetError::Create`] if the system cannot tell.
    pub fn names_in(&self, path: &RelPath) -> Result<Vec<RelPath>, TargetError> {
        let failed = |source: io::Error| TargetError::Create { path: path.clone(), source };
        let below = |name: &[u8]| RelPath::new(&[path.as_bytes(), b"/", name].concat());
        let Ok(inside) = below(b"x") else { return Ok(Vec::new()) };
        let dir = match self.parents_for(path).parent_of(&inside, Missing::Stop) {
            Ok(Some(dir)) => dir,
            Ok(None) | Err(TargetError::NotADirectory { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            names.extend(below(entry.file_name().to_bytes()));
        }
        Ok(names)
    }

    /// Removes a directory that is empty; one that is missing is no error.
    ///
    /// # Errors
    ///
    /// [`TargetError::Remove`], also if it is not empty.
    pub fn remove_dir(&self, path: &RelPath) -> Result<(), TargetError> {
        let failed =
            |error: Errno| TargetError::Remove { path: path.clone(), source: error.into() };
        let parents = self.parents_for(path);
        let Some(parent) = parents.parent_of(path, Missing::Stop)? else {
            return Ok(());
        };
        parents.forget(path.as_bytes());
        match rustix::fs::unlinkat(&parent, path.split_last().1, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed.map_err(failed),
        }
    }

    /// As [`TargetDir::remove_dir`], but leaves a directory that has something in it.
    ///
    /// # Errors
    ///
    /// [`TargetError::Remove`].
    pub fn remove_dir_if_empty(&self, path: &RelPath) -> Result<(), TargetError> {
        match self.remove_dir(path) {
            Err(TargetError::Remove { source, .. })
                if source.kind() == io::ErrorKind::DirectoryNotEmpty =>
            {
                Ok(())
            }
            removed => removed,
        }
    }

    /// Creates a directory, with those of its path. One that exists is no error.
    ///
    /// # Errors
    ///
    /// [`TargetError::NotADirectory`], [`TargetError::Create`].
    pub fn make_dir(&self, path: &RelPath) -> Result<(), TargetError> {
        // A file in it makes all that is above.
        let inside = RelPath::new(&[path.as_bytes(), b"/x"].concat()).map_err(|error| {
            TargetError::Create { path: path.clone(), source: io::Error::other(error) }
        })?;
        self.parents_for(path).parent_of(&inside, Missing::Make).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use rustix::fs::Mode;

    use super::*;

    fn path(name: &str) -> RelPath {
        RelPath::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn files_are_changed_in_place_and_no_link_is_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("f"), "theirs").unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        assert!(target.open_in_place(&path("a/f"), IfMissing::Fail).is_err());
        assert!(!target.has(&path("a")).unwrap() && !target.has(&path("a/f")).unwrap());
        let mut file = target.open_in_place(&path("a/f"), IfMissing::Create).unwrap();
        file.write_all(b"mine").unwrap();
        assert!(target.has(&path("a/f")).unwrap());
        drop(target.open_in_place(&path("a/f"), IfMissing::Create).unwrap());
        assert_eq!(std::fs::read(dir.path().join("a/f")).unwrap(), b"mine");
        symlink(outside.path().join("f"), dir.path().join("link")).unwrap();
        symlink(outside.path(), dir.path().join("links")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), Mode::RWXU).unwrap();
        for name in ["link", "links/f", "links/new", "pipe", "a"] {
            for how in [IfMissing::Fail, IfMissing::Create] {
                assert!(target.open_in_place(&path(name), how).is_err(), "{name}");
            }
        }
        assert!(target.make_dir(&path("links/new")).is_err());
        assert_eq!(std::fs::read(outside.path().join("f")).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_is_renamed_whole_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        target.make_dir(&path("new")).unwrap();
        target.make_dir(&path("new")).unwrap();
        drop(target.open_in_place(&path("new/f"), IfMissing::Create).unwrap());
        target.make_dir(&path("old")).unwrap();
        let error = target.rename_dir(&path("new"), &path("old")).unwrap_err();
        assert!(matches!(error, TargetError::Exists { .. }), "{error}");
        assert!(target.remove_dir(&path("new")).is_err());
        target.remove_dir_if_empty(&path("new")).unwrap();
        target.remove_dir(&path("old")).unwrap();
        target.remove_dir(&path("old")).unwrap();
        target.rename_dir(&path("new"), &path("old")).unwrap();
        assert!(dir.path().join("old/f").exists() && !dir.path().join("new").exists());
    }
}
