//! Position within a chunk: the bytes it holds, and the holes between them.

use xb_reader::{ChunkHead, ChunkKind, Placement, RelPath};

use crate::pack::error::CutError;

/// Cursor through the current chunk, whose payload arrives in pieces.
#[derive(Debug)]
pub(crate) struct ChunkCursor {
    pub(crate) path: RelPath,
    place: Placement,
    /// File offset reached, holes included.
    at: u64,
    /// File offset of the end of the chunk.
    end: u64,
}

impl ChunkCursor {
    /// Creates a cursor at the start of a payload or sparse chunk; `None` for an end chunk.
    ///
    /// # Errors
    /// [`CutError::Dialect`] for a chunk of any other kind, and for one that replaces a file.
    pub(crate) fn new(head: &ChunkHead) -> Result<Option<Self>, CutError> {
        let (offset, len, holes) = match &head.kind {
            _ if head.is_rewrite() => return Err(not_classic(head)),
            ChunkKind::Payload { offset, len, .. } => (*offset, *len, 0),
            ChunkKind::Sparse { offset, len, map, .. } => {
                (*offset, *len, map.iter().map(|entry| u64::from(entry.skip)).sum())
            }
            ChunkKind::End => return Ok(None),
            _ => return Err(not_classic(head)),
        };
        let end = offset.saturating_add(len).saturating_add(holes);
        Ok(Some(Self { path: head.path.clone(), place: head.placement(), at: offset, end }))
    }

    /// Takes at most `max` contiguous bytes of payload. Returns the length of the hole before them
    /// and their number; `None` if `max` is 0 or the payload is used up.
    pub(crate) fn take(&mut self, max: u64) -> Option<(u64, u64)> {
        let (offset, len) = self.place.take(max)?;
        let hole = offset.saturating_sub(self.at);
        self.at = offset.saturating_add(len);
        Some((hole, len))
    }

    /// Length of the hole after the last byte.
    pub(crate) fn rest(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }
}

fn not_classic(head: &ChunkHead) -> CutError {
    CutError::Dialect { path: head.path.clone(), position: head.position }
}
