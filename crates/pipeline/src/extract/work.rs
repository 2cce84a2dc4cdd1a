//! What the workers do: make files, sum up pieces, write them.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use bytes::Bytes;
use crossbeam_channel::Sender;
use xb_reader::{
    ChunkHead, ContentSum, PartialFile, PieceCheck, Placement, RelPath, TargetDir, TargetError,
    crc32,
};

use super::report::ExtractCause;
use crate::extract::decode::{Member, write_with_holes};
use crate::flow::budget::Permit;

/// Something to do, in the order of the stream. `position` is always the stream offset of the
/// chunk that asks for it.
pub(super) enum Step {
    /// Make the file, under no name yet.
    Begin { file: Arc<OpenFile>, position: u64 },
    /// A chunk with content for the file begins.
    Head(Box<ChunkHead>, Arc<OpenFile>),
    /// Content of that chunk.
    Piece(Piece),
    /// The chunk is complete.
    ChunkEnd,
    /// The file, called `path` in the stream, is complete: give it its name.
    Commit { file: Arc<OpenFile>, path: RelPath, name: RelPath, size: u64, position: u64 },
    /// The file is not wanted.
    Discard { file: Arc<OpenFile> },
    /// Rename a file that has its name.
    Rename { path: RelPath, to: RelPath, position: u64 },
    /// Remove a file that has its name.
    Remove { path: RelPath, position: u64 },
    /// See that nothing has this name.
    CheckAbsent { path: RelPath, position: u64 },
    /// Dropping it tells the feeder that everything before is done.
    Barrier { _reached: Sender<Infallible> },
}

/// A piece of a chunk's payload.
pub(super) struct Piece {
    pub(super) file: Arc<OpenFile>,
    /// Where its bytes go.
    pub(super) place: Placement,
    pub(super) bytes: Bytes,
    /// Must not be written before the pieces in front of it.
    pub(super) serial: bool,
    pub(super) position: u64,
    /// For the memory it holds on to, where it may wait long.
    pub(super) flight: Option<Arc<Permit>>,
}

impl Piece {
    fn extents(&self) -> Vec<Extent> {
        let mut place = self.place.clone();
        let mut rest = &self.bytes[..];
        let extent = || {
            let (offset, len) = place.take(rest.len() as u64)?;
            let (now, later) = rest.split_at(usize::try_from(len).unwrap_or(rest.len()));
            rest = later;
            Some(Extent { offset, len, crc: crc32(now) })
        };
        std::iter::from_fn(extent).collect()
    }

    pub(super) fn write(&self, target: &TargetDir) -> Result<(), ExtractCause> {
        let mut place = self.place.clone();
        let mut rest = &self.bytes[..];
        let written = self.file.with(target, |partial| {
            while let Some((offset, len)) = place.take(rest.len() as u64) {
                // No more than asked for, so it fits.
                let len = usize::try_from(len).unwrap_or(rest.len());
                let (now, later) = rest.split_at(len);
                // A serial piece may have to overwrite something with zeros.
                if self.file.may_have_holes && !self.serial {
                    write_with_holes(partial, offset, now)?;
                } else {
                    partial.write_at(offset, now)?;
                }
                rest = later;
            }
            Ok(())
        });
        written.map_err(at(self.position))
    }
}

/// A part of a piece that lies in the file without a hole.
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) crc: u32,
}

/// What a step came to, for the settler.
pub(super) enum Outcome {
    /// A piece was written and has this sum. Where it lies among holes, each part has its own, too.
    Written(PieceCheck, Vec<Extent>),
    /// A piece has this sum; the settler is to write it, or to hand it on.
    ToWrite(PieceCheck, Piece),
    /// A step that is the settler's alone.
    Settle(Step),
    /// Here the worker stopped.
    Failed(ExtractCause),
}

/// Does what can be done in any order, and passes on the rest.
///
/// `logged`: the sums of what is written are wanted, too.
pub(super) fn run(
    batch: Vec<Step>,
    target: &TargetDir,
    cancelled: &AtomicBool,
    logged: bool,
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(batch.len());
    for step in batch {
        if cancelled.load(Ordering::Acquire) {
            break;
        }
        match perform(step, target, logged) {
            Ok(Some(outcome)) => outcomes.push(outcome),
            Ok(None) => {}
            Err(cause) => {
                outcomes.push(Outcome::Failed(cause));
                break;
            }
        }
    }
    outcomes
}

fn perform(step: Step, target: &TargetDir, logged: bool) -> Result<Option<Outcome>, ExtractCause> {
    Ok(match step {
        Step::Begin { file, position } => {
            file.with(target, |_| Ok(())).map_err(at(position))?;
            None
        }
        Step::Piece(piece) => {
            // The sum first: it brings the bytes into the cache for the copy that follows.
            let sum = PieceCheck::of(&piece.bytes);
            // What has layers is undone in order, too.
            if piece.serial || piece.file.member.is_some() {
                Some(Outcome::ToWrite(sum, piece))
            } else {
                piece.write(target)?;
                let among_holes = logged && piece.place.is_sparse();
                let extents = if among_holes { piece.extents() } else { Vec::new() };
                Some(Outcome::Written(sum, extents))
            }
        }
        step => Some(Outcome::Settle(step)),
    })
}

/// Adds the chunk's position to what went wrong in the target directory.
pub(super) fn at(position: u64) -> impl FnOnce(TargetError) -> ExtractCause {
    move |source| ExtractCause::Target { position, source }
}

/// A file that is being extracted. It is made by the first that needs it.
pub(crate) struct OpenFile {
    path: RelPath,
    partial: RwLock<Option<PartialFile>>,
    serial: AtomicBool,
    /// Zeros need not be written.
    may_have_holes: bool,
    /// Its layers, if it has any that are to be undone.
    pub(crate) member: Option<Member>,
    /// The sum of what is proven of it, where that is logged.
    content: Mutex<ContentSum>,
}

impl OpenFile {
    /// `path` is the name it is to get.
    pub(super) fn new(path: RelPath, may_have_holes: bool, member: Option<Member>) -> Self {
        let (partial, serial) = (RwLock::new(None), AtomicBool::new(false));
        Self { path, partial, serial, may_have_holes, member, content: Mutex::default() }
    }

    /// One that an earlier run has begun, and what there is of it.
    pub(super) fn begun(
        path: RelPath,
        may_have_holes: bool,
        partial: PartialFile,
        content: ContentSum,
    ) -> Self {
        let (partial, serial) = (RwLock::new(Some(partial)), AtomicBool::new(false));
        let content = Mutex::new(content);
        Self { path, partial, serial, may_have_holes, member: None, content }
    }

    /// Adds to the sum of what is proven, and gives it.
    pub(super) fn content(&self, add: impl FnOnce(&mut ContentSum)) -> ContentSum {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut content);
        *content
    }

    /// Its number among the unfinished files, once it is made.
    pub(crate) fn number(&self) -> Option<u64> {
        let partial = self.partial.read().unwrap_or_else(PoisonError::into_inner);
        partial.as_ref().map(PartialFile::number)
    }

    /// The name it is to get, as far as it was known when the file began.
    pub(crate) fn path(&self) -> &RelPath {
        &self.path
    }

    /// From now on its pieces are written in order: they may overlap.
    pub(super) fn make_serial(&self) {
        self.serial.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_serial(&self) -> bool {
        self.serial.load(Ordering::Relaxed)
    }

    /// Uses the file, together with others; makes it if that was not done yet.
    pub(crate) fn with<T>(
        &self,
        target: &TargetDir,
        act: impl FnOnce(&PartialFile) -> Result<T, TargetError>,
    ) -> Result<T, TargetError> {
        let mut partial = self.partial.read().unwrap_or_else(PoisonError::into_inner);
        if partial.is_none() {
            drop(partial);
            let mut made = self.partial.write().unwrap_or_else(PoisonError::into_inner);
            if made.is_none() {
                *made = Some(target.begin(&self.path)?);
            }
            partial = RwLockWriteGuard::downgrade(made);
        }
        match partial.as_ref() {
            Some(file) => act(file),
            None => unreachable!("made above"),
        }
    }

    /// Takes the file out, whole or not.
    pub(crate) fn take(&self) -> Option<PartialFile> {
        self.partial.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}
