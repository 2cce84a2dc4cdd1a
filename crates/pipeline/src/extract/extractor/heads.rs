//! Steps that a chunk head requires.

use std::convert::Infallible;
use std::sync::Arc;

use crossbeam_channel::bounded;
use xb_reader::{Change, ChunkHead, ChunkKind, RelPath};

use super::{Current, Extractor};
use crate::extract::decode::{FileDecodeError, Member, Plan, may_have_holes};
use crate::extract::open_file::OpenFile;
use crate::extract::report::{ExtractCause, cannot_undo};
use crate::extract::work::Step;

impl Extractor {
    pub(super) fn take_head(&mut self, head: ChunkHead) -> Result<(), ExtractCause> {
        let change = self.files.apply(&head)?;
        let (position, path) = (head.position, head.path.clone());
        match change {
            Change::Opened { id, replaces } => {
                if replaces.is_some() {
                    let path = self.plan(&path, position)?.name;
                    self.batch.push(Step::Remove { path, position });
                    self.barrier();
                }
                let file = self.begin(path, position)?;
                self.open.insert(id, Arc::clone(&file));
                self.go_on(file, head)?;
            }
            Change::Continued { id } => {
                if let Some(file) = self.open.get(&id) {
                    self.go_on(Arc::clone(file), head)?;
                }
            }
            Change::Ended { id, size, only_chunk } => {
                let file = match self.open.remove(&id) {
                    Some(file) => file,
                    None => {
                        debug_assert!(only_chunk, "an open file is known");
                        self.begin(path.clone(), position)?
                    }
                };
                let name = self.plan(&path, position)?.name;
                let began_here = file.ends_in(self.stretch, self.logged);
                self.batch.push(Step::Commit { file, path, name, size, position });
                if began_here {
                    self.end_stretch();
                }
            }
            Change::Renamed { open, .. } => {
                if let ChunkKind::Rename { to } = head.kind {
                    let (path, to) = self.rename(&path, &to, position)?;
                    self.batch.push(if open {
                        // The file is renamed at its end; until then the name only has to be free.
                        Step::CheckAbsent { path: to, position }
                    } else {
                        Step::Rename { path, to, position }
                    });
                    self.barrier();
                }
            }
            Change::Removed { id: Some(id), open: true } => {
                let plan = self.plan(&path, position)?;
                self.names.release(&plan);
                if let Some(file) = self.open.remove(&id) {
                    let began_here = file.began_in(self.stretch);
                    self.batch.push(Step::Discard { file });
                    if began_here {
                        self.end_stretch();
                    }
                }
            }
            Change::Removed { id: Some(_), open: false } => {
                let plan = self.plan(&path, position)?;
                self.names.release(&plan);
                let path = plan.name;
                self.batch.push(Step::Remove { path, position });
                self.barrier();
            }
            // Nothing to remove. But a file that does not come from this stream must not be
            // reported as removed.
            Change::Removed { id: None, .. } => {
                let path = self.plan(&path, position)?.name;
                self.batch.push(Step::CheckAbsent { path, position });
                self.barrier();
            }
            Change::Ignored => {}
        }
        Ok(())
    }

    fn begin(&mut self, path: RelPath, position: u64) -> Result<Arc<OpenFile>, ExtractCause> {
        if let Some(on_file) = &mut self.on_file {
            on_file(&path);
        }
        let plan = self.plan(&path, position)?;
        let mut holes = false;
        if self.options.undo.is_active() {
            self.names.claim(&plan).map_err(cannot_undo(&path, position))?;
            holes = may_have_holes(&plan.name);
        }
        let member = (!plan.layers.is_empty()).then(|| Member::new(path, &plan));
        let file = Arc::new(OpenFile::new(plan.name, holes, member, self.stretch));
        self.batch.push(Step::Begin { file: Arc::clone(&file), position });
        self.unended += 1;
        Ok(file)
    }

    /// Notes that a file of this stretch has ended.
    fn end_stretch(&mut self) {
        self.unended = self.unended.saturating_sub(1);
        if self.unended == 0 {
            self.stretch += 1;
            self.ended = self.batch.len();
        }
    }

    /// Plans the restore of the file of this name.
    pub(super) fn plan(&self, path: &RelPath, position: u64) -> Result<Plan, ExtractCause> {
        Plan::new(path, &self.options.undo).map_err(cannot_undo(path, position))
    }

    /// Returns the names, without suffixes, of a file that is renamed.
    fn rename(
        &mut self,
        path: &RelPath,
        to: &RelPath,
        position: u64,
    ) -> Result<(RelPath, RelPath), ExtractCause> {
        let (old, new) = (self.plan(path, position)?, self.plan(to, position)?);
        let failed = cannot_undo(path, position);
        if old.layers != new.layers {
            return Err(failed(FileDecodeError::Renamed { to: to.clone() }));
        }
        if self.options.undo.is_active() {
            self.names.release(&old);
            self.names.claim(&new).map_err(failed)?;
        }
        Ok((old.name, new.name))
    }

    /// Handles a chunk with content for `file`, or a seek in it.
    fn go_on(&mut self, file: Arc<OpenFile>, head: ChunkHead) -> Result<(), ExtractCause> {
        if file.member.is_some() && !matches!(head.kind, ChunkKind::Payload { .. }) {
            return Err(cannot_undo(&head.path, head.position)(FileDecodeError::OutOfOrder));
        }
        if matches!(head.kind, ChunkKind::Seek { .. }) {
            file.make_serial();
            return Ok(());
        }
        self.batch.push(Step::Head(Box::new(head.clone()), Arc::clone(&file)));
        self.current = Some(Current { file, place: head.placement(), position: head.position });
        Ok(())
    }

    /// Waits until the finalizer has processed everything so far. Needed where names change or must
    /// be free, because workers give names to small files.
    fn barrier(&mut self) {
        let (reached, wait) = bounded::<Infallible>(0);
        self.batch.push(Step::Barrier { _reached: reached });
        if self.send_batch().is_ok() {
            // Nothing is ever sent: the finalizer drops its end when it gets here or when it has
            // stopped. In the second case the next batch is not sent.
            let _ = wait.recv();
        }
    }
}
