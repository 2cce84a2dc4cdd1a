//! Work of the worker threads: create files, checksum pieces, write them.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use bytes::Bytes;
use crossbeam_channel::Sender;
use xb_reader::{
    ChunkHead, ContentSum, PartialFile, PayloadCheck, PieceCheck, Placement, RelPath, TargetDir,
    TargetError, crc32,
};

use super::report::ExtractCause;
use crate::extract::decode::{Member, write_with_holes};
use crate::flow::budget::Permit;
use crate::flow::observer::Observer;
use crate::flow::work::Work;

/// A step, in the order of the stream. `position` is always the stream offset of the chunk that
/// requires the step.
pub(super) enum Step {
    /// Create the file, without a final name.
    Begin { file: Arc<OpenFile>, position: u64 },
    /// A chunk with content for the file begins.
    Head(Box<ChunkHead>, Arc<OpenFile>),
    /// Content of that chunk.
    Piece(Piece),
    /// The chunk is complete.
    ChunkEnd,
    /// The file, called `path` in the stream, is complete: give it its final name.
    Commit { file: Arc<OpenFile>, path: RelPath, name: RelPath, size: u64, position: u64 },
    /// Drop the file.
    Discard { file: Arc<OpenFile> },
    /// Rename a file that has its final name.
    Rename { path: RelPath, to: RelPath, position: u64 },
    /// Remove a file that has its final name.
    Remove { path: RelPath, position: u64 },
    /// Check that the name is free.
    CheckAbsent { path: RelPath, position: u64 },
    /// Barrier: dropping it tells the feeder that all earlier steps are done.
    Barrier { _reached: Sender<Infallible> },
}

/// A piece of a chunk's payload.
pub(super) struct Piece {
    pub(super) file: Arc<OpenFile>,
    /// Position of the bytes in the file.
    pub(super) place: Placement,
    pub(super) bytes: Bytes,
    /// Whether it must not be written before the pieces in front of it.
    pub(super) serial: bool,
    pub(super) position: u64,
    /// Permit for the memory that the piece keeps alive, if it may wait long.
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

    pub(super) fn write(
        &self,
        target: &TargetDir,
        observer: &Observer,
    ) -> Result<(), ExtractCause> {
        observer.working(Work::Write, self.bytes.len() as u64, || self.write_bytes(target))
    }

    fn write_bytes(&self, target: &TargetDir) -> Result<(), ExtractCause> {
        let mut place = self.place.clone();
        let mut rest = &self.bytes[..];
        let written = self.file.with(target, |partial| {
            while let Some((offset, len)) = place.take(rest.len() as u64) {
                // At most the rest of the piece, so the conversion cannot fail.
                let len = usize::try_from(len).unwrap_or(rest.len());
                let (now, later) = rest.split_at(len);
                // A serial piece may have to overwrite data with zeros.
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

/// A contiguous part of a piece, without a hole.
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) crc: u32,
}

/// Result of a step, for the finalizer.
pub(super) enum Outcome {
    /// A piece was written and has this checksum. If holes divide it, each part has a checksum,
    /// too.
    Written(PieceCheck, Vec<Extent>),
    /// A piece has this checksum; the finalizer must write it or pass it on.
    ToWrite(PieceCheck, Piece),
    /// A whole file was written, compared with its checksums and given its final name.
    Named,
    /// A step that only the finalizer can perform.
    Settle(Step),
    /// The worker stopped here.
    Failed(ExtractCause),
}

/// How a worker performs its steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkOptions {
    /// Whether progress is logged: then checksums of the written parts are needed, and files get
    /// their names in the order of the stream.
    pub(super) logged: bool,
    /// Whether a file is synced before it gets its name.
    pub(super) durable: bool,
}

/// Performs the steps that can be done in any order, and passes on the others.
pub(super) fn run(
    batch: Vec<Step>,
    target: &TargetDir,
    cancelled: &AtomicBool,
    observer: &Observer,
    options: WorkOptions,
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut steps = batch.into_iter();
    while !cancelled.load(Ordering::Acquire) {
        let whole = if options.logged { None } else { whole_file(steps.as_slice()) };
        let performed = match whole {
            Some(len) => write_whole(steps.by_ref().take(len), target, observer, options.durable),
            None => match steps.next() {
                Some(step) => perform(step, target, observer, options.logged),
                None => break,
            },
        };
        match performed {
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

/// Returns the number of steps at the front of `steps` that are all of one file, from its beginning
/// to its name, if there is nothing else among them. Small files mostly come like this.
fn whole_file(steps: &[Step]) -> Option<usize> {
    let Some(Step::Begin { file, .. }) = steps.first() else { return None };
    if file.member.is_some() {
        return None;
    }
    let own = |other: &Arc<OpenFile>| Arc::ptr_eq(file, other);
    for (number, step) in steps.iter().enumerate().skip(1) {
        match step {
            Step::Commit { file, .. } if own(file) => return Some(number + 1),
            Step::Head(_, file) if own(file) => {}
            Step::Piece(piece) if own(&piece.file) && !piece.serial => {}
            Step::ChunkEnd => {}
            _ => return None,
        }
    }
    None
}

/// Performs all steps of one file. Its descriptor is closed at the end, so that any number of files
/// needs only one for each worker.
fn write_whole(
    steps: impl Iterator<Item = Step>,
    target: &TargetDir,
    observer: &Observer,
    durable: bool,
) -> Result<Option<Outcome>, ExtractCause> {
    let mut current: Option<(Box<ChunkHead>, PayloadCheck)> = None;
    for step in steps {
        match step {
            Step::Begin { file, position } => file.begin_brief(target).map_err(at(position))?,
            Step::Head(head, _) => {
                let check = PayloadCheck::new(&head);
                current = Some((head, check));
            }
            Step::Piece(piece) => {
                if let Some((_, check)) = &mut current {
                    check.append(&PieceCheck::of(&piece.bytes));
                }
                piece.write(target, observer)?;
            }
            Step::ChunkEnd => {
                if let Some((head, check)) = current.take() {
                    check.finish(&head)?;
                }
            }
            Step::Commit { file, name, size, position, .. } => {
                if let Some(partial) = file.take() {
                    partial.commit(target, &name, size, durable).map_err(at(position))?;
                    return Ok(Some(Outcome::Named));
                }
            }
            other => return Ok(Some(Outcome::Settle(other))),
        }
    }
    Ok(None)
}

fn perform(
    step: Step,
    target: &TargetDir,
    observer: &Observer,
    logged: bool,
) -> Result<Option<Outcome>, ExtractCause> {
    Ok(match step {
        Step::Begin { file, position } => {
            file.with(target, |_| Ok(())).map_err(at(position))?;
            None
        }
        Step::Piece(piece) => {
            // The checksum first: it loads the bytes into the cache for the copy that follows.
            let sum = PieceCheck::of(&piece.bytes);
            // Layers must be decoded in order, too.
            if piece.serial || piece.file.member.is_some() {
                Some(Outcome::ToWrite(sum, piece))
            } else {
                piece.write(target, observer)?;
                let among_holes = logged && piece.place.is_sparse();
                let extents = if among_holes { piece.extents() } else { Vec::new() };
                Some(Outcome::Written(sum, extents))
            }
        }
        step => Some(Outcome::Settle(step)),
    })
}

/// Adds the chunk's position to an error in the target directory.
pub(super) fn at(position: u64) -> impl FnOnce(TargetError) -> ExtractCause {
    move |source| ExtractCause::Target { position, source }
}

/// A file that is being extracted. The first thread that needs it creates it.
pub(crate) struct OpenFile {
    path: RelPath,
    partial: RwLock<Option<PartialFile>>,
    serial: AtomicBool,
    /// Whether zeros may be left out as holes.
    may_have_holes: bool,
    /// Layers of the file, if any must be decoded.
    pub(crate) member: Option<Member>,
    /// Checksum of the proven bytes, if progress is logged.
    content: Mutex<ContentSum>,
}

impl OpenFile {
    /// `path` is the final name of the file.
    pub(super) fn new(path: RelPath, may_have_holes: bool, member: Option<Member>) -> Self {
        let (partial, serial) = (RwLock::new(None), AtomicBool::new(false));
        Self { path, partial, serial, may_have_holes, member, content: Mutex::default() }
    }

    /// Creates the state of a file that an earlier run left unfinished.
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

    /// Calls `act` with the file, which is created if needed. Several threads may do so at once.
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

    /// Creates the file, for a thread that completes it before it begins another one.
    fn begin_brief(&self, target: &TargetDir) -> Result<(), TargetError> {
        let made = target.begin_brief(&self.path)?;
        *self.partial.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(())
    }

    /// Takes the file out, complete or not.
    pub(crate) fn take(&self) -> Option<PartialFile> {
        self.partial.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}
