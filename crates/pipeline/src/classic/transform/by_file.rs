//! Sorts the pieces of a stream by file.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use xb_compressor::PIECE_PLAIN;
use xb_reader::{ChunkHead, PieceCheck, RelPath};

use super::chunks::assemble;
use super::worker::{Job, TransformWorker};
use super::{BLOCK, File, MemorySplit, Transform};
use crate::classic::chunk_cursor::ChunkCursor;
use crate::classic::object::FileCutter;
use crate::extract::decode::{Names, Plan};
use crate::flow::budget::{Budget, Permit};
use crate::flow::hold_ups::Wait;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Closed, Submit, WorkerDied, ordered_by};
use crate::flow::slab::{Slab, SlabPool};
use crate::flow::work::Work;
use crate::pack::chunk_sink::ChunkSink;
use crate::pack::error::{PackError, TransformError};
use crate::pack::result::{Cut, PackOutput};

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Sorts the pieces of a stream by file, passes them to the workers, and cuts their output.
pub(crate) struct TransformStage {
    transform: Transform,
    names: Names,
    open: HashMap<RelPath, Open>,
    current: Option<ChunkCursor>,
    budget: Budget,
    observer: Observer,
    pool: SlabPool,
    /// Additional bytes leased per piece, because a transform may lengthen it.
    spare: u64,
    /// Bytes leased for gathered pieces, and their limit.
    gathered: u64,
    limit: u64,
    submit: Option<Submit<Job, super::worker::TransformOutput>>,
    assembler: Option<JoinHandle<Result<Cut, PackError>>>,
}

/// A file that has begun and not ended.
struct Open {
    file: Arc<File>,
    blocks: Vec<Slab>,
    len: usize,
    permit: Permit,
    /// Whether a piece of the file was already passed to the workers.
    begun: bool,
}

impl TransformStage {
    pub(crate) fn start(
        transform: &Transform,
        memory: MemorySplit,
        observer: &Observer,
        cutter: impl FileCutter + Send + 'static,
    ) -> Result<Self, PackError> {
        let surplus = transform.worst_len()?.saturating_sub(PIECE_PLAIN);
        let limit = memory.files / 4;
        let keep = usize::try_from(memory.files / BLOCK as u64).unwrap_or(usize::MAX);
        let pool = SlabPool::new(BLOCK, keep);
        let (submit, results) = ordered_by("member", memory.threads, 2 * memory.threads, || {
            // A codec without memory fails at its first job, in order like every failure.
            let mut worker = TransformWorker::new(transform, pool.clone());
            let observer = observer.clone();
            move |job: Job| match &mut worker {
                Ok(worker) => observer.working(Work::Encode, job.len(), || worker.transform(job)),
                Err(error) => Err(error.clone().into()),
            }
        });
        let reporting = observer.clone();
        let assembler = std::thread::Builder::new()
            .name("chunks".into())
            .spawn(move || assemble(results, cutter, &reporting))
            .map_err(PackError::Thread)?;
        Ok(Self {
            transform: transform.clone(),
            names: Names::default(),
            open: HashMap::new(),
            current: None,
            budget: Budget::new(memory.files),
            observer: observer.clone(),
            pool,
            // Plus an unfilled block at the end.
            spare: (surplus + BLOCK) as u64,
            gathered: 0,
            limit,
            submit: Some(submit),
            assembler: Some(assembler),
        })
    }

    fn join(&mut self) -> Result<Cut, PackError> {
        let joined = self.assembler.take().map(JoinHandle::join);
        joined.and_then(Result::ok).unwrap_or(Err(WorkerDied.into()))
    }

    fn end(&mut self, path: &RelPath) -> Result<(), PackError> {
        self.file(path)?;
        let Some(mut open) = self.open.remove(path) else { return Ok(()) };
        // An empty file gets a frame, too, because not every reader accepts a file without one.
        if open.len > 0 || (open.file.compress && !open.begun) {
            self.submit_blocks(&mut open)?;
        }
        self.send(Job::End(open.file))
    }

    /// Creates the state of the file if it is new.
    fn file(&mut self, path: &RelPath) -> Result<(), PackError> {
        if self.open.contains_key(path) {
            return Ok(());
        }
        let plan = Plan::of_all(path).and_then(|plan| self.names.claim(&plan).map(|()| plan));
        let plan = plan.map_err(|source| TransformError::Name { path: path.clone(), source })?;
        let file = Arc::new(File::new(path, &plan, &self.transform)?);
        let open =
            Open { file, blocks: Vec::new(), len: 0, permit: Permit::default(), begun: false };
        self.open.insert(path.clone(), open);
        Ok(())
    }

    /// Adds a hole as zeros: the stock compressors and encryptors do not keep holes either.
    fn zeros(&mut self, path: &RelPath, mut left: u64) -> Result<(), PackError> {
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
            self.push(path, &ZEROS[..len])?;
            left -= len as u64;
        }
        Ok(())
    }

    fn push(&mut self, path: &RelPath, mut bytes: &[u8]) -> Result<(), PackError> {
        while !bytes.is_empty() {
            let full = |open: &Open| open.blocks.last().is_none_or(Slab::is_full);
            if self.open.get(path).is_some_and(full) {
                self.block(path)?;
            }
            let Some(open) = self.open.get_mut(path) else { return Ok(()) };
            let Some(block) = open.blocks.last_mut() else { continue };
            let before = bytes.len();
            block.fill_from(&mut bytes);
            open.len += before - bytes.len();
            if open.len == PIECE_PLAIN {
                self.submit_blocks_of(path)?;
            }
        }
        Ok(())
    }

    /// Adds a block to the file.
    fn block(&mut self, path: &RelPath) -> Result<(), PackError> {
        let fresh = self.open.get(path).is_some_and(|open| open.blocks.is_empty());
        let wanted = BLOCK as u64 + if fresh { self.spare } else { 0 };
        while self.gathered + wanted > self.limit {
            let fullest = self.open.iter().filter(|(_, open)| open.len > 0);
            let fullest = fullest.max_by_key(|(_, open)| open.len).map(|(path, _)| path.clone());
            let Some(fullest) = fullest else { break };
            self.submit_blocks_of(&fullest)?;
            if fullest == *path {
                // Start over with a new piece, which includes the spare bytes.
                return self.block(path);
            }
        }
        // This lease is always granted: bytes that open files do not hold are on their way to the
        // store.
        let permit = self.observer.waiting(Wait::Sink, || self.budget.lease(wanted));
        self.gathered += permit.bytes();
        if let Some(open) = self.open.get_mut(path) {
            open.permit.merge(permit);
            open.blocks.push(self.pool.take(None));
        }
        Ok(())
    }

    fn submit_blocks_of(&mut self, path: &RelPath) -> Result<(), PackError> {
        let Some((path, mut open)) = self.open.remove_entry(path) else { return Ok(()) };
        self.submit_blocks(&mut open)?;
        self.open.insert(path, open);
        Ok(())
    }

    /// Passes the gathered bytes to the workers.
    fn submit_blocks(&mut self, open: &mut Open) -> Result<(), PackError> {
        open.len = 0;
        open.begun = true;
        let (blocks, permit) = (std::mem::take(&mut open.blocks), std::mem::take(&mut open.permit));
        self.gathered -= permit.bytes();
        self.send(Job::Piece { file: Arc::clone(&open.file), blocks, permit })
    }

    fn send(&self, job: Job) -> Result<(), PackError> {
        let submit = self.submit.as_ref().ok_or(Closed)?;
        Ok(self.observer.waiting(Wait::Workers, || submit.send(job))?)
    }
}

impl ChunkSink for TransformStage {
    fn head(&mut self, head: &ChunkHead) -> Result<(), PackError> {
        self.current = ChunkCursor::new(head)?;
        match self.current {
            Some(_) => self.file(&head.path),
            None => self.end(&head.path),
        }
    }

    fn piece(&mut self, piece: Bytes, _sum: PieceCheck) -> Result<(), PackError> {
        let mut bytes = &piece[..];
        let Some(mut current) = self.current.take() else { return Ok(()) };
        while let Some((hole, len)) = current.take(bytes.len() as u64) {
            self.zeros(&current.path, hole)?;
            // At most as long as requested, so the conversion cannot fail.
            let (now, later) = bytes.split_at(usize::try_from(len).unwrap_or(bytes.len()));
            self.push(&current.path, now)?;
            bytes = later;
        }
        self.current = Some(current);
        Ok(())
    }

    fn chunk_end(&mut self) -> Result<(), PackError> {
        match self.current.take() {
            Some(current) => self.zeros(&current.path, current.rest()),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<PackOutput, PackError> {
        drop(self.submit.take());
        Ok(PackOutput::Classic(self.join()?))
    }

    fn cause(mut self) -> PackError {
        drop(self.submit.take());
        self.join().err().unwrap_or(PackError::Closed(Closed))
    }
}
