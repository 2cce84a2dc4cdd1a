//! Files beneath a target directory, visible under their names only when they are complete.

mod descriptors;
mod dirs;
pub(crate) mod error;
pub(crate) mod existing;
mod into_place;
mod nameless;
mod parents;
pub(crate) mod partial_dir;
pub(crate) mod partial_file;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::RelPath;
use crate::target::descriptors::Descriptors;
use crate::target::dirs::DIR_MODE;
use crate::target::error::TargetError;
use crate::target::into_place::move_into_place;
use crate::target::nameless::UnnamedFiles;
use crate::target::parents::{Missing, Parents};
use crate::target::partial_dir::{PARTIAL_DIR, PartialDir, reserved};
use crate::target::partial_file::PartialFile;

/// Mode of files, reduced by the umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);

/// A directory that files are extracted into. It is held open, and all names are looked up beneath
/// it, so that changes to its own path have no effect.
///
/// Files grow in `.xb-partial/` inside it and get their names when they are complete
/// ([`PartialFile::commit`]). Existing files are never overwritten. No symbolic link beneath the
/// directory is followed, and none is created. Drop or [`TargetDir::close`] removes `.xb-partial/`
/// if no other run uses it; the next run removes what a killed run has left there.
///
/// While it is open, the soft limit of open files of the process is raised to the hard limit.
#[derive(Debug)]
pub struct TargetDir {
    parents: Parents,
    run: Arc<PartialDir>,
    descriptors: Arc<Descriptors>,
    nameless: Arc<UnnamedFiles>,
    next: AtomicU64,
    file_mode: Mode,
    elsewhere: Vec<SecondTarget>,
}

impl TargetDir {
    /// Opens an existing directory for extraction. `path` itself may contain symbolic links.
    ///
    /// # Errors
    ///
    /// [`TargetError::Open`]: it does not exist, is not a directory or is not writable.
    pub fn open(path: &Path) -> Result<Self, TargetError> {
        let failed =
            |error: Errno| TargetError::Open { path: path.to_path_buf(), source: error.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Arc::new(rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?);
        let run = Arc::new(PartialDir::make(Arc::clone(&root)).map_err(failed)?);
        Ok(Self::of(root, run, 0))
    }

    /// Opens a directory like [`TargetDir::open`], for a run that can be resumed: files that are
    /// unfinished when it ends stay in `.xb-partial/restore/` until [`TargetDir::clear`]. A
    /// directory has at most one such run at a time.
    ///
    /// # Errors
    ///
    /// [`TargetError::Open`], also while another such run is active.
    pub fn open_kept(path: &Path) -> Result<Self, TargetError> {
        let failed =
            |error: Errno| TargetError::Open { path: path.to_path_buf(), source: error.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Arc::new(rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?);
        let run = match PartialDir::keep(Arc::clone(&root)) {
            Err(Errno::BUSY) => return Err(TargetError::InUse { path: path.to_path_buf() }),
            run => Arc::new(run.map_err(failed)?),
        };
        // Numbers are unique across runs: counting starts after those that earlier runs left.
        let number = |name: Vec<u8>| std::str::from_utf8(&name).ok()?.parse::<u64>().ok();
        let next = run.entries().into_iter().filter_map(number).max().map_or(0, |last| last + 1);
        Ok(Self::of(root, run, next))
    }

    fn of(root: Arc<OwnedFd>, run: Arc<PartialDir>, next: u64) -> Self {
        let descriptors = Arc::new(Descriptors::of_process());
        Self {
            parents: Parents::new(root, DIR_MODE),
            run,
            descriptors,
            nameless: Arc::default(),
            next: AtomicU64::new(next),
            file_mode: FILE_MODE,
            elsewhere: Vec::new(),
        }
    }

    /// Sets the permission bits of new files and directories, which the umask reduces. Default:
    /// `0o640` and `0o750`.
    #[must_use]
    pub fn with_modes(self, file: u32, dir: u32) -> Self {
        let [file_mode, dir_mode] = [file, dir].map(Mode::from_raw_mode);
        let parents = Parents::new(self.parents.root, dir_mode);
        Self { file_mode, parents, ..self }
    }

    /// Path of a resumable run's unfinished files, beneath `path`; also used for a journal.
    #[must_use]
    pub fn kept_folder(path: &Path) -> PathBuf {
        path.join(PARTIAL_DIR).join(crate::target::partial_dir::KEPT)
    }

    /// Whether there is something of a run that has not ended, or was killed while it ended.
    ///
    /// # Errors
    ///
    /// If that cannot be found out.
    pub fn has_unfinished(path: &Path) -> std::io::Result<bool> {
        path.join(PARTIAL_DIR).try_exists()
    }

    /// The folder of unfinished files, held open. Files that belong beside them are looked up from
    /// here, not by a path in which someone else may have placed a symbolic link.
    #[must_use]
    pub fn unfinished(&self) -> BorrowedFd<'_> {
        self.run.dir.as_fd()
    }

    /// Removes the unfinished files whose numbers `keep` does not select; other files stay.
    ///
    /// # Errors
    ///
    /// [`TargetError::Sync`] when a file cannot be removed.
    pub fn clear(&self, keep: impl Fn(u64) -> bool) -> Result<(), TargetError> {
        for name in self.run.entries() {
            let number = std::str::from_utf8(&name).ok().and_then(|text| text.parse::<u64>().ok());
            if number.is_some_and(|number| !keep(number)) {
                rustix::fs::unlinkat(&self.run.dir, &name[..], AtFlags::empty())
                    .map_err(|error| TargetError::Sync { source: error.into() })?;
            }
        }
        Ok(())
    }

    /// Numbers new files from `next` on, at least: earlier runs have given the numbers before it.
    pub fn number_from(&self, next: u64) {
        self.next.fetch_max(next, Ordering::Relaxed);
    }

    /// Resumes the unfinished file of this number, whose final name is `path`, behind its first `upto` bytes. What it
    /// has beyond them is cut off.
    ///
    /// # Errors
    ///
    /// The file is missing or cannot be opened or cut, or its final name is taken.
    pub fn go_on(
        &self,
        path: &RelPath,
        number: u64,
        upto: u64,
    ) -> Result<PartialFile, TargetError> {
        if let Some(target) = self.other_of(path) {
            return target.go_on(path, number, upto);
        }
        self.check_absent(path)?;
        let failed = |error: io::Error| TargetError::Create { path: path.clone(), source: error };
        let file = self.partial(path, number);
        file.reopen(upto).map_err(failed)?;
        Ok(file)
    }

    fn partial(&self, path: &RelPath, number: u64) -> PartialFile {
        let (descriptors, run) = (Arc::clone(&self.descriptors), Arc::clone(&self.run));
        PartialFile::new(descriptors, run, number, path.clone(), self.file_mode)
    }

    /// Begins a file like [`TargetDir::begin`], for a thread that completes it before it begins
    /// another one: the file keeps its descriptor. Where possible it has no name at all until
    /// [`PartialFile::commit`], which is the first to notice that the name is taken.
    ///
    /// # Errors
    ///
    /// As [`TargetDir::begin`].
    pub fn begin_brief(&self, path: &RelPath) -> Result<PartialFile, TargetError> {
        if let Some(target) = self.other_of(path) {
            return target.begin_brief(path);
        }
        // A run that keeps unfinished files must find them again.
        let file =
            if self.run.kept { None } else { self.nameless.create(&self.run.dir, self.file_mode) };
        match file {
            None => self.begin(path),
            Some(file) => Ok(self.partial(path, 0).without_name(file, Arc::clone(&self.nameless))),
        }
    }

    /// Begins a file whose final name is `path`. Nothing is visible under that name yet.
    ///
    /// # Errors
    ///
    /// The name is taken or reserved, a component of its path is not a directory, or the file
    /// cannot be created.
    pub fn begin(&self, path: &RelPath) -> Result<PartialFile, TargetError> {
        if let Some(target) = self.other_of(path) {
            return target.begin(path);
        }
        self.check_absent(path)?;
        let file = self.partial(path, self.next.fetch_add(1, Ordering::Relaxed));
        file.create()
            .map_err(|error| TargetError::Create { path: path.clone(), source: error.into() })?;
        Ok(file)
    }

    /// Checks that a file of this name could be created: nothing has the name, and the existing
    /// components of its path are directories.
    ///
    /// # Errors
    ///
    /// The name is taken or reserved, or a component of its path is not a directory.
    pub fn check_absent(&self, path: &RelPath) -> Result<(), TargetError> {
        if reserved(path).is_some() {
            return Err(TargetError::Reserved { path: path.clone() });
        }
        let parents = self.parents_for(path);
        let Some(parent) = parents.parent_of(path, Missing::Stop)? else { return Ok(()) };
        match rustix::fs::statat(&parent, path.split_last().1, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(TargetError::Exists { path: path.clone() }),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(TargetError::Create { path: path.clone(), source: error.into() }),
        }
    }

    /// Renames a file that was committed here. Never overwrites.
    ///
    /// # Errors
    ///
    /// The new name is taken or reserved, a component of its path is not a directory, or the system
    /// call fails.
    pub fn rename(&self, from: &RelPath, to: &RelPath) -> Result<(), TargetError> {
        self.check_absent(to)?;
        let failed = |error: Errno| match error {
            Errno::EXIST => TargetError::Exists { path: to.clone() },
            error => {
                TargetError::Rename { path: from.clone(), to: to.clone(), source: error.into() }
            }
        };
        let missing = || failed(Errno::NOENT);
        let old = self.parents_for(from).parent_of(from, Missing::Stop)?.ok_or_else(missing)?;
        let new = self.parents_for(to).parent_of(to, Missing::Make)?.ok_or_else(missing)?;
        move_into_place(&old, from.split_last().1, &new, to.split_last().1).map_err(failed)
    }

    /// Removes a file that was committed here. Its directory stays, even if it is empty now.
    ///
    /// # Errors
    ///
    /// The file does not exist, or the system call fails.
    pub fn remove(&self, path: &RelPath) -> Result<(), TargetError> {
        let failed =
            |error: Errno| TargetError::Remove { path: path.clone(), source: error.into() };
        let parents = self.parents_for(path);
        let parent = parents.parent_of(path, Missing::Stop)?.ok_or_else(|| failed(Errno::NOENT))?;
        rustix::fs::unlinkat(&parent, path.split_last().1, AtFlags::empty()).map_err(failed)
    }

    /// Syncs the file systems of this directory and of those given to
    /// [`TargetDir::with_elsewhere`], and checks whether any write to them has failed since
    /// [`TargetDir::open`].
    ///
    /// # Errors
    ///
    /// [`TargetError::Sync`]: data may be lost.
    pub fn sync(&self) -> Result<(), TargetError> {
        rustix::fs::syncfs(&self.parents.root)
            .map_err(|error| TargetError::Sync { source: error.into() })?;
        self.elsewhere.iter().try_for_each(|other| other.target.sync())
    }

    /// Closes the directory. Uncommitted files are removed when their [`PartialFile`]s are dropped.
    /// Drop them first: otherwise the empty `.xb-partial/` stays a little longer.
    pub fn close(self) {
        drop(self);
    }
}

/// Another directory, and which files go there.
struct SecondTarget {
    target: TargetDir,
    selects: Box<Selects>,
}

type Selects = dyn Fn(&[u8]) -> bool + Send + Sync;

impl fmt::Debug for SecondTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecondTarget").field(&self.target).finish()
    }
}

impl TargetDir {
    /// Puts files into `target` instead of this directory: those whose name has one component that
    /// `selects` returns true for. Such a file keeps its name there. Of several directories that
    /// select a name, the first counts.
    #[must_use]
    pub fn with_elsewhere(
        mut self,
        mut target: Self,
        selects: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        // One limit for all descriptors.
        target.descriptors = Arc::clone(&self.descriptors);
        self.elsewhere.push(SecondTarget { target, selects: Box::new(selects) });
        self
    }

    /// The other directory that a file goes to, if it does.
    fn other_of(&self, path: &RelPath) -> Option<&Self> {
        let (None, name) = path.split_last() else { return None };
        let other = self.elsewhere.iter().find(|other| (other.selects)(name))?;
        Some(&other.target)
    }

    /// Finds the parents of a file in the directory that it goes to.
    fn parents_for(&self, path: &RelPath) -> &Parents {
        &self.other_of(path).unwrap_or(self).parents
    }
}

impl PartialFile {
    /// Gives the file its length and its final name, and creates the directories of its path. All
    /// writes must have returned. With `durable` the file is synced before it gets the name.
    ///
    /// # Errors
    ///
    /// The name is taken or reserved, a component of its path is not a directory, or a system call
    /// fails. The file is then removed.
    pub fn commit(
        self,
        target: &TargetDir,
        path: &RelPath,
        size: u64,
        durable: bool,
    ) -> Result<(), TargetError> {
        self.commit_beneath(target.parents_for(path), path, size, durable)
    }
}
