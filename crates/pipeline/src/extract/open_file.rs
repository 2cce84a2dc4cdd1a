//! A file that is being extracted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockWriteGuard};

use xb_reader::{ContentSum, PartialFile, RelPath, TargetDir, TargetError};

use super::report::ExtractCause;
use crate::extract::decode::Member;

/// Adds the chunk's position to an error in the target directory.
pub(super) fn at(position: u64) -> impl FnOnce(TargetError) -> ExtractCause {
    move |source| ExtractCause::Target { position, source }
}

/// A file that is being extracted. The first thread that needs it creates it.
pub(crate) struct OpenFile {
    path: RelPath,
    partial: RwLock<Option<PartialFile>>,
    serial: AtomicBool,
    /// Whether the file is brief: all of its steps are in one batch, and the worker completes it.
    brief: AtomicBool,
    /// Number of the stretch in which the file begins.
    stretch: u64,
    /// Whether zeros may be left out as holes.
    pub(super) may_have_holes: bool,
    /// Layers of the file, if any must be decoded.
    pub(crate) member: Option<Member>,
    /// Checksum of the proven bytes, if progress is logged.
    content: Mutex<ContentSum>,
}

impl OpenFile {
    /// `path` is the final name of the file, which begins in the stretch of this number.
    pub(super) fn new(
        path: RelPath,
        may_have_holes: bool,
        member: Option<Member>,
        stretch: u64,
    ) -> Self {
        Self {
            path,
            partial: RwLock::new(None),
            serial: AtomicBool::new(false),
            brief: AtomicBool::new(false),
            stretch,
            may_have_holes,
            member,
            content: Mutex::default(),
        }
    }

    /// Creates the state of a file that an earlier run left unfinished.
    pub(super) fn begun(
        path: RelPath,
        may_have_holes: bool,
        partial: PartialFile,
        content: ContentSum,
    ) -> Self {
        let begun = Self::new(path, may_have_holes, None, 0);
        Self { partial: RwLock::new(Some(partial)), content: Mutex::new(content), ..begun }
    }

    /// Extends the checksum of the proven bytes and returns it.
    pub(super) fn content(&self, add: impl FnOnce(&mut ContentSum)) -> ContentSum {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut content);
        *content
    }

    /// Number of the partial file; `None` until it is created.
    pub(crate) fn number(&self) -> Option<u64> {
        let partial = self.partial.read().unwrap_or_else(PoisonError::into_inner);
        partial.as_ref().map(PartialFile::number)
    }

    /// Final name of the file, as known when the file began.
    pub(crate) fn path(&self) -> &RelPath {
        &self.path
    }

    /// From now on the file's pieces are written in order, because they may overlap.
    pub(super) fn make_serial(&self) {
        self.serial.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_serial(&self) -> bool {
        self.serial.load(Ordering::Relaxed)
    }

    /// Returns whether the file began in this stretch of the stream.
    pub(super) fn began_in(&self, stretch: u64) -> bool {
        self.stretch == stretch
    }

    /// Notes that the file ends in this stretch, and returns whether it also began there. Then it
    /// is brief, unless its pieces or, if progress is `logged`, its end must be settled in order.
    pub(super) fn ends_in(&self, stretch: u64, logged: bool) -> bool {
        let began_here = self.began_in(stretch);
        self.set_brief(began_here && !logged && self.member.is_none() && !self.is_serial());
        began_here
    }

    pub(super) fn set_brief(&self, brief: bool) {
        self.brief.store(brief, Ordering::Relaxed);
    }

    pub(super) fn is_brief(&self) -> bool {
        self.brief.load(Ordering::Relaxed)
    }

    /// Calls `act` with the file, which is created if needed. Several threads may do so at once.
    pub(crate) fn with<T>(
        &self,
        target: &TargetDir,
        act: impl FnOnce(&PartialFile) -> Result<T, TargetError>,
    ) -> Result<T, TargetError> {
        let mut partial = self.partial.read().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(file) = partial.as_ref() {
                return act(file);
            }
            drop(partial);
            let mut made = self.partial.write().unwrap_or_else(PoisonError::into_inner);
            if made.is_none() {
                *made = Some(target.begin(&self.path)?);
            }
            partial = RwLockWriteGuard::downgrade(made);
        }
    }

    /// Creates the file, for a thread that completes it before it begins another one.
    pub(super) fn begin_brief(&self, target: &TargetDir) -> Result<(), TargetError> {
        let made = target.begin_brief(&self.path)?;
        *self.partial.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(())
    }

    /// Takes the file out, complete or not.
    pub(crate) fn take(&self) -> Option<PartialFile> {
        self.partial.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}
