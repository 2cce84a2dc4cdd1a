//! One file that is not complete yet.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::RelPath;
use crate::target::descriptors::{Descriptors, Slot};
use crate::target::error::TargetError;
use crate::target::into_place::move_into_place;
use crate::target::nameless::UnnamedFiles;
use crate::target::parents::{Missing, Parents};
use crate::target::partial_dir::{PartialDir, reserved};

/// Flags for reopening an unfinished file.
const REOPEN: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

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
    /// The file, if it has no name there.
    nameless: Option<(Arc<File>, Arc<UnnamedFiles>)>,
    /// Its final name as given at the beginning, for messages.
    path: RelPath,
    mode: Mode,
    /// End of the highest byte written.
    size: AtomicU64,
    /// Held by the thread that writes. The kernel lets only one thread write to a file; the others
    /// wait there for as long as the first one runs, and use up processor time.
    writing: Mutex<()>,
    committed: bool,
}

impl PartialFile {
    pub(crate) fn new(
        descriptors: Arc<Descriptors>,
        run: Arc<PartialDir>,
        number: u64,
        path: RelPath,
        mode: Mode,
    ) -> Self {
        Self {
            slot: Arc::default(),
            descriptors,
            run,
            name: number.to_string(),
            nameless: None,
            path,
            mode,
            size: AtomicU64::new(0),
            writing: Mutex::default(),
            committed: false,
        }
    }

    /// Makes this the file behind `file`, which has no name. It is not among the numbered files.
    pub(crate) fn without_name(mut self, file: OwnedFd, nameless: Arc<UnnamedFiles>) -> Self {
        self.name.clear();
        self.nameless = Some((Arc::new(File::from(file)), nameless));
        self
    }

    /// Creates the file, which must not exist.
    pub(crate) fn create(&self) -> rustix::io::Result<()> {
        self.opened(REOPEN | OFlags::CREATE | OFlags::EXCL).map(drop)
    }

    /// Opens the file that an earlier run has left, and makes it `upto` bytes long: what may lie beyond was never
    /// compared with a checksum, and ranges that are not written must be holes.
    pub(crate) fn reopen(&self, upto: u64) -> io::Result<()> {
        self.file()?.set_len(upto)?;
        self.size.store(upto, Ordering::Release);
        Ok(())
    }

    /// Number of the file among the unfinished files of its run.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.name.parse().unwrap_or(u64::MAX)
    }

    fn file(&self) -> io::Result<Arc<File>> {
        match &self.nameless {
            Some((file, _)) => Ok(Arc::clone(file)),
            None => Ok(self.opened(REOPEN)?),
        }
    }

    fn opened(&self, flags: OFlags) -> rustix::io::Result<Arc<File>> {
        let open = || rustix::fs::openat(&self.run.dir, &self.name, flags, self.mode);
        self.descriptors.get(&self.slot, open)
    }

    /// Removes the file, also in a run that keeps unfinished files.
    pub fn discard(mut self) {
        if self.nameless.is_none() {
            // Best effort, as in drop.
            let _ = rustix::fs::unlinkat(&self.run.dir, &self.name, AtFlags::empty());
        }
        self.committed = true;
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    ///
    /// [`TargetError::Write`]; some of the bytes may have been written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        let written = self.file().and_then(|file| {
            let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all_at(bytes, offset)
        });
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

    /// Gives the file its length and its final name; see [`PartialFile::commit`].
    pub(crate) fn commit_beneath(
        mut self,
        parents: &Parents,
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
            parents.parent_of(path, Missing::Make)?.ok_or_else(|| failed(Errno::NOENT.into()))?;
        let name = path.split_last().1;
        let moved = match &self.nameless {
            Some((file, nameless)) => nameless.link(file, &parent, name),
            None => move_into_place(&self.run.dir, self.name.as_bytes(), &parent, name),
        };
        moved.map_err(|error| match error {
            Errno::EXIST => TargetError::Exists { path: path.clone() },
            error => failed(error.into()),
        })?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if self.nameless.is_some() {
            return;
        }
        self.descriptors.close(&self.slot);
        if !self.committed && !self.run.kept {
            // Best effort: drop cannot report an error, and the file does not have its final name.
            let _ = rustix::fs::unlinkat(&self.run.dir, &self.name, AtFlags::empty());
        }
    }
}
