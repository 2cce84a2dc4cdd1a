//! Files beneath a target directory, visible under their names only when they are complete.

pub(crate) mod descriptors;
pub(crate) mod dirs;
pub(crate) mod partial_dir;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::target::descriptors::{Descriptors, Slot};
use crate::target::dirs::{DIR_MODE, STEP, make_dir};
use crate::target::partial_dir::{PARTIAL_DIR, PartialDir};
use crate::{Printable, RelPath};

/// Mode of files, reduced by the umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);

/// Flags for reopening an unfinished file.
const AGAIN: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns the reserved prefix of the name, if it has one. Reserved names belong to a restore in
/// progress: unfinished files, and increments not applied yet. They are removed when it ends.
#[must_use]
pub fn reserved(path: &RelPath) -> Option<&'static str> {
    [PARTIAL_DIR, ".xb-incremental"]
        .into_iter()
        .find(|prefix| path.as_bytes().starts_with(prefix.as_bytes()))
}

/// An operation in the target directory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The target directory itself cannot be opened or written to.
    #[error("cannot write to the directory {}: {source}", .path.display())]
    Open {
        /// The directory as the caller named it.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The name is reserved for files that a restore keeps in the target while it runs.
    #[error("{path}: names starting with {} are reserved", reserved(path).unwrap_or(PARTIAL_DIR))]
    Reserved {
        /// The name in the stream.
        path: RelPath,
    },
    /// Something of that name exists already.
    #[error("{path}: already exists")]
    Exists {
        /// The name in the stream.
        path: RelPath,
    },
    /// A component of the path is not a directory, but a file or a symbolic link, which is never
    /// followed.
    #[error("{path}: {component} is not a directory")]
    NotADirectory {
        /// The name in the stream.
        path: RelPath,
        /// The component.
        component: Printable,
    },
    /// The file, or a directory on its path, cannot be created.
    #[error("{path}: cannot create: {source}")]
    Create {
        /// The name in the stream.
        path: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// Bytes cannot be written.
    #[error("{path}: cannot write at offset {offset}: {source}")]
    Write {
        /// The name in the stream.
        path: RelPath,
        /// Offset in the file.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// Bytes written earlier cannot be read back.
    #[error("{path}: cannot read back at offset {offset}: {source}")]
    ReadBack {
        /// The name in the stream.
        path: RelPath,
        /// Offset in the file.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is written, but setting its length, syncing it or giving it its name failed.
    #[error("{path}: cannot complete: {source}")]
    Commit {
        /// The name in the stream.
        path: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file cannot be renamed.
    #[error("{path}: cannot rename to {to}: {source}")]
    Rename {
        /// The old name.
        path: RelPath,
        /// The new name.
        to: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file cannot be removed.
    #[error("{path}: cannot remove: {source}")]
    Remove {
        /// The name in the stream.
        path: RelPath,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file system reported that it could not store what was written.
    #[error("cannot sync the files to disk: {source}")]
    Sync {
        /// The operating system's error.
        source: io::Error,
    },
}

impl TargetError {
    /// The file that the error is about, if any.
    #[must_use]
    pub fn path(&self) -> Option<&RelPath> {
        match self {
            Self::Open { .. } | Self::Sync { .. } => None,
            Self::Reserved { path }
            | Self::Exists { path }
            | Self::NotADirectory { path, .. }
            | Self::Create { path, .. }
            | Self::Write { path, .. }
            | Self::ReadBack { path, .. }
            | Self::Commit { path, .. }
            | Self::Rename { path, .. }
            | Self::Remove { path, .. } => Some(path),
        }
    }
}

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
    root: Arc<OwnedFd>,
    run: Arc<PartialDir>,
    descriptors: Arc<Descriptors>,
    next: AtomicU64,
    file_mode: Mode,
    dir_mode: Mode,
    /// The directory used last. Most streams list files directory by directory.
    parent: Mutex<Option<Parent>>,
}

/// A directory beneath the target, and its name there.
#[derive(Debug)]
struct Parent {
    name: Box<[u8]>,
    dir: Arc<OwnedFd>,
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
        let run = Arc::new(PartialDir::keep(Arc::clone(&root)).map_err(failed)?);
        // Numbers are unique across runs: counting starts after those that earlier runs left.
        let number = |name: Vec<u8>| std::str::from_utf8(&name).ok()?.parse::<u64>().ok();
        let next = run.entries().into_iter().filter_map(number).max().map_or(0, |last| last + 1);
        Ok(Self::of(root, run, next))
    }

    fn of(root: Arc<OwnedFd>, run: Arc<PartialDir>, next: u64) -> Self {
        let descriptors = Arc::new(Descriptors::of_process());
        Self {
            root,
            run,
            descriptors,
            next: AtomicU64::new(next),
            file_mode: FILE_MODE,
            dir_mode: DIR_MODE,
            parent: Mutex::new(None),
        }
    }

    /// Sets the permission bits of new files and directories, which the umask reduces. Default:
    /// `0o640` and `0o750`.
    #[must_use]
    pub fn with_modes(self, file: u32, dir: u32) -> Self {
        let [file_mode, dir_mode] = [file, dir].map(Mode::from_raw_mode);
        Self { file_mode, dir_mode, ..self }
    }

    /// Path of a resumable run's unfinished files, beneath `path`; also used for a journal.
    #[must_use]
    pub fn kept_folder(path: &Path) -> PathBuf {
        path.join(PARTIAL_DIR).join(crate::target::partial_dir::KEPT)
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

    /// Resumes the unfinished file of this number, whose final name is `path`.
    ///
    /// # Errors
    ///
    /// The file is missing or cannot be opened, or its final name is taken.
    pub fn go_on(&self, path: &RelPath, number: u64) -> Result<PartialFile, TargetError> {
        self.check_absent(path)?;
        let failed = |error: io::Error| TargetError::Create { path: path.clone(), source: error };
        let file = self.partial(path, number);
        let size = file.file().and_then(|file| file.metadata()).map_err(failed)?.len();
        file.size.store(size, Ordering::Release);
        Ok(file)
    }

    fn partial(&self, path: &RelPath, number: u64) -> PartialFile {
        PartialFile {
            slot: Arc::default(),
            descriptors: Arc::clone(&self.descriptors),
            run: Arc::clone(&self.run),
            name: number.to_string(),
            path: path.clone(),
            mode: self.file_mode,
            size: AtomicU64::new(0),
            committed: false,
        }
    }

    /// Begins a file whose final name is `path`. Nothing is visible under that name yet.
    ///
    /// # Errors
    ///
    /// The name is taken or reserved, a component of its path is not a directory, or the file
    /// cannot be created.
    pub fn begin(&self, path: &RelPath) -> Result<PartialFile, TargetError> {
        self.check_absent(path)?;
        let file = self.partial(path, self.next.fetch_add(1, Ordering::Relaxed));
        file.opened(AGAIN | OFlags::CREATE | OFlags::EXCL)
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
        let Some(parent) = self.parent_of(path, Missing::Stop)? else { return Ok(()) };
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
        let old = self.parent_of(from, Missing::Stop)?.ok_or_else(|| failed(Errno::NOENT))?;
        let new = self.parent_of(to, Missing::Make)?.ok_or_else(|| failed(Errno::NOENT))?;
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
        let parent = self.parent_of(path, Missing::Stop)?.ok_or_else(|| failed(Errno::NOENT))?;
        rustix::fs::unlinkat(&parent, path.split_last().1, AtFlags::empty()).map_err(failed)
    }

    /// Syncs the directory's file system, and checks whether any write to it has failed since
    /// [`TargetDir::open`].
    ///
    /// # Errors
    ///
    /// [`TargetError::Sync`]: data may be lost.
    pub fn sync(&self) -> Result<(), TargetError> {
        rustix::fs::syncfs(&self.root).map_err(|error| TargetError::Sync { source: error.into() })
    }

    /// Closes the directory. Uncommitted files are removed when their [`PartialFile`]s are dropped.
    /// Drop them first: otherwise the empty `.xb-partial/` stays a little longer.
    pub fn close(self) {
        drop(self);
    }

    /// The directory that contains `path`'s last component; `None` if it does not exist.
    fn parent_of(
        &self,
        path: &RelPath,
        missing: Missing,
    ) -> Result<Option<Arc<OwnedFd>>, TargetError> {
        let Some(parent) = path.split_last().0 else { return Ok(Some(Arc::clone(&self.root))) };
        let mut cached = self.parent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cached.as_ref().filter(|known| *known.name == *parent) {
            return Ok(Some(Arc::clone(&known.dir)));
        }
        let failed =
            |error: Errno| TargetError::Create { path: path.clone(), source: error.into() };
        let mut dir = Arc::clone(&self.root);
        for component in parent.split(|&b| b == b'/') {
            if missing == Missing::Make {
                make_dir(&dir, component, self.dir_mode).map_err(failed)?;
            }
            dir = match rustix::fs::openat(&dir, component, STEP, Mode::empty()) {
                Ok(next) => Arc::new(next),
                Err(Errno::NOENT) if missing == Missing::Stop => return Ok(None),
                // For a link or a file, Linux returns one or the other depending on the two flags.
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let component = Printable::new(component);
                    return Err(TargetError::NotADirectory { path: path.clone(), component });
                }
                Err(error) => return Err(failed(error)),
            };
        }
        *cached = Some(Parent { name: parent.into(), dir: Arc::clone(&dir) });
        Ok(Some(dir))
    }
}

/// What to do about missing directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Stop,
}

/// A file that is not complete yet. Dropping it removes it.
///
/// Several threads may write to it at once. Ranges that are not written stay holes. Any number of
/// partial files can exist at a time: a file only has a descriptor while there are enough of them.
#[derive(Debug)]
pub struct PartialFile {
    slot: Arc<Slot>,
    descriptors: Arc<Descriptors>,
    run: Arc<PartialDir>,
    /// Its name in the directory of unfinished files.
    name: String,
    /// Its final name as given at the beginning, for messages.
    path: RelPath,
    mode: Mode,
    /// End of the highest byte written.
    size: AtomicU64,
    committed: bool,
}

impl PartialFile {
    /// Number of the file among the unfinished files of its run.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.name.parse().unwrap_or(u64::MAX)
    }

    fn file(&self) -> io::Result<Arc<File>> {
        Ok(self.opened(AGAIN)?)
    }

    fn opened(&self, flags: OFlags) -> rustix::io::Result<Arc<File>> {
        let open = || rustix::fs::openat(&self.run.dir, &self.name, flags, self.mode);
        self.descriptors.get(&self.slot, open)
    }

    /// Removes the file, also in a run that keeps unfinished files.
    pub fn discard(mut self) {
        // Best effort, as in drop.
        let _ = rustix::fs::unlinkat(&self.run.dir, &self.name, AtFlags::empty());
        self.committed = true;
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    ///
    /// [`TargetError::Write`]; some of the bytes may have been written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        let written = self.file().and_then(|file| file.write_all_at(bytes, offset));
        written.map_err(|source| TargetError::Write { path: self.path.clone(), offset, source })?;
        self.size.fetch_max(offset.saturating_add(bytes.len() as u64), Ordering::AcqRel);
        Ok(())
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// [`TargetError::ReadBack`], also when the file is shorter.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), TargetError> {
        let read = self.file().and_then(|file| file.read_exact_at(buffer, offset));
        read.map_err(|source| TargetError::ReadBack { path: self.path.clone(), offset, source })
    }

    /// Gives the file its length and its final name, and creates the directories of its path. All
    /// writes must have returned. With `durable` the file is synced before it gets the name.
    ///
    /// # Errors
    ///
    /// The name is taken or reserved, a component of its path is not a directory, or a system call
    /// fails. The file is then removed.
    pub fn commit(
        mut self,
        target: &TargetDir,
        path: &RelPath,
        size: u64,
        durable: bool,
    ) -> Result<(), TargetError> {
        let failed = |source: io::Error| TargetError::Commit { path: path.clone(), source };
        if reserved(path).is_some() {
            return Err(TargetError::Reserved { path: path.clone() });
        }
        if *self.size.get_mut() != size {
            // A hole at the end.
            self.file().and_then(|file| file.set_len(size)).map_err(failed)?;
        }
        if durable {
            self.file().and_then(|file| file.sync_all()).map_err(failed)?;
        }
        let parent =
            target.parent_of(path, Missing::Make)?.ok_or_else(|| failed(Errno::NOENT.into()))?;
        move_into_place(&self.run.dir, self.name.as_bytes(), &parent, path.split_last().1)
            .map_err(|error| match error {
                Errno::EXIST => TargetError::Exists { path: path.clone() },
                error => failed(error.into()),
            })?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        self.descriptors.close(&self.slot);
        if !self.committed && !self.run.kept {
            // Best effort: drop cannot report an error, and the file does not have its final name.
            let _ = rustix::fs::unlinkat(&self.run.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Moves a file within one file system; [`Errno::EXIST`] if the new name is taken.
fn move_into_place(
    old: impl AsFd,
    from: &[u8],
    new: impl AsFd,
    to: &[u8],
) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(&old, from, &new, to, RenameFlags::NOREPLACE) {
        // Not every file system supports the flag.
        Err(Errno::INVAL | Errno::NOSYS) => link_into_place(old, from, new, to),
        moved => moved,
    }
}

/// Moves a file where the flag is not supported. A hard link never replaces anything either.
fn link_into_place(
    old: impl AsFd,
    from: &[u8],
    new: impl AsFd,
    to: &[u8],
) -> rustix::io::Result<()> {
    rustix::fs::linkat(&old, from, new, to, AtFlags::empty())?;
    rustix::fs::unlinkat(old, from, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn name(name: &str) -> RelPath {
        RelPath::new(name.as_bytes()).unwrap()
    }

    fn put(target: &TargetDir, path: &str, bytes: &[u8]) -> Result<(), TargetError> {
        let file = target.begin(&name(path))?;
        file.write_at(0, bytes)?;
        file.commit(target, &name(path), bytes.len() as u64, false)
    }

    fn entries(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        let file = target.begin(&name("a/b/c")).unwrap();
        file.write_at(0, b"half").unwrap();
        assert_eq!(entries(dir.path()), [PARTIAL_DIR]);
        file.commit(&target, &name("a/b/c"), 4, true).unwrap();
        assert_eq!(fs::read(dir.path().join("a/b/c")).unwrap(), b"half");
        let dropped = target.begin(&name("x")).unwrap();
        dropped.write_at(0, b"half").unwrap();
        drop(dropped);
        target.sync().unwrap();
        target.close();
        assert_eq!(entries(dir.path()), ["a"]);
    }

    #[test]
    fn modes_are_not_open_to_the_world() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        put(&target, "d/f", b"x").unwrap();
        let mode =
            |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("d/f") & !0o640, 0);
        assert_eq!(mode("d") & !0o750, 0);

        let target = target.with_modes(0o600, 0o700);
        put(&target, "e/f", b"x").unwrap();
        assert_eq!((mode("e/f"), mode("e")), (0o600, 0o700));
    }

    #[test]
    fn holes_stay_holes() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        let file = target.begin(&name("sparse")).unwrap();
        file.write_at(64 << 20, &[7; 4096]).unwrap();
        file.commit(&target, &name("sparse"), 128 << 20, false).unwrap();
        let meta = fs::metadata(dir.path().join("sparse")).unwrap();
        assert_eq!(meta.len(), 128 << 20);
        assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    }

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), "old").unwrap();
        symlink("nowhere", dir.path().join("link")).unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        for path in ["old", "link"] {
            assert!(matches!(target.begin(&name(path)), Err(TargetError::Exists { .. })), "{path}");
        }
        // Also when the name appears in between.
        let file = target.begin(&name("late")).unwrap();
        fs::write(dir.path().join("late"), "theirs").unwrap();
        let error = file.commit(&target, &name("late"), 0, false).unwrap_err();
        assert!(matches!(error, TargetError::Exists { .. }), "{error}");
        put(&target, "mine", b"mine").unwrap();
        let error = target.rename(&name("mine"), &name("old")).unwrap_err();
        assert!(matches!(error, TargetError::Exists { .. }), "{error}");
        assert_eq!(fs::read(dir.path().join("late")).unwrap(), b"theirs");
        assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"old");
    }

    #[test]
    fn no_symbolic_link_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        put(&target, "mine", b"mine").unwrap();
        for path in ["out/x", "out/deeper/x", "file/x"] {
            let error = target.begin(&name(path)).unwrap_err();
            assert!(matches!(error, TargetError::NotADirectory { .. }), "{path}: {error}");
            let error = target.rename(&name("mine"), &name(path)).unwrap_err();
            assert!(matches!(error, TargetError::NotADirectory { .. }), "{path}: {error}");
            let error = target.remove(&name(path)).unwrap_err();
            assert!(matches!(error, TargetError::NotADirectory { .. }), "{path}: {error}");
        }
        // A directory replaced by a link after the file was begun.
        let file = target.begin(&name("later/x")).unwrap();
        symlink(outside.path(), dir.path().join("later")).unwrap();
        let error = file.commit(&target, &name("later/x"), 0, false).unwrap_err();
        assert!(matches!(error, TargetError::NotADirectory { .. }), "{error}");
        assert_eq!(entries(outside.path()), Vec::<String>::new());
    }

    #[test]
    fn the_directory_of_unfinished_files_is_out_of_reach() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        put(&target, "mine", b"mine").unwrap();
        for path in [".xb-partial", ".xb-partial/1/0", ".xb-partial-2", ".xb-incremental/1/x"] {
            assert!(
                matches!(target.begin(&name(path)), Err(TargetError::Reserved { .. })),
                "{path}"
            );
            let renamed = target.rename(&name("mine"), &name(path));
            assert!(matches!(renamed, Err(TargetError::Reserved { .. })), "{path}");
            let file = target.begin(&name("x")).unwrap();
            let committed = file.commit(&target, &name(path), 0, false);
            assert!(matches!(committed, Err(TargetError::Reserved { .. })), "{path}");
        }
        // A link that someone else placed here is not ours to remove.
        drop(target);
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join(PARTIAL_DIR)).unwrap();
        assert!(matches!(TargetDir::open(dir.path()), Err(TargetError::Open { .. })));
    }

    #[test]
    fn rename_and_remove_reach_committed_files() {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        put(&target, "a", b"1").unwrap();
        target.rename(&name("a"), &name("new/dir/b")).unwrap();
        assert_eq!(fs::read(dir.path().join("new/dir/b")).unwrap(), b"1");
        target.remove(&name("new/dir/b")).unwrap();
        assert!(matches!(target.remove(&name("new/dir/b")), Err(TargetError::Remove { .. })));
        target.close();
        assert_eq!(entries(dir.path()), ["new"]);
    }

    #[test]
    fn two_runs_share_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let one = TargetDir::open(dir.path()).unwrap();
        let two = TargetDir::open(dir.path()).unwrap();
        let file = two.begin(&name("x")).unwrap();
        one.close();
        file.commit(&two, &name("x"), 0, false).unwrap();
        two.close();
        assert_eq!(entries(dir.path()), ["x"]);
    }

    #[test]
    fn linking_into_place_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "a").unwrap();
        fs::write(dir.path().join("b"), "b").unwrap();
        let at = File::open(dir.path()).unwrap();
        assert_eq!(link_into_place(&at, b"a", &at, b"b"), Err(Errno::EXIST));
        link_into_place(&at, b"a", &at, b"c").unwrap();
        assert_eq!(entries(dir.path()), ["b", "c"]);
        assert_eq!(fs::read(dir.path().join("c")).unwrap(), b"a");
    }

    #[test]
    fn what_cannot_be_opened_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = TargetDir::open(&missing).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
    }
}
