//! From the steps of a stream to the files in it, where nothing is done to these.

use bytes::Bytes;
use xb_reader::{ChunkHead, PieceCheck};

use super::{MIN_OBJECT, Recutter, Sizes};
use crate::classic::one_object_per_chunk::{Cut, FileCutter};
use crate::flow::budget::Budget;
use crate::flow::plan::{PlanError, PutPlan, SLAB};
use crate::pack::PutError;
use crate::pack::packer::PartSink;
use crate::scan::chunk_cursor::Walk;

/// From this length on a piece stays in its slab, which it pays for as a whole. A shorter one is
/// copied: else files with a few bytes each would soon hold all slabs.
const KEEP: usize = SLAB / 2;

/// How a run's memory is divided, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// The most that open files may hold idle.
    pub(crate) idle: u64,
}

impl Share {
    /// Divides `plan.memory`.
    ///
    /// # Errors
    /// [`PlanError`] when it is too little, or objects of the plan's size are too small.
    pub(crate) fn of(plan: &PutPlan) -> Result<Self, PlanError> {
        let (chunk, memory, threads) = (plan.chunk, plan.memory, plan.threads);
        if chunk < MIN_OBJECT {
            return Err(PlanError::Object { chunk, least: MIN_OBJECT });
        }
        // With the workers, one being read, one being taken apart.
        let in_work = (plan.depth + threads + 2) as u64 * SLAB as u64;
        let free = memory.saturating_sub(in_work);
        // What is always on its way, or free: two slabs at the least.
        let idle = free - (free / 4).max(2 * SLAB as u64).min(free);
        // A block may hold more than its part.
        let needed = Sizes::new(plan, idle).needed() + SLAB as u64;
        if idle < needed {
            let needed = in_work + (needed.div_ceil(3) * 4).max(needed + 2 * SLAB as u64);
            return Err(PlanError::Memory { memory, threads, needed });
        }
        Ok(Self { idle })
    }
}

/// Re-cuts a stream whose files stay as they are.
#[derive(Debug)]
pub(crate) struct Plain<S> {
    cutter: Recutter<S>,
    budget: Budget,
    current: Option<Walk>,
}

impl<S: PartSink> Plain<S> {
    /// `budget` is that of the slabs.
    pub(crate) fn new(plan: &PutPlan, budget: Budget, sink: S) -> Result<Self, PlanError> {
        let Share { idle } = Share::of(plan)?;
        let cutter = Recutter::new(Sizes::new(plan, idle), idle, sink);
        Ok(Self { cutter, budget, current: None })
    }

    /// A chunk begins.
    pub(crate) fn head(&mut self, head: &ChunkHead) -> Result<(), PutError> {
        self.current = Walk::new(head)?;
        match self.current {
            Some(_) => Ok(()),
            None => self.cutter.end(&head.path),
        }
    }

    /// The next piece of its payload, a slice of a slab, and its sum.
    pub(crate) fn piece(&mut self, mut bytes: Bytes, sum: PieceCheck) -> Result<(), PutError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let whole = bytes.len();
        while let Some((hole, len)) = current.take(bytes.len() as u64) {
            self.cutter.zeros(&current.path, hole)?;
            // No more than asked for, so it fits.
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

    /// The chunk is complete.
    pub(crate) fn chunk_end(&mut self) -> Result<(), PutError> {
        match self.current.take() {
            Some(current) => self.cutter.zeros(&current.path, current.rest()),
            None => Ok(()),
        }
    }

    /// The stream is over, and was whole.
    pub(crate) fn finish(self) -> Cut {
        self.cutter.finish()
    }
}
