//! What must happen in the order of the stream: comparing sums, giving names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xb_reader::{ChunkHead, PayloadCheck, PieceCheck, TargetDir};

use super::ExtractCause;
use super::work::{Outcome, Step, at};
use crate::observe::Observer;
use crate::pool::Results;
use crate::undo::Crew;

/// How it ended.
pub(super) struct Settled {
    /// Files that have their names.
    pub(super) files: u64,
    /// How many of them were encrypted.
    pub(super) decrypted: u64,
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
    /// Files that had their names and were removed again.
    removed: u64,
    /// Undoes the layers of files that have any.
    crew: Option<Crew>,
}

impl Settler {
    pub(super) fn new(
        target: Arc<TargetDir>,
        durable: bool,
        observer: Observer,
        crew: Option<Crew>,
    ) -> Self {
        Self { target, durable, observer, current: None, files: 0, removed: 0, crew }
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
        failure = failure.or(joined.err());
        let mut decrypted = 0;
        if let Some(crew) = self.crew.take() {
            match &failure {
                None if !cancelled.load(Ordering::Acquire) => failure = crew.drain().err(),
                _ => crew.cancel(),
            }
            match crew.join() {
                Ok(done) => {
                    self.files += done.files;
                    decrypted = done.decrypted;
                }
                Err(died) => failure = failure.or(Some(died.into())),
            }
        }
        Settled { files: self.files.saturating_sub(self.removed), decrypted, failure }
    }

    fn settle(&mut self, outcome: Outcome) -> Result<(), ExtractCause> {
        match outcome {
            Outcome::Written(sum) => self.add(&sum),
            Outcome::ToWrite(sum, piece) => {
                self.add(&sum);
                match &self.crew {
                    Some(crew) if piece.file.member.is_some() => {
                        crew.piece(&piece.file, piece.bytes, piece.position, piece.flight);
                    }
                    _ => piece.write(&self.target)?,
                }
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
                // Only now: what does not fit its checksum must not be blamed on the key.
                if let Some(crew) = &self.crew {
                    crew.check()?;
                }
            }
            Step::Commit { file, path, size, position } => {
                if let (Some(crew), Some(_)) = (&self.crew, &file.member) {
                    crew.check()?;
                    crew.end(&file, path, position);
                } else if let Some(partial) = file.take() {
                    partial
                        .commit(&self.target, &path, size, self.durable)
                        .map_err(at(position))?;
                    self.files += 1;
                    self.observer.add_files(1);
                }
            }
            Step::Discard { file } => match &self.crew {
                Some(crew) if file.member.is_some() => crew.discard(&file),
                _ => drop(file.take()),
            },
            Step::Rename { path, to, position } => {
                self.drain()?;
                self.target.rename(&path, &to).map_err(at(position))?;
            }
            Step::Remove { path, position } => {
                self.drain()?;
                self.target.remove(&path).map_err(at(position))?;
                self.removed += 1;
            }
            Step::CheckAbsent { path, position } => {
                self.drain()?;
                self.target.check_absent(&path).map_err(at(position))?;
            }
            // Reached by being dropped.
            Step::Barrier { .. } => self.drain()?,
            // The workers' own.
            Step::Begin { .. } | Step::Piece(_) => {}
        }
        Ok(())
    }

    /// Waits until every file that has ended has its name.
    fn drain(&self) -> Result<(), ExtractCause> {
        self.crew.as_ref().map_or(Ok(()), Crew::drain)
    }
}
