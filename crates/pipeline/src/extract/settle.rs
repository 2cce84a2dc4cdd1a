//! What must happen in the order of the stream: comparing sums, giving names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xb_reader::{ChunkHead, PayloadCheck, PieceCheck, TargetDir};

use super::ExtractCause;
use super::work::{Outcome, Step, at};
use crate::observe::Observer;
use crate::pool::Results;

/// How it ended.
pub(super) struct Settled {
    /// Files that have their names.
    pub(super) files: u64,
    /// The first failure in the order of the stream.
    pub(super) failure: Option<ExtractCause>,
}

/// Takes the outcomes in order.
pub(super) struct Settler {
    target: Arc<TargetDir>,
    durable: bool,
    observer: Observer,
    current: Option<(Box<ChunkHead>, PayloadCheck)>,
    files: u64,
}

impl Settler {
    pub(super) fn new(target: Arc<TargetDir>, durable: bool, observer: Observer) -> Self {
        Self { target, durable, observer, current: None, files: 0 }
    }

    /// Settles until the feeder is done. After a failure it only takes, so that nobody waits for
    /// it, until the feeder has noticed.
    pub(super) fn run(
        mut self,
        mut results: Results<Vec<Outcome>>,
        cancelled: &AtomicBool,
    ) -> Settled {
        let mut failure = None;
        while let Some(batch) = results.recv() {
            if failure.is_some() || cancelled.load(Ordering::Acquire) {
                continue;
            }
            let settled = match batch {
                Ok(outcomes) => outcomes.into_iter().try_for_each(|outcome| self.settle(outcome)),
                Err(died) => Err(died.into()),
            };
            if let Err(cause) = settled {
                failure = Some(cause);
                cancelled.store(true, Ordering::Release);
            }
        }
        let joined = results.join().map_err(ExtractCause::from);
        Settled { files: self.files, failure: failure.or(joined.err()) }
    }

    fn settle(&mut self, outcome: Outcome) -> Result<(), ExtractCause> {
        match outcome {
            Outcome::Written(sum) => self.add(&sum),
            Outcome::ToWrite(sum, piece) => {
                piece.write(&self.target)?;
                self.add(&sum);
            }
            Outcome::Failed(cause) => return Err(cause),
            Outcome::Settle(step) => self.perform(step)?,
        }
        Ok(())
    }

    fn add(&mut self, sum: &PieceCheck) {
        if let Some((_, check)) = &mut self.current {
            check.append(sum);
        }
    }

    fn perform(&mut self, step: Step) -> Result<(), ExtractCause> {
        match step {
            Step::Head(head) => {
                let check = PayloadCheck::new(&head);
                self.current = Some((head, check));
            }
            Step::ChunkEnd => {
                if let Some((head, check)) = self.current.take() {
                    check.finish(&head)?;
                }
            }
            Step::Commit { file, path, size, position } => {
                if let Some(partial) = file.take() {
                    partial
                        .commit(&self.target, &path, size, self.durable)
                        .map_err(at(position))?;
                    self.files += 1;
                    self.observer.add_files(1);
                }
            }
            Step::Discard { file } => drop(file.take()),
            Step::Rename { path, to, position } => {
                self.target.rename(&path, &to).map_err(at(position))?;
            }
            Step::Remove { path, position } => {
                self.target.remove(&path).map_err(at(position))?;
                self.files = self.files.saturating_sub(1);
            }
            Step::CheckAbsent { path, position } => {
                self.target.check_absent(&path).map_err(at(position))?;
            }
            // The workers' own; a barrier is reached by being dropped.
            Step::Begin { .. } | Step::Piece(_) | Step::Barrier { .. } => {}
        }
        Ok(())
    }
}
