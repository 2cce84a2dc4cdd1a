//! Turns index records into the chunks of the selected files.

use std::collections::HashMap;

use bytes::BytesMut;
use xb_frame::Record;
use xb_reader::ChunkWriter;

use super::changes::LaterChanges;
use super::plan::{Parts, PlanFailure, SelectedPiece};
use crate::error::BackupError;
use crate::selection::{Checkpoint, MatchedNames, SelectReason, Selection};

/// Memory limit for a plan of single files, in bytes. A file takes about 120.
const MAX_PLAN: usize = 256 << 20;

/// A selected file whose end has not been reached.
#[derive(Debug)]
struct Open {
    path: Vec<u8>,
    why: SelectReason,
    /// Offset at which a reader expects its next chunk.
    next: u64,
    /// Offset up to which an earlier run has proven the file.
    proven: u64,
    ended: bool,
}

/// Selects chunks from the records of an index, one record at a time.
pub(super) struct ChunkSelector<'a> {
    selection: &'a Selection,
    proven: &'a Checkpoint,
    changes: LaterChanges,
    matched: MatchedNames,
    open: HashMap<u64, Open>,
    parts: Parts,
    text: BytesMut,
    /// End of the last selected chunk.
    end: u64,
}

impl<'a> ChunkSelector<'a> {
    pub(super) fn new(
        selection: &'a Selection,
        proven: &'a Checkpoint,
        changes: LaterChanges,
    ) -> Self {
        Self {
            selection,
            proven,
            changes,
            matched: MatchedNames::default(),
            open: HashMap::new(),
            parts: Parts::default(),
            text: BytesMut::new(),
            end: 0,
        }
    }

    /// Takes the records in order.
    pub(super) fn take(&mut self, record: &Record<'_>) -> Result<(), PlanFailure> {
        match record {
            Record::File { source: 1.., .. } => {
                let what = "the stream has several sources, so single files cannot be selected";
                return Err(BackupError::Selection(what.into()).into());
            }
            Record::File { file, path, .. } => self.file(*file, path),
            Record::Chunk(chunk) => {
                let Some(open) = self.open.get_mut(&chunk.file) else { return Ok(()) };
                let end = chunk.offset + chunk.logical_len;
                let (why, skipped) = (open.why, end <= open.proven);
                let seek = (chunk.offset != open.next && !skipped).then(|| open.path.clone());
                open.next = end;
                if skipped {
                    return Ok(());
                }
                if let Some(path) = seek {
                    self.say(|writer| writer.seek(&path, chunk.offset))?;
                }
                let len = chunk.head_len + chunk.payload_len;
                if chunk.position < self.end {
                    return Err(PlanFailure::Index("the chunks are not in order"));
                }
                self.end = chunk.position + len;
                self.parts.chosen.add(why, 0, chunk.payload_len);
                match self.parts.picks.last_mut() {
                    Some(SelectedPiece::Source(last)) if last.end == chunk.position => {
                        last.end = self.end
                    }
                    _ => self.parts.picks.push(SelectedPiece::Source(chunk.position..self.end)),
                }
                if self.parts.picks.len().saturating_mul(size_of::<SelectedPiece>()) > MAX_PLAN {
                    return Err(too_much());
                }
            }
            Record::End { file, .. } => {
                let Some(open) = self.open.get_mut(file) else { return Ok(()) };
                open.ended = true;
                let (path, why) = (open.path.clone(), open.why);
                self.say(|writer| writer.end(&path))?;
                self.parts.chosen.add(why, 1, 0);
                if self.changes.new_name(*file).is_none() {
                    self.open.remove(file);
                }
            }
            Record::Rename { file, path } => {
                self.parts.resumable.meet(path, self.proven);
                let Some(open) = self.open.get_mut(file) else { return Ok(()) };
                let old = std::mem::replace(&mut open.path, path.to_vec());
                self.say(|writer| writer.rename(&old, path))?;
            }
            // A file that is removed or replaced was never selected; the other records are not needed here.
            Record::Remove { .. } | Record::Frames(_) | _ => {}
        }
        Ok(())
    }

    fn file(&mut self, file: u64, path: &[u8]) {
        self.parts.resumable.meet(path, self.proven);
        if self.changes.is_removed(file) {
            return;
        }
        let name = self.changes.new_name(file).unwrap_or(path);
        let Some(why) = self.selection.judge(name, &mut self.matched) else { return };
        let mut proven = 0;
        // A file that the stream changes later is fetched from its beginning: what an earlier run has of it may be
        // what came before the change, or after it.
        if self.changes.only_grows(file, path) {
            let is_whole = self.proven.whole.contains(path);
            let begun = self.proven.begun.get(path);
            if is_whole || begun.is_some() {
                self.parts.resumable.kept.insert(path.to_vec());
            }
            if is_whole {
                return;
            }
            proven = begun.map_or(0, |come| come.upto);
        }
        // Offset at which the reader of a partial file continues.
        let open = Open { path: path.to_vec(), why, next: 0, proven, ended: false };
        self.open.insert(file, open);
    }

    /// Adds a chunk without payload.
    fn say(
        &mut self,
        write: impl FnOnce(&mut ChunkWriter<Vec<u8>>) -> std::io::Result<()>,
    ) -> Result<(), PlanFailure> {
        let mut writer = ChunkWriter::new(Vec::new());
        let bad = |_| PlanFailure::Index("it contains an invalid file name");
        write(&mut writer).map_err(bad)?;
        let chunk = writer.finish().map_err(bad)?;
        let start = self.text.len();
        self.text.extend_from_slice(&chunk);
        let end = self.text.len();
        if end > MAX_PLAN {
            return Err(too_much());
        }
        match self.parts.picks.last_mut() {
            Some(SelectedPiece::Text(last)) => last.end = end,
            _ => self.parts.picks.push(SelectedPiece::Text(start..end)),
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Parts, PlanFailure> {
        self.selection.check(&self.matched)?;
        if self.open.values().any(|open| !open.ended) {
            return Err(PlanFailure::Index("it contains a file without an end"));
        }
        self.parts.text = self.text.freeze();
        Ok(self.parts)
    }
}

fn too_much() -> PlanFailure {
    BackupError::Selection(
        "selecting this many single files needs too much memory: select fewer, or read the whole backup".into(),
    )
    .into()
}
