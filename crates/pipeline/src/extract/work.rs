//! Work of the worker threads: create files, checksum pieces, write them, name small files.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use xb_reader::{ChunkHead, PayloadCheck, PieceCheck, RelPath, TargetDir};

use super::open_file::{OpenFile, at};
use super::piece::{Block, Content, Extent, Piece};
use super::report::ExtractCause;
use crate::flow::observer::Observer;

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
    /// Remove a folder, unless something else is in it.
    RemoveFolder { path: RelPath, position: u64 },
    /// Check that the name is free.
    CheckAbsent { path: RelPath, position: u64 },
    /// Barrier: dropping it tells the feeder that all earlier steps are done.
    Barrier { _reached: Sender<Infallible> },
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

/// Maximum number of brief files that a worker has open at a time. Producers interleave a few
/// dozen files.
const MAX_BRIEF: usize = 32;

/// Settings with which a worker performs its steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkOptions {
    /// Whether progress is logged: then checksums of the written parts are needed, and files get
    /// their names in the order of the stream.
    pub(super) logged: bool,
    /// Whether a file is synced before it gets its name.
    pub(super) durable: bool,
}

/// Performs the steps that can be done in any order, and passes on the others.
pub(super) struct Worker {
    target: Arc<TargetDir>,
    /// Set when the remaining work is useless.
    cancelled: Arc<AtomicBool>,
    observer: Observer,
    options: WorkOptions,
    block: Block,
    /// Number of brief files that this worker has open.
    brief: usize,
    /// The chunk of a brief file.
    current: Option<(Box<ChunkHead>, PayloadCheck)>,
}

impl Worker {
    pub(super) fn new(
        target: Arc<TargetDir>,
        cancelled: Arc<AtomicBool>,
        observer: Observer,
        options: WorkOptions,
    ) -> Self {
        let (block, brief, current) = (Block::default(), 0, None);
        Self { target, cancelled, observer, options, block, brief, current }
    }

    pub(super) fn run(&mut self, batch: Vec<Step>) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        self.brief = 0;
        self.current = None;
        for step in batch {
            if self.cancelled.load(Ordering::Acquire) {
                break;
            }
            match self.perform(step) {
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

    fn perform(&mut self, step: Step) -> Result<Option<Outcome>, ExtractCause> {
        Ok(Some(match step {
            Step::Begin { file, position } => {
                if file.is_brief() && self.brief < MAX_BRIEF {
                    self.brief += 1;
                    file.begin_brief(&self.target).map_err(at(position))?;
                } else {
                    file.set_brief(false);
                    file.with(&self.target, |_| Ok(())).map_err(at(position))?;
                }
                return Ok(None);
            }
            Step::Head(head, file) if file.is_brief() => {
                let check = PayloadCheck::new(&head);
                self.current = Some((head, check));
                return Ok(None);
            }
            Step::Piece(piece) => {
                // Layers must be decoded in order, too.
                if let (true, Content::Memory(bytes)) =
                    (piece.serial || piece.file.member.is_some(), &piece.content)
                {
                    return Ok(Some(Outcome::ToWrite(PieceCheck::of(bytes), piece)));
                }
                let sum = piece.transfer(&self.target, &self.observer, &mut self.block)?;
                if let Some((_, check)) = &mut self.current {
                    check.append(&sum);
                    return Ok(None);
                }
                let among_holes = self.options.logged && piece.place.is_sparse();
                let extents = if among_holes { piece.extents() } else { Vec::new() };
                Outcome::Written(sum, extents)
            }
            Step::ChunkEnd => match self.current.take() {
                Some((head, check)) => {
                    check.finish(&head)?;
                    return Ok(None);
                }
                None => Outcome::Settle(Step::ChunkEnd),
            },
            Step::Commit { file, name, size, position, .. } if file.is_brief() => {
                let Some(partial) = file.take() else { return Ok(None) };
                let committed = partial.commit(&self.target, &name, size, self.options.durable);
                committed.map_err(at(position))?;
                self.brief = self.brief.saturating_sub(1);
                Outcome::Named
            }
            step => Outcome::Settle(step),
        }))
    }
}
