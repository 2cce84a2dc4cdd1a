//! Work that must happen in the order of the stream: comparing checksums and naming files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xb_reader::{ChunkHead, ChunkKind, PayloadCheck, PieceCheck, RelPath, TargetDir};

use super::open_file::{OpenFile, at};
use super::piece::Content;
use super::report::{ExtractCause, ExtractLog, OnFailure};
use super::work::{Outcome, Step};
use crate::extract::decode_workers::DecodeWorkers;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::Results;

/// Result of the finalizer.
pub(super) struct FinalizerReport {
    /// Files that have their final names.
    pub(super) files: u64,
    /// Number of encrypted ones among them.
    pub(super) decrypted: u64,
    /// The first failure, in the order of the stream.
    pub(super) failure: Option<ExtractCause>,
}

/// Processes the workers' results in order.
pub(super) struct Finalizer {
    target: Arc<TargetDir>,
    durable: bool,
    observer: Observer,
    current: Option<(Box<ChunkHead>, Arc<OpenFile>, PayloadCheck)>,
    files: u64,
    /// Number of files that had their final names and were removed again.
    removed: u64,
    /// Decodes the layers of files that have any.
    crew: Option<DecodeWorkers>,
    log: Option<Arc<dyn ExtractLog>>,
    on_failure: OnFailure,
}

impl Finalizer {
    pub(super) fn new(
        target: Arc<TargetDir>,
        durable: bool,
        observer: Observer,
        crew: Option<DecodeWorkers>,
        log: Option<Arc<dyn ExtractLog>>,
        on_failure: OnFailure,
    ) -> Self {
        let (files, removed) = (0, 0);
        Self { target, durable, observer, current: None, files, removed, crew, log, on_failure }
    }

    /// Settles until the feeder ends. After a failure it only drains the results until the feeder
    /// has noticed, so that no thread blocks.
    pub(super) fn run(
        mut self,
        mut results: Results<Vec<Outcome>>,
        cancelled: &AtomicBool,
    ) -> FinalizerReport {
        let mut failure = None;
        while let Some(batch) = results.recv() {
            // A file with its final name counts, even if an earlier file failed.
            let named = |outcome: &&Outcome| matches!(outcome, Outcome::Named);
            self.add_files(batch.iter().flatten().filter(named).count() as u64);
            if failure.is_some() || cancelled.load(Ordering::Acquire) {
                continue;
            }
            let settled = match batch {
                Ok(outcomes) => outcomes.into_iter().try_for_each(|outcome| self.record(outcome)),
                Err(died) => Err(died.into()),
            };
            if let Err(cause) = settled {
                // Report the cause first, so that it is known before the stop is visible.
                self.on_failure.tell(&cause);
                cancelled.store(true, Ordering::Release);
                failure = Some(cause);
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
        FinalizerReport { files: self.files.saturating_sub(self.removed), decrypted, failure }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), ExtractCause> {
        match outcome {
            Outcome::Written(sum, extents) => {
                self.add(&sum);
                if let Some((_, file, _)) = &self.current {
                    for extent in extents {
                        file.content(|content| {
                            content.zeros_up_to(extent.offset);
                            content.append(extent.len, extent.crc);
                        });
                    }
                }
            }
            Outcome::ToWrite(sum, piece) => {
                self.add(&sum);
                match (&self.crew, &piece.content) {
                    (Some(crew), Content::Memory(bytes)) if piece.file.member.is_some() => {
                        crew.piece(&piece.file, bytes.clone(), piece.position, piece.flight);
                    }
                    _ => piece.write_content(&self.target, &self.observer)?,
                }
            }
            // Counted already.
            Outcome::Named => {}
            Outcome::Failed(cause) => return Err(cause),
            Outcome::Settle(step) => self.perform(step)?,
        }
        Ok(())
    }

    fn add_files(&mut self, named: u64) {
        self.files += named;
        self.observer.add_files(named);
    }

    fn add(&mut self, sum: &PieceCheck) {
        if let Some((_, _, check)) = &mut self.current {
            check.append(sum);
        }
    }

    fn perform(&mut self, step: Step) -> Result<(), ExtractCause> {
        match step {
            Step::Head(head, file) => {
                let check = PayloadCheck::new(&head);
                // Before any of its pieces is written: this thread writes serial pieces itself.
                if let (true, Some(log), Some(number)) =
                    (file.is_serial(), &self.log, file.number())
                {
                    log.overwritten(number);
                }
                self.current = Some((head, file, check));
            }
            Step::ChunkEnd => {
                if let Some((head, file, check)) = self.current.take() {
                    check.finish(&head)?;
                    self.proven(&head, &file);
                }
                // Only now: damage that the checksum detects must not be blamed on the key.
                if let Some(crew) = &self.crew {
                    crew.check()?;
                }
            }
            Step::Commit { file, path, name, size, position } => {
                if let (Some(crew), Some(_)) = (&self.crew, &file.member) {
                    crew.check()?;
                    crew.end(&file, name, position);
                } else if let Some(partial) = file.take() {
                    if let Some(log) = &self.log {
                        // Setting the length creates a hole at the end.
                        let content = file.content(|content| content.zeros_up_to(size));
                        let crc = (!file.is_serial()).then_some(content.crc32());
                        log.whole(&path, partial.number(), &name, size, crc);
                    }
                    partial
                        .commit(&self.target, &name, size, self.durable)
                        .map_err(at(position))?;
                    self.add_files(1);
                }
            }
            Step::Discard { file } => {
                self.taken_back([file.path()]);
                if let (Some(log), Some(number)) = (&self.log, file.number()) {
                    log.overwritten(number);
                }
                match &self.crew {
                    Some(crew) if file.member.is_some() => crew.discard(&file),
                    _ => {
                        if let Some(partial) = file.take() {
                            partial.discard();
                        }
                    }
                }
            }
            Step::Rename { path, to, position } => {
                self.taken_back([&path, &to]);
                self.drain()?;
                self.target.rename(&path, &to).map_err(at(position))?;
            }
            Step::Remove { path, position } => {
                self.taken_back([&path]);
                self.drain()?;
                self.target.remove(&path).map_err(at(position))?;
                self.removed += 1;
            }
            Step::RemoveFolder { path, position } => {
                self.target.remove_dir_if_empty(&path).map_err(at(position))?;
            }
            Step::CheckAbsent { path, position } => {
                self.taken_back([&path]);
                self.drain()?;
                self.target.check_absent(&path).map_err(at(position))?;
            }
            // Dropping the barrier signals that it was reached.
            Step::Barrier { .. } => self.drain()?,
            // Done by the workers.
            Step::Begin { .. } | Step::Piece(_) => {}
        }
        Ok(())
    }

    /// Logs how far the file is proven with this chunk.
    fn proven(&self, head: &ChunkHead, file: &OpenFile) {
        let (Some(log), None, false) = (&self.log, &file.member, file.is_serial()) else { return };
        let content = match &head.kind {
            // Just compared with the received bytes.
            ChunkKind::Payload { len, crc, .. } => {
                file.content(|content| content.append(*len, *crc))
            }
            ChunkKind::Sparse { offset, len, map, .. } => {
                let holes: u64 = map.iter().map(|entry| u64::from(entry.skip)).sum();
                let upto = offset.saturating_add(*len).saturating_add(holes);
                file.content(|content| content.zeros_up_to(upto))
            }
            _ => return,
        };
        if let Some(number) = file.number() {
            let chunk = head.head_len.saturating_add(head.payload_len());
            log.proven(&head.path, number, content.len(), chunk, content.crc32());
        }
    }

    fn taken_back<'p>(&self, names: impl IntoIterator<Item = &'p RelPath>) {
        if let Some(log) = &self.log {
            names.into_iter().for_each(|name| log.taken_back(name));
        }
    }

    /// Waits until every file that has ended has its final name.
    fn drain(&self) -> Result<(), ExtractCause> {
        self.crew.as_ref().map_or(Ok(()), DecodeWorkers::drain)
    }
}
