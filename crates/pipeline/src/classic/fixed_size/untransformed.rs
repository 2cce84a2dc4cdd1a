//! Cuts the files of a stream without a transform.

use bytes::Bytes;
use xb_reader::{ChunkHead, PieceCheck};

use super::{FixedSizeCutter, MIN_OBJECT, Sizes};
use crate::classic::chunk_cursor::ChunkCursor;
use crate::classic::object::FileCutter;
use crate::flow::budget::Budget;
use crate::flow::ordered_pool::Closed;
use crate::flow::plan::{PackPlan, PlanError, SLAB};
use crate::pack::chunk_sink::ChunkSink;
use crate::pack::error::PackError;
use crate::pack::packer::PartSink;
use crate::pack::result::PackOutput;

/// Minimum length at which a piece stays in its slab, and keeps the whole slab. Shorter pieces are
/// copied; otherwise small files would soon hold all slabs.
const KEEP: usize = SLAB / 2;

/// Maximum number of bytes that open files may hold idle, out of the plan's memory.
///
/// # Errors
/// [`PlanError`] if the memory is too small, or objects of the plan's size are too small.
pub(crate) fn idle_limit(plan: &PackPlan) -> Result<u64, PlanError> {
    let (object_size, memory, threads) = (plan.object_size.get(), plan.memory, plan.threads);
    if object_size < MIN_OBJECT {
        return Err(PlanError::Object { object_size, least: MIN_OBJECT });
    }
    // Slabs with the workers, one being read, one being taken apart.
    let in_work = (plan.depth + threads + 2) as u64 * SLAB as u64;
    let free = memory.saturating_sub(in_work);
    // Memory that is always in flight or free: at least two slabs.
    let idle = free - (free / 4).max(2 * SLAB as u64).min(free);
    // A block may hold more than its part.
    let needed = Sizes::new(plan, idle).needed() + SLAB as u64;
    if idle < needed {
        let needed = in_work + (needed.div_ceil(3) * 4).max(needed + 2 * SLAB as u64);
        return Err(PlanError::Memory { memory, threads, needed });
    }
    Ok(idle)
}

/// Cuts a stream whose files are not transformed.
#[derive(Debug)]
pub(crate) struct Untransformed<S> {
    cutter: FixedSizeCutter<S>,
    budget: Budget,
    current: Option<ChunkCursor>,
}

impl<S: PartSink> Untransformed<S> {
    /// `budget` is the budget of the slabs.
    pub(crate) fn new(plan: &PackPlan, budget: Budget, sink: S) -> Result<Self, PlanError> {
        let idle = idle_limit(plan)?;
        let cutter = FixedSizeCutter::new(Sizes::new(plan, idle), idle, sink);
        Ok(Self { cutter, budget, current: None })
    }
}

impl<S: PartSink> ChunkSink for Untransformed<S> {
    fn head(&mut self, head: &ChunkHead) -> Result<(), PackError> {
        self.current = ChunkCursor::new(head)?;
        match self.current {
            Some(_) => Ok(()),
            None => self.cutter.end(&head.path),
        }
    }

    fn piece(&mut self, mut bytes: Bytes, sum: PieceCheck) -> Result<(), PackError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let whole = bytes.len();
        while let Some((hole, len)) = current.take(bytes.len() as u64) {
            self.cutter.zeros(&current.path, hole)?;
            // At most as long as requested, so the conversion cannot fail.
            let run = bytes.split_to(usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len()));
            if run.len() < KEEP {
                self.cutter.copy(&current.path, &run, &self.budget)?;
            } else {
                let sum = (run.len() == whole).then_some(sum);
                self.cutter.push(&current.path, run, sum, SLAB as u64)?;
            }
        }
        Ok(())
    }

    fn chunk_end(&mut self) -> Result<(), PackError> {
        match self.current.take() {
            Some(current) => self.cutter.zeros(&current.path, current.rest()),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<PackOutput, PackError> {
        Ok(PackOutput::Classic(self.cutter.finish()))
    }

    fn cause(self) -> PackError {
        PackError::Closed(Closed)
    }
}
